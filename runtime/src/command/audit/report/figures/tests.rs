//! Tests of the numbers.

use super::*;

/// The figures of rows that have these fields.
fn figures(rows: &[&str]) -> Figures {
    let mut figures = Figures::default();
    for (index, fields) in rows.iter().enumerate() {
        let hash = "0".repeat(64);
        let line = format!(
            "{{\"seq\":{},\"time\":\"2026-11-26T12:00:{index:02}Z\",\"process\":\"1-1-1\",{fields},\"prev\":\"{hash}\",\
             \"hash\":\"{hash}\"}}",
            index + 1
        );
        figures.add(&serde_json::from_str(&line).expect("a row"));
    }
    figures
}

#[test]
fn a_call_counts_by_its_end() {
    let figures = figures(&[
        r#""event":"begin","tool":"a","agent":"x""#,
        r#""event":"end","tool":"a","agent":"x","outcome":"ok","approval":"approved","approver":{"by":"terminal","uid":7,"name":"/dev/pts/1","rule":"tools.a.approval"},"decision":"allow","duration_us":10"#,
        r#""event":"end","tool":"a","outcome":"denied","decision":"deny","code":"mount_not_granted","rule":"mounts","subjects":[{"argument":"path","kind":"path","value":"/vault/x"}]"#,
        r#""event":"end","tool":"b","outcome":"timeout","approval":"not_required","duration_us":30"#,
        r#""event":"end","tool":"b","outcome":"unknown""#,
        // A step has the approval of its operation.
        r#""event":"end","tool":"b_step","operation_id":"o","outcome":"ok","approval":"approved","decision":"allow""#,
    ]);
    let Calls { calls, ran, asked, denied, failed, unknown, longest_us, .. } = figures.total;
    assert_eq!((calls, ran, asked, denied, failed, unknown, longest_us), (5, 2, 1, 1, 1, 1, 30));
    assert_eq!(figures.total.mean_us(), Some(20));
    let agents: Vec<_> = figures
        .agents
        .sorted_by_weight(|calls| calls.calls)
        .iter()
        .map(|(name, calls)| (name.as_str(), calls.calls))
        .collect();
    assert_eq!(agents, [("–", 4), ("x", 1)]);
    let denials = figures.denials.sorted_by_weight(|denials| denials.calls);
    assert_eq!((denials[0].0.code.as_str(), denials[0].1.seq), ("mount_not_granted", 3));
    assert_eq!(denials[0].1.subject.as_deref(), Some("/vault/x"));
    let approvals = figures.approvals.sorted_by_weight(|answers| answers.count);
    let (kind, answers) = approvals[0];
    assert_eq!(
        (kind.by, kind.uid, kind.rule.as_str(), answers.count),
        ("terminal", Some(7), "tools.a.approval", 1)
    );
}

#[test]
fn hosts_have_requests_connections_and_refusals() {
    let figures = figures(&[
        r#""event":"end","tool":"web_fetch_request","outcome":"ok","requests":[{"url":"https://a.example:8443/x?y","address":"1.2.3.4:443"}],"secrets":["key"]"#,
        r#""event":"end","tool":"web_fetch","outcome":"denied","decision":"deny","subjects":[{"argument":"url","kind":"url","value":"https://b.example/"}]"#,
        r#""event":"end","tool":"shell_exec","outcome":"ok","connections":[{"host":"c.example","port":443,"address":"1.2.3.4:443","count":2,"sent":3,"received":4,"end":"closed"},{"host":"c.example","port":443,"address":null,"count":5,"sent":0,"received":0,"end":"host_denied"}]"#,
    ]);
    let hosts: Vec<_> = figures
        .hosts
        .sorted_by_weight(Traffic::total)
        .iter()
        .map(|(host, traffic)| {
            (host.as_str(), traffic.requests, traffic.connections, traffic.refused, traffic.received)
        })
        .collect();
    assert_eq!(
        hosts,
        [
            ("c.example:443", 0, 2, 5, 4),
            ("https://a.example:8443", 1, 0, 0, 0),
            ("https://b.example", 0, 0, 1, 0)
        ]
    );
    assert_eq!(figures.secrets.sorted_by_weight(|answers| answers.count)[0].0.0, "key");
}

#[test]
fn changes_are_the_newest() {
    let rows = vec![
        r#""event":"policy","old_digest":"a","new_digest":"b","cause":"hangup","uid":7"#;
        MAX_CHANGES + 3
    ];
    let figures = figures(&rows[..60.min(rows.len())]);
    assert_eq!(
        (figures.changes.count, figures.changes.newest_changes.len()),
        (MAX_CHANGES as u64 + 3, MAX_CHANGES)
    );
    assert_eq!(figures.changes.newest_changes[0].seq, 4);
    assert_eq!(figures.changes.newest_changes[0].subject, "a → b");
}

#[test]
fn a_host_is_found_in_any_text() {
    for (url, expected) in [
        ("https://a.example/x", "https://a.example"),
        ("https://a.example?x", "https://a.example"),
        ("https://a.example", "https://a.example"),
        ("a/b", "a"),
        ("", ""),
        ("://", "://"),
        ("ä://ö/ü", "ä://ö"),
    ] {
        assert_eq!(host_of(url), expected);
    }
}
