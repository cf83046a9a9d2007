//! Tests of the form of a row: fixed fields, bounded length, one line.

use std::{fs, sync::Arc, time::Duration};

use portcullis_types::{Access, SafetyTier, ToolErrorKind};
use proptest::prelude::*;

use super::*;
use crate::{
    ApproverKind, Confinement, Decision, MAX_ROW_BYTES, RecordedApprover, RecordedConnection, RecordedMount,
    RecordedRequest, SharedText, Subject, SubjectKind, SubjectSource, TouchedMount,
};

fn touched(mount: &str) -> TouchedMount {
    TouchedMount { mount: mount.into(), read: u64::MAX, written: 1, created: 2, removed: u64::MAX }
}

fn full_record(text: &str) -> (Arc<RowFields>, CallEnd) {
    let text = SharedText::from(text);
    let some = || Some(Arc::clone(&text));
    let subject = |kind| Subject { source: Arc::clone(&text).into(), kind, value: Arc::clone(&text) };
    let mount = |access| RecordedMount { name: Arc::clone(&text), access };
    let call = RowFields {
        call_id: Arc::clone(&text),
        run_id: some(),
        agent: some(),
        operation_id: some(),
        tool: Arc::clone(&text),
        tier: Some(SafetyTier::SideEffecting),
        confinement: Some(Confinement::Native),
        profile: some(),
        mounts: vec![mount(Access::Read); 200],
        subjects: vec![subject(SubjectKind::Command); 200],
        args_sha256: some(),
        policy_digest: some(),
        module_sha256: some(),
        decision: Some(Decision::Deny),
        code: some(),
        rule: some(),
        approval: some(),
        approver: Some(RecordedApprover {
            by: ApproverKind::Elicitation,
            uid: Some(u32::MAX),
            name: some(),
            question_sha256: some(),
            rule: some(),
        }),
        labels: vec![Arc::clone(&text); 200],
        flow_rule: some(),
        secrets: vec![Arc::clone(&text); 200],
        requests: vec![RecordedRequest { url: Arc::clone(&text), address: some() }; 200],
        posture: some(),
    };
    let connection = RecordedConnection {
        host: some(),
        port: Some(u16::MAX),
        address: some(),
        count: u64::MAX,
        sent: u64::MAX,
        received: u64::MAX,
        end: Arc::clone(&text),
    };
    let ending = CallEnd {
        outcome: Outcome::Error(ToolErrorKind::InvalidArguments),
        code: some(),
        duration: Some(Duration::MAX),
        cpu: Some(Duration::MAX),
        peak_memory_bytes: Some(u64::MAX),
        output_bytes: Some(u64::MAX),
        truncated: Some(false),
        mounts_used: vec![Arc::clone(&text); 200],
        touched: Some(vec![touched(&text); 200]),
        touched_paths: vec![Arc::clone(&text); 200],
        connections: vec![connection; 200],
        connections_omitted: 1,
    };
    (Arc::new(call), ending)
}

