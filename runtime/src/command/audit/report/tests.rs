//! Tests of a report.

use std::path::Path;

use portcullis_tools::{
    MountGrant, ToolGrants,
    audit::{BreakReason, ChainBreak, OpenBegin, Row},
    policy::{Approval, DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy},
};
use portcullis_types::{Access, SandboxTier, display::is_deceptive};

use super::*;

fn policy() -> WorkspaceSecurityPolicy {
    let operator = PolicySource { name: "p", text: DEFAULT_POLICY };
    let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
    WorkspaceSecurityPolicy::load(&options).expect("the shipped policy")
}

fn row(seq: u64, fields: &str) -> Row {
    let hash = "0".repeat(64);
    let line = format!(
        "{{\"seq\":{seq},\"time\":\"2026-11-26T12:00:00Z\",\"process\":\"1-1-1\",{fields},\"prev\":\"{hash}\",\
         \"hash\":\"{hash}\"}}"
    );
    serde_json::from_str(&line).expect("a row")
}

fn grants(tool: &str, mounts: &[(&str, Access)]) -> ToolGrants {
    let grant = |&(mount, access): &(&str, Access)| MountGrant {
        mount: mount.to_owned(),
        access,
        rule: format!("profiles.P.mounts.{mount}"),
        location: None,
    };
    ToolGrants {
        tool: tool.to_owned(),
        step: None,
        profile: "P".to_owned(),
        verdict: Approval::Allow,
        rule: "profiles.P".to_owned(),
        location: None,
        mounts: mounts.iter().map(grant).collect(),
        hosts: Vec::new(),
    }
}

fn verification() -> VerifyReport {
    VerifyReport {
        rows: 3,
        last_seq: 3,
        head: "ab".repeat(32),
        first_break: None,
        open_begins: Vec::new(),
        open_begins_omitted: 0,
        first_seq: 1,
        ..VerifyReport::default()
    }
}

/// The page of these rows, without its head.
fn body(rows: &[Row], grants: &[ToolGrants], verification: &VerifyReport, anchor: &AnchorState) -> String {
    let policy = policy();
    let (mut figures, mut counts) = (Figures::default(), UseCounts::new(grants, &policy));
    for row in rows {
        figures.add(row);
        counts.add(row);
    }
    let page = page::render(&page::ReportInput {
        workspace: Path::new("/srv/\u{202e}workspace"),
        log: Path::new("/srv/state/audit.jsonl"),
        policy: &policy,
        grants,
        counts: &counts,
        figures: &figures,
        unreadable: 0,
        verification,
        anchor,
        filters: &["--agent <b>".to_owned()],
        created_at: "2026-11-27T00:00:00Z".parse().expect("a time"),
    });
    let (_, body) = page.split_once("<body>").expect("a body");
    body.replace(policy.digest().as_str(), "DIGEST")
}

