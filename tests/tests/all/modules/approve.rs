//! Approved modules, and the effects of a later change.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{
    BootstrapError,
    audit::{Decision, Outcome, RowEvent},
    modules::{LOCK_FILE, LockError, PinError},
    policy::PinStatus,
};
use portcullis_types::ToolErrorKind::{self, Denied, Unavailable};
use serde_json::json;

use super::{fixture, folder, module, other_module, portcullis, stderr, stdout};
use crate::hostile::wat_guest::WatGuest;

/// A policy entry that lets the tool run without approval.
const ALLOW_MINE: &str = "[tools.mine]\nprofile = \"WorkspaceRead\"\napproval = \"allow\"\n";

async fn call(fixture: &Fixture) -> CallOutcome {
    CallOutcome::run(&fixture.registry().await, "mine", json!({})).await
}

async fn pin_status(fixture: &Fixture) -> PinStatus {
    fixture.registry().await.get("mine").expect("loaded").descriptor().pin_status
}

fn approve(fixture: &Fixture) -> String {
    let output = portcullis(fixture, &["tool", "approve", "mine"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

fn lock(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.state().join(LOCK_FILE)).expect("readable")
}

#[tokio::test]
async fn a_changed_module_is_quarantined_until_approved_again() {
    let fixture =
        fixture(&[("m.wasm", &module("mine")), ("z.wasm", &module("other"))]).with_policy(ALLOW_MINE);
    assert_eq!(
        call(&fixture).await.text(),
        "done",
        "the policy decides about a module that was never approved"
    );
    assert_eq!(pin_status(&fixture).await, PinStatus::Unpinned);
    let answer_text = approve(&fixture);
    assert!(answer_text.contains("nothing was approved under this name before"), "{answer_text}");
    assert_eq!(pin_status(&fixture).await, PinStatus::Approved);
    assert_eq!(call(&fixture).await.text(), "done");
    let before = fixture.rows().pop().expect("a row");

    fs::write(folder(&fixture).join("m.wasm"), other_module("mine")).expect("written");
    assert_eq!(pin_status(&fixture).await, PinStatus::Quarantined);
    let message = call(&fixture).await.assert_refused(Denied, "module_changed");
    assert!(message.contains("quarantined") && message.contains("portcullis tool approve mine"), "{message}");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.decision, row.code.as_deref()), (Some(Decision::Deny), Some("module_changed")));
    assert_eq!(row.rule.as_deref(), Some("portcullis.lock: tools.mine"));
    assert_ne!(row.module_sha256, before.module_sha256);
    assert_ne!(row.policy_digest, before.policy_digest, "module hashes are in the digest");
    let registry = fixture.registry().await;
    assert!(registry.assignment(&registry.get("mine").expect("listed")).is_err());
    assert_eq!(CallOutcome::run(&registry, "other", json!({})).await.text(), "done", "other tools still run");
    drop(registry);

    let listed = portcullis(&fixture, &["tools"]);
    assert!(stdout(&listed).lines().any(|line| line.starts_with("mine ") && line.contains("quarantined")));
    for format in ["--openai", "--mcp"] {
        let offered = stdout(&portcullis(&fixture, &["tools", format]));
        assert!(!offered.contains("\"mine\"") && offered.contains("\"other\""), "{offered}");
    }
    let called = portcullis(&fixture, &["call", "mine", "--approve"]);
    assert_eq!(
        (called.status.code(), stdout(&called).as_str()),
        (Some(3), ""),
        "`--approve` does not bypass the quarantine"
    );

    let output = portcullis(&fixture, &["tool", "approve", "mine", "--dry-run"]);
    assert!(stdout(&output).contains("changed since it was approved\n  module\n"), "{}", stdout(&output));
    assert_eq!(pin_status(&fixture).await, PinStatus::Quarantined, "a dry run approves nothing");
    approve(&fixture);
    assert_eq!(pin_status(&fixture).await, PinStatus::Approved);
    assert_eq!(call(&fixture).await.text(), "done");

    fs::write(folder(&fixture).join("m.wasm"), module("mine")).expect("written");
    assert_eq!(
        pin_status(&fixture).await,
        PinStatus::Quarantined,
        "restoring the old module also needs an approval"
    );
}