#[test]
fn a_row_has_the_fields_of_the_design_in_their_order() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let call = Arc::new(RowFields {
        call_id: "c1".into(),
        run_id: Some("r1".into()),
        agent: Some("a1".into()),
        tool: "file_write".into(),
        tier: Some(SafetyTier::SideEffecting),
        confinement: Some(Confinement::Wasm),
        profile: Some("FileReadWrite".into()),
        mounts: vec![RecordedMount { name: "shared".into(), access: Access::Write }],
        subjects: vec![Subject { source: "path".into(), kind: SubjectKind::Path, value: "/shared/a".into() }],
        decision: Some(Decision::Allow),
        approval: Some("not_required".into()),
        approver: Some(RecordedApprover {
            by: ApproverKind::Terminal,
            uid: Some(1000),
            name: Some("/dev/pts/3".into()),
            question_sha256: None,
            rule: Some("tiers.side_effecting.approval".into()),
        }),
        labels: vec!["vault".into()],
        requests: vec![
            RecordedRequest { url: "https://b.test/".into(), address: Some("192.0.2.1:443".into()) },
            RecordedRequest { url: "https://a.test/?q".into(), address: None },
        ],
        posture: Some("full".into()),
        ..RowFields::default()
    });
    let ending = CallEnd {
        code: Some("mount_read_only".into()),
        duration: Some(Duration::from_micros(90)),
        truncated: Some(true),
        mounts_used: vec!["shared".into()],
        touched: Some(vec![TouchedMount {
            mount: "shared".into(),
            read: 3,
            written: 0,
            created: 1,
            removed: 0,
        }]),
        touched_paths: vec!["/shared/b".into()],
        connections: vec![RecordedConnection {
            host: Some("a.test".into()),
            port: Some(443),
            address: None,
            count: 2,
            sent: 0,
            received: 0,
            end: "host_not_granted".into(),
        }],
        ..CallEnd::new(Outcome::Error(ToolErrorKind::Denied))
    };
    log.append(&NewRow::begin(&call)).expect("appends");
    log.append(&NewRow::end(&call, ending)).expect("appends");

    let rows = read(dir.path());
    let text = fs::read_to_string(log_path(dir.path())).expect("reads");
    let mut expected = String::new();
    let shared_fields = concat!(
        r#""call_id":"c1","run_id":"r1","agent":"a1","operation_id":null,"tool":"file_write","#,
        r#""tier":"side_effecting","confinement":"wasm","profile":"FileReadWrite","#,
        r#""mounts":[{"name":"shared","access":"write"}],"#,
        r#""subjects":[{"argument":"path","kind":"path","value":"/shared/a"}],"#,
        r#""args_sha256":null,"policy_digest":null,"module_sha256":null,"decision":"allow","#,
    );
    let parts = [
        (
            "begin",
            concat!(
                r#""code":null,"rule":null,"approval":"not_required","approver":{"by":"terminal","uid":1000,"name":"/dev/pts/3","question_sha256":null,"rule":"tiers.side_effecting.approval"},"labels":["vault"],"flow_rule":null,"secrets":[],"outcome":null,"duration_us":null,"#,
                r#""cpu_us":null,"peak_memory":null,"bytes_out":null,"truncated":null,"mounts_used":[],"touched":null,"touched_paths":[],"connections":[],"#,
            ),
        ),
        (
            "end",
            concat!(
                r#""code":"mount_read_only","rule":null,"approval":"not_required","approver":{"by":"terminal","uid":1000,"name":"/dev/pts/3","question_sha256":null,"rule":"tiers.side_effecting.approval"},"labels":["vault"],"flow_rule":null,"secrets":[],"outcome":"denied","#,
                r#""duration_us":90,"cpu_us":null,"peak_memory":null,"bytes_out":null,"truncated":true,"#,
                r#""mounts_used":["shared"],"touched":[{"mount":"shared","read":3,"written":0,"created":1,"removed":0}],"touched_paths":["/shared/b"],"connections":[{"host":"a.test","port":443,"address":null,"#,
                r#""count":2,"sent":0,"received":0,"end":"host_not_granted"}],"#,
            ),
        ),
    ];
    for (row, (event, rest)) in rows.iter().zip(parts) {
        let Row { seq, time, process, prev, hash, .. } = row;
        expected += &format!(
            "{{\"v\":2,\"seq\":{seq},\"time\":\"{time:.6}\",\"event\":\"{event}\",{shared_fields}{rest}\"requests\":[{{\"url\":\"https://b.test/\",\"address\":\"192.0.2.1:443\"}},\
             {{\"url\":\"https://a.test/?q\",\"address\":null}}],\"posture\":\"full\",\
             \"process\":\"{process}\",\"omitted\":0,\"prev\":\"{prev}\",\"hash\":\"{hash}\"}}\n",
        );
    }
    assert_eq!(text, expected);
    assert_eq!(rows[1].prev, rows[0].hash);
    let rewritten: String =
        rows.iter().map(|row| serde_json::to_string(row).expect("encodes") + "\n").collect();
    assert_eq!(rewritten, text, "the reader's row has the writer's fields and order");
}