/// The text of the table row that begins with a name.
#[track_caller]
fn table_row(body: &str, name: &str) -> String {
    let start = body.find(&format!("<th scope=\"row\"><code><bdi>{name}</bdi>")).expect("the row");
    let (row, _) = body[start..].split_once("</tr>").expect("its end");
    let cells =
        row.replace("</td>", " | ").replace("</strong>", " ").replace("</th>", " | ").replace("</code>", " ");
    let mut text = String::new();
    let mut is_text = true;
    for character in cells.chars() {
        match character {
            '<' => is_text = false,
            '>' => is_text = true,
            _ if is_text => text.push(character),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_cell_distinguishes_used_granted_and_tried() {
    let tools = [
        grants("writer", &[("shared", Access::Write), ("tmp", Access::Write)]),
        grants("shell", &[("shared", Access::Write)]),
    ];
    let used = r#""event":"end","tool":"writer","outcome":"ok","mounts_used":["shared"]"#;
    let rows = [
        row(
            1,
            &format!(
                r#"{used},"touched":[{{"mount":"shared","read":1,"written":0,"created":0,"removed":0}}]"#
            ),
        ),
        row(
            2,
            r#""event":"end","tool":"writer","outcome":"denied","decision":"deny","code":"c","rule":"r","subjects":[{"argument":"path","kind":"path","value":"/vault/x"}]"#,
        ),
        row(3, r#""event":"end","tool":"shell","outcome":"ok","mounts_used":["shared"]"#),
    ];
    let page = body(&rows, &tools, &verification(), &AnchorState::NotAnchored);
    assert_eq!(
        table_row(&page, "writer"),
        "writer P | ✓ runs | 2 | write 1 ×, only read | write never used | ✗ 1 refused | – |"
    );
    assert_eq!(table_row(&page, "shell"), "shell P | ✓ runs | 1 | write ≤ 1 ×, not seen | – | – | – |");
    let unused = table_row(&page, "profiles.P.mounts.tmp");
    assert_eq!(unused, "profiles.P.mounts.tmp | write /tmp | never used | writer | – | 0 |");
    assert!(page.contains("Rules that are left out: 1"), "{page}");
    assert!(page.contains("! Filters leave calls out"), "a filter by agent makes a used grant look unused");
}

#[test]
fn hostile_rows_are_text() {
    let name = "<script>x</script>\\u001b[31m\\u202e\\\"";
    let call = format!(
        r#""event":"end","tool":"{name}","agent":"{name}","run_id":"{name}","outcome":"denied","decision":"deny","code":"{name}","rule":"{name}","approval":"{name}","policy_digest":"{name}","secrets":["{name}"],"subjects":[{{"argument":"{name}","kind":"path","value":"{name}"}}],"approver":{{"by":"terminal","name":"{name}","rule":"{name}"}},"requests":[{{"url":"https://{name}"}}],"connections":[{{"host":"{name}","port":1,"count":1,"sent":1,"received":1,"end":"{name}"}}]"#
    );
    let rows = [
        row(
            1,
            &format!(
                r#""event":"start","version":"{name}","binary_sha256":"{name}","host":"{name}","instance":"{name}","uid":0"#
            ),
        ),
        row(2, &call),
        row(
            3,
            &format!(
                r#""event":"policy","old_digest":"{name}","new_digest":"{name}","cause":"{name}","refused":"{name}""#
            ),
        ),
        row(4, &format!(r#""event":"approve","tool":"{name}","agent":"{name}""#)),
    ];
    let tools = [grants("<script>", &[("shared", Access::Read)])];
    let hostile = || "<script>\u{1b}\u{202e}".to_owned();
    let verification = VerifyReport {
        open_begins: vec![OpenBegin { seq: 1, call_id: hostile(), tool: hostile(), process: hostile() }],
        open_begins_omitted: 2,
        head: hostile(),
        ..verification()
    };
    let page = body(&rows, &tools, &verification, &AnchorState::NotAnchored);
    assert!(
        !page.contains("<script")
            && !page.chars().any(|character| character != '\n' && is_deceptive(character))
    );
    insta::assert_snapshot!("hostile", page.replace("<section", "\n\n<section").replace("<tr>", "\n<tr>"));
}

#[test]
fn the_headline_says_whether_the_log_is_whole() {
    let mut report = verification();
    let time = "2026-11-26T12:00:00Z".parse().expect("a time");
    let source = "a head";
    let page = |report: &VerifyReport, anchor: &AnchorState| body(&[], &[], report, anchor);
    let anchored = page(&report, &AnchorState::Holds { source, up_to: 2, time });
    assert!(anchored.contains("✓ The chain is intact") && anchored.contains("✓ Anchored up to row 2"));
    assert!(anchored.contains("Rows that follow it: 1."), "{anchored}");
    let not_anchored = page(&report, &AnchorState::NotAnchored);
    assert!(
        not_anchored.contains("! Not anchored")
            && not_anchored.contains("Rows cut off the end would not be noticed")
    );
    assert!(not_anchored.contains("no row meets the filters"));
    report.first_break =
        Some(ChainBreak { path: "audit.jsonl".into(), line: 4, offset: 99, why: BreakReason::HashMismatch });
    let broken = page(&report, &AnchorState::Missing { source });
    assert!(broken.contains("✗ The chain is broken") && broken.contains("✗ Rows are missing"));
    assert!(!broken.contains("✓ The chain is intact"));
}