#[tokio::test]
async fn approving_shows_wanted_and_given_rights_and_every_change() {
    let describe = |tier: &str, text: &str| {
        WatGuest::describing(&format!(
            r#"{{"v":1,"tools":[{{"name":"mine","description":"{text}","tier":"{tier}","profile":"FileReadWrite","hosts":["https://x"],"parameters":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}},"roles":[{{"argument":"path","role":{{"path":"write"}}}}]}}]}}"#
        ))
        .bytes()
    };
    let fixture = fixture(&[("m.wasm", &describe("read_only", "Reads."))]);
    drop(fixture.registry().await);
    let answer_text = approve(&fixture);
    for line in [
        "profile FileReadWrite Nothing",
        "tier read_only read_only",
        "hosts https://x none: its profile has no hosts",
        "approval none ask:",
        "roles path: path to write",
    ] {
        let spaced = answer_text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(spaced.contains(line), "{line}: {answer_text}");
    }
    assert!(lock(&fixture).contains("profile = \"FileReadWrite\""));
    fs::write(folder(&fixture).join("m.wasm"), describe("privileged", "Reads.\\u001b[2J<IMPORTANT>"))
        .expect("written");
    let answer_text = approve(&fixture);
    assert!(answer_text.contains("  tier\n    was read_only\n    is  privileged\n"), "{answer_text}");
    assert!(
        answer_text.contains("  description\n    was Reads.\n    is  Reads.\\u{1b}[2J<IMPORTANT>\n"),
        "{answer_text}"
    );
    assert!(!answer_text.contains('\u{1b}'));
}

#[tokio::test]
async fn an_approval_gives_no_right_and_is_for_outside_modules_only() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]);
    drop(fixture.registry().await);
    approve(&fixture);
    let registry = fixture.registry().await;
    let assigned = registry.assignment(&registry.get("mine").expect("loaded")).expect("enabled");
    assert_eq!((assigned.profile.as_str(), assigned.approval.as_str()), ("Nothing", "ask"));
    for name in ["file_read", "add", "nowhere", "../lock", ""] {
        let output = portcullis(&fixture, &["tool", "approve", name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(stdout(&output).is_empty());
    }
    assert!(!lock(&fixture).contains("file_read"));
}

#[tokio::test]
async fn an_approved_tool_without_its_module_is_unavailable() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]);
    drop(fixture.registry().await);
    approve(&fixture);
    fs::write(folder(&fixture).join("m.wasm"), b"\0asm garbage").expect("written");
    call(&fixture).await.assert_refused(Unavailable, "module_unavailable");
    fs::remove_file(folder(&fixture).join("m.wasm")).expect("removed");
    call(&fixture).await.assert_refused(Unavailable, "module_unavailable");
    assert_eq!(fixture.rows().pop().expect("a row").code.as_deref(), Some("module_unavailable"));
    assert_eq!(portcullis(&fixture, &["call", "mine"]).status.code(), Some(5));
    fs::write(folder(&fixture).join("elsewhere.wasm"), module("mine")).expect("written");
    assert_eq!(pin_status(&fixture).await, PinStatus::Approved, "a module may be moved");
}

#[tokio::test]
async fn a_changed_lock_quarantines_and_a_damaged_one_stops_the_start() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]).with_policy(ALLOW_MINE);
    drop(fixture.registry().await);
    approve(&fixture);
    let path = fixture.state().join(LOCK_FILE);
    let good = lock(&fixture);
    assert_eq!(fs::metadata(&path).expect("the path exists").permissions().mode() & 0o777, 0o600);
    for key in ["module_sha256 = \"", "declarations_sha256 = \""] {
        let position = good.find(key).expect("the key") + key.len();
        let mut changed = good.clone();
        let digit = if &good[position..=position] == "0" { "1" } else { "0" };
        changed.replace_range(position..=position, digit);
        fs::write(&path, changed).expect("written");
        call(&fixture).await.assert_refused(Denied, "module_changed");
    }
    for (from, to) in [
        ("version = 1", "version = 9"),
        ("version = 1", "version = 1\nallow_all = true"),
        ("[tools.mine]", "[tools.mine]\napproval = \"allow\""),
        ("[tools.mine]", "[tools.MINE]"),
        ("module_sha256 = \"", "module_sha256 = \"zz"),
        ("[tools.mine]", "["),
    ] {
        fs::write(&path, good.replacen(from, to, 1)).expect("written");
        let error = fixture.builder().await.expect("loads").build().expect_err(to);
        assert!(matches!(error, BootstrapError::Lock(LockError::Malformed { .. })), "{error:?}");
        let before = lock(&fixture);
        for words in [&["call", "add", "{\"a\":1,\"b\":2}"][..], &["tool", "approve", "mine"], &["tools"]] {
            let output = portcullis(&fixture, words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        }
        assert_eq!(lock(&fixture), before, "nothing is written over a damaged lock");
    }
    fs::remove_file(&path).expect("removed");
    fs::write(fixture.root().join("elsewhere.lock"), &good).expect("written");
    symlink(fixture.root().join("elsewhere.lock"), &path).expect("links");
    let error = fixture.builder().await.expect("loads").build().expect_err("a link");
    assert!(matches!(error, BootstrapError::Lock(_)), "{error:?}");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, good).expect("written");
    assert_eq!(call(&fixture).await.text(), "done");
}