/// The last request comes first, so that the row has the final URL, however many requests precede it.
#[test]
fn requests_share_the_bound_of_connections_and_keep_the_last() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let request = |index: usize| RecordedRequest {
        url: format!("https://a.test/{index}/{}", "x".repeat(3_900)).into(),
        address: Some("192.0.2.1:443".into()),
    };
    let call = Arc::new(RowFields { requests: (0..5).map(request).collect(), ..RowFields::default() });
    log.append(&NewRow::end(&call, CallEnd::new(Outcome::Ok))).expect("appends");
    let row = &read(dir.path())[0];
    assert_eq!((row.requests.as_slice(), row.omitted), (&[request(0), request(1)][..], 3));
    // A row of a version that lacks the field.
    let line = fs::read_to_string(log_path(dir.path())).expect("reads");
    let (row_start, rest) = line.split_once(",\"requests\":").expect("the field");
    let (_, row_end) = rest.split_once(",\"posture\"").expect("the next field");
    let old_row: Row = serde_json::from_str(&format!("{row_start},\"posture\"{row_end}")).expect("is read");
    assert!(old_row.requests.is_empty());
}

#[test]
fn the_worst_strings_stay_one_bounded_line() {
    let megabyte = 1024 * 1024;
    for text in [
        "a".repeat(megabyte),
        "\0".repeat(megabyte),
        "\u{2028}\u{202e}\r\n".repeat(megabyte / 8),
        "😀\"\\".repeat(megabyte / 8),
        "\",\"hash\":\"\n{\"seq\":1,".repeat(megabyte / 16),
    ] {
        let dir = tempfile::tempdir().expect("makes a folder");
        let log = open(dir.path());
        let (call, ending) = full_record(&text);
        log.append(&NewRow::begin(&call)).expect("appends");
        log.append(&NewRow::end(&call, ending)).expect("appends");
        drop(log);

        let raw = fs::read(log_path(dir.path())).expect("reads");
        let lines: Vec<_> = raw.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert!(line.len() < MAX_ROW_BYTES, "{} bytes", line.len());
            let text = std::str::from_utf8(line).expect("is UTF-8");
            assert!(!text.trim_end_matches('\n').chars().any(|char| char.is_control() || char == '\u{2028}'));
        }
        let report = verify_intact(dir.path());
        assert_eq!((report.rows, report.open_begins.len()), (2, 0));
        let row = &read(dir.path())[1];
        assert!(row.call_id.contains(&format!("…[cut: {} bytes]", text.len())));
        assert!(row.omitted >= 400, "{}", row.omitted);
    }
}

#[test]
fn the_source_of_a_subject_is_one_word() {
    for (source, word, is_argument) in [
        (SubjectSource::Argument("path".into()), "path", true),
        (SubjectSource::ProtectedPathMade, "protected_path_made", false),
        (SubjectSource::ProtectedPathsUnseen, "protected_paths_unseen", false),
    ] {
        assert_eq!((source.as_str(), source.is_argument()), (word, is_argument));
        assert_eq!(serde_json::to_value(&source).expect("encodes"), word);
        assert_eq!(serde_json::from_value::<SubjectSource>(word.into()).expect("decodes"), source);
    }
}

#[test]
fn a_full_length_path_is_not_cut() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let path = format!("/shared/{}", "p".repeat(4096 - 8));
    let subject = Subject { source: "path".into(), kind: SubjectKind::Path, value: path.as_str().into() };
    let call = RowFields { subjects: vec![subject.clone(), subject], ..RowFields::default() };
    log.append(&NewRow::end(&Arc::new(call), CallEnd::new(Outcome::Ok))).expect("appends");
    assert!(read(dir.path())[0].subjects.iter().all(|subject| *subject.value == *path));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn short_strings_come_back_as_they_were(text in any::<String>().prop_filter("bounded", |text| text.len() < 80)) {
        let dir = tempfile::tempdir().expect("makes a folder");
        let log = open(dir.path());
        let (call, ending) = full_record(&text);
        log.append(&NewRow::end(&call, ending)).expect("appends");
        let row = &read(dir.path())[0];
        prop_assert_eq!(&*row.call_id, &text);
        prop_assert_eq!(row.posture.as_deref(), Some(text.as_str()));
        prop_assert_eq!(&*row.subjects[0].value, &text);
        verify_intact(dir.path());
    }
}