#[tokio::test]
async fn only_the_tool_that_was_approved_is_pinned() {
    let describe = r#"{"v":1,"tools":[{"name":"mine","parameters":{"type":"object"}},{"name":"yours","parameters":{"type":"object"}}]}"#;
    let guest = WatGuest::describing(describe);
    let fixture = fixture(&[("m.wasm", &guest.bytes())]);
    drop(fixture.registry().await);
    approve(&fixture);
    let changed = WatGuest { fields: "(func)".to_owned(), ..guest }.bytes();
    fs::write(folder(&fixture).join("m.wasm"), changed).expect("written");
    let registry = fixture.registry().await;
    CallOutcome::run(&registry, "mine", json!({})).await.assert_refused(Denied, "module_changed");
    assert_eq!(CallOutcome::run(&registry, "yours", json!({})).await.text(), "done");
}

#[tokio::test]
async fn an_approval_and_its_end_are_on_record_and_undo_each_other() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]).with_policy(ALLOW_MINE);
    drop(fixture.registry().await);
    approve(&fixture);
    let pinned = lock(&fixture);
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.event, row.outcome, row.decision), (RowEvent::Approve, None, None));
    assert_eq!((&*row.tool, row.agent.as_deref()), ("mine", Some("cli")));
    assert_eq!(row.rule.as_deref(), Some("portcullis.lock: tools.mine"));
    let [module_sha256, declarations] =
        [&row.module_sha256, &row.args_sha256].map(|digest| digest.clone().expect("known"));
    assert!(pinned.contains(&format!("module_sha256 = \"{module_sha256}\"")), "{pinned}");
    assert!(pinned.contains(&format!("declarations_sha256 = \"{declarations}\"")), "{pinned}");

    let dry_run = portcullis(&fixture, &["tool", "approve", "mine", "--dry-run"]);
    assert_eq!((dry_run.status.code(), fixture.rows().len()), (Some(0), 1), "to look leaves no row");

    // After the approval is revoked, the policy decides again about a quarantined tool.
    fs::write(folder(&fixture).join("m.wasm"), other_module("mine")).expect("written");
    assert_eq!(pin_status(&fixture).await, PinStatus::Quarantined);
    let revoked = portcullis(&fixture, &["tool", "revoke", "mine"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    let stdout_text = stdout(&revoked);
    assert!(
        stdout_text.contains(&*module_sha256) && stdout_text.contains("the quarantine was lifted"),
        "{stdout_text}"
    );
    assert!(stdout_text.contains("`enabled = false` under `[tools.mine]`"), "{stdout_text}");
    assert_eq!(pin_status(&fixture).await, PinStatus::Unpinned);
    assert!(!lock(&fixture).contains("tools.mine"));
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.event, &*row.tool), (RowEvent::Revoke, "mine"));
    assert_eq!(row.module_sha256.as_deref(), Some(&*module_sha256), "of what was approved");

    let second_revocation = portcullis(&fixture, &["tool", "revoke", "mine"]);
    assert_eq!(second_revocation.status.code(), Some(1));
    assert!(
        stderr(&second_revocation).contains("nothing is approved under the name `mine`"),
        "{}",
        stderr(&second_revocation)
    );
    assert_eq!(fixture.rows().len(), 2, "what changes nothing leaves no row");
    let listed = stdout(&portcullis(&fixture, &["audit", "log"]));
    assert!(listed.contains("approves") && listed.contains("revokes"), "{listed}");
    let verified = portcullis(&fixture, &["audit", "verify"]);
    assert!(stdout(&verified).starts_with("intact: 7 rows"), "{}", stdout(&verified));
}

#[tokio::test]
async fn approval_is_revocable_without_the_module() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]);
    drop(fixture.registry().await);
    approve(&fixture);
    fs::remove_file(folder(&fixture).join("m.wasm")).expect("removed");
    let revoked = portcullis(&fixture, &["tool", "revoke", "mine"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    assert!(stdout(&revoked).contains("no module has a tool of this name now"), "{}", stdout(&revoked));
    assert!(!lock(&fixture).contains("tools.mine"));
}

#[tokio::test]
async fn an_approval_without_a_row_or_a_lock_fails() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]);
    let registry = fixture.registry().await;
    let approval = registry.approval_of("mine").expect("of a module");
    // The lock cannot overwrite a folder.
    let path = fixture.state().join(LOCK_FILE);
    fs::create_dir(&path).expect("the folder can be made");
    approval.pin("tester").expect_err("no lock can be written");
    let events: Vec<_> = fixture.rows().iter().map(|row| (row.event, row.outcome)).collect();
    let failed = Outcome::Error(ToolErrorKind::Failed);
    assert_eq!(events, [(RowEvent::Approve, None), (RowEvent::End, Some(failed))]);
    fs::remove_dir(&path).expect("removed");
    // A truncated log accepts no further row.
    fs::write(fixture.state().join("audit.jsonl"), "").expect("written");
    let error = approval.pin("tester").expect_err("no row can be written");
    assert!(matches!(error, PinError::Unrecorded { .. }), "{error:?}");
    assert!(!path.exists(), "nothing is pinned");
}
