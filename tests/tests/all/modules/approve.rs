//! Approved modules, and the effects of a later change.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::{
    BootstrapError,
    audit::{Event, Outcome, Verdict},
    modules::{LOCK_FILE, LockError, PinError},
    policy::Standing,
};
use portcullis_types::ToolErrorKind::{self, Denied, Unavailable};
use serde_json::json;

use super::{folder, module, other_module, portcullis, stderr, stdout, world};
use crate::hostile::wat_guest::WatGuest;

/// A policy entry that lets the tool run without approval.
const ENTRY: &str = "[tools.mine]\nprofile = \"WorkspaceRead\"\napproval = \"allow\"\n";

async fn call(world: &World) -> CallOutcome {
    CallOutcome::of(&world.registry().await, "mine", json!({})).await
}

async fn standing(world: &World) -> Standing {
    world.registry().await.get("mine").expect("loaded").facts().standing
}

fn approve(world: &World) -> String {
    let output = portcullis(world, &["tool", "approve", "mine"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

fn lock(world: &World) -> String {
    fs::read_to_string(world.state().join(LOCK_FILE)).expect("readable")
}

#[tokio::test]
async fn a_changed_module_is_quarantined_until_approved_again() {
    let world = world(&[("m.wasm", &module("mine")), ("z.wasm", &module("other"))]).with_policy(ENTRY);
    assert_eq!(call(&world).await.text(), "done", "what was never approved is the policy's to judge");
    assert_eq!(standing(&world).await, Standing::Unpinned);
    let said = approve(&world);
    assert!(said.contains("nothing was approved under this name before"), "{said}");
    assert_eq!(standing(&world).await, Standing::Approved);
    assert_eq!(call(&world).await.text(), "done");
    let before = world.rows().pop().expect("a row");

    fs::write(folder(&world).join("m.wasm"), other_module("mine")).expect("written");
    assert_eq!(standing(&world).await, Standing::Quarantined);
    let message = call(&world).await.refused(Denied, "module_changed");
    assert!(message.contains("quarantined") && message.contains("portcullis tool approve mine"), "{message}");
    let row = world.rows().pop().expect("a row");
    assert_eq!((row.decision, row.code.as_deref()), (Some(Verdict::Deny), Some("module_changed")));
    assert_eq!(row.rule.as_deref(), Some("portcullis.lock: tools.mine"));
    assert_ne!(row.module_sha256, before.module_sha256);
    assert_ne!(row.policy_digest, before.policy_digest, "module hashes are in the digest");
    let registry = world.registry().await;
    assert!(registry.assignment(&registry.get("mine").expect("listed")).is_err());
    assert_eq!(CallOutcome::of(&registry, "other", json!({})).await.text(), "done", "others go on");
    drop(registry);

    let listed = portcullis(&world, &["tools"]);
    assert!(stdout(&listed).lines().any(|line| line.starts_with("mine ") && line.contains("quarantined")));
    for format in ["--openai", "--mcp"] {
        let offered = stdout(&portcullis(&world, &["tools", format]));
        assert!(!offered.contains("\"mine\"") && offered.contains("\"other\""), "{offered}");
    }
    let called = portcullis(&world, &["call", "mine", "--approve"]);
    assert_eq!(
        (called.status.code(), stdout(&called).as_str()),
        (Some(3), ""),
        "an approval is no way around"
    );

    let shown = portcullis(&world, &["tool", "approve", "mine", "--dry-run"]);
    assert!(stdout(&shown).contains("changed since it was approved\n  module\n"), "{}", stdout(&shown));
    assert_eq!(standing(&world).await, Standing::Quarantined, "to look is not to approve");
    approve(&world);
    assert_eq!(standing(&world).await, Standing::Approved);
    assert_eq!(call(&world).await.text(), "done");

    fs::write(folder(&world).join("m.wasm"), module("mine")).expect("written");
    assert_eq!(standing(&world).await, Standing::Quarantined, "back to the old one is a change as well");
}

#[tokio::test]
async fn approving_shows_wanted_and_given_rights_and_every_change() {
    let describe = |tier: &str, text: &str| {
        WatGuest::describing(&format!(
            r#"{{"v":1,"tools":[{{"name":"mine","description":"{text}","tier":"{tier}","profile":"FileReadWrite","hosts":["https://x"],"parameters":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}},"roles":[{{"argument":"path","role":{{"path":"write"}}}}]}}]}}"#
        ))
        .bytes()
    };
    let world = world(&[("m.wasm", &describe("read_only", "Reads."))]);
    drop(world.registry().await);
    let said = approve(&world);
    for line in [
        "profile FileReadWrite Nothing",
        "tier read_only read_only",
        "hosts https://x none: its profile has no hosts",
        "approval none ask:",
        "roles path: path to write",
    ] {
        let spaced = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(spaced.contains(line), "{line}: {said}");
    }
    assert!(lock(&world).contains("profile = \"FileReadWrite\""));
    fs::write(folder(&world).join("m.wasm"), describe("privileged", "Reads.\\u001b[2J<IMPORTANT>"))
        .expect("written");
    let said = approve(&world);
    assert!(said.contains("  tier\n    was read_only\n    is  privileged\n"), "{said}");
    assert!(said.contains("  description\n    was Reads.\n    is  Reads.\\u{1b}[2J<IMPORTANT>\n"), "{said}");
    assert!(!said.contains('\u{1b}'));
}

#[tokio::test]
async fn an_approval_gives_no_right_and_is_for_outside_modules_only() {
    let world = world(&[("m.wasm", &module("mine"))]);
    drop(world.registry().await);
    approve(&world);
    let registry = world.registry().await;
    let assigned = registry.assignment(&registry.get("mine").expect("loaded")).expect("enabled");
    assert_eq!((assigned.profile.as_str(), assigned.approval.as_str()), ("Nothing", "ask"));
    for name in ["file_read", "add", "nowhere", "../lock", ""] {
        let output = portcullis(&world, &["tool", "approve", name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(stdout(&output).is_empty());
    }
    assert!(!lock(&world).contains("file_read"));
}

#[tokio::test]
async fn an_approved_tool_without_its_module_is_unavailable() {
    let world = world(&[("m.wasm", &module("mine"))]);
    drop(world.registry().await);
    approve(&world);
    fs::write(folder(&world).join("m.wasm"), b"\0asm garbage").expect("written");
    call(&world).await.refused(Unavailable, "module_unavailable");
    fs::remove_file(folder(&world).join("m.wasm")).expect("removed");
    call(&world).await.refused(Unavailable, "module_unavailable");
    assert_eq!(world.rows().pop().expect("a row").code.as_deref(), Some("module_unavailable"));
    assert_eq!(portcullis(&world, &["call", "mine"]).status.code(), Some(5));
    fs::write(folder(&world).join("elsewhere.wasm"), module("mine")).expect("written");
    assert_eq!(standing(&world).await, Standing::Approved, "a module may be moved");
}

#[tokio::test]
async fn a_changed_lock_quarantines_and_a_damaged_one_stops_the_start() {
    let world = world(&[("m.wasm", &module("mine"))]).with_policy(ENTRY);
    drop(world.registry().await);
    approve(&world);
    let path = world.state().join(LOCK_FILE);
    let good = lock(&world);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    for key in ["module_sha256 = \"", "declarations_sha256 = \""] {
        let at = good.find(key).expect("the key") + key.len();
        let mut changed = good.clone();
        let digit = if &good[at..=at] == "0" { "1" } else { "0" };
        changed.replace_range(at..=at, digit);
        fs::write(&path, changed).expect("written");
        call(&world).await.refused(Denied, "module_changed");
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
        let error = world.builder().await.expect("loads").build().expect_err(to);
        assert!(matches!(error, BootstrapError::Lock(LockError::Malformed { .. })), "{error:?}");
        let before = lock(&world);
        for words in [&["call", "add", "{\"a\":1,\"b\":2}"][..], &["tool", "approve", "mine"], &["tools"]] {
            let output = portcullis(&world, words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        }
        assert_eq!(lock(&world), before, "nothing is written over a damaged lock");
    }
    fs::remove_file(&path).expect("removed");
    fs::write(world.root().join("elsewhere.lock"), &good).expect("written");
    symlink(world.root().join("elsewhere.lock"), &path).expect("links");
    let error = world.builder().await.expect("loads").build().expect_err("a link");
    assert!(matches!(error, BootstrapError::Lock(_)), "{error:?}");
    fs::remove_file(&path).expect("removed");
    fs::write(&path, good).expect("written");
    assert_eq!(call(&world).await.text(), "done");
}

#[tokio::test]
async fn only_the_tool_that_was_approved_is_pinned() {
    let both = r#"{"v":1,"tools":[{"name":"mine","parameters":{"type":"object"}},{"name":"yours","parameters":{"type":"object"}}]}"#;
    let guest = WatGuest::describing(both);
    let world = world(&[("m.wasm", &guest.bytes())]);
    drop(world.registry().await);
    approve(&world);
    let changed = WatGuest { fields: "(func)".to_owned(), ..guest }.bytes();
    fs::write(folder(&world).join("m.wasm"), changed).expect("written");
    let registry = world.registry().await;
    CallOutcome::of(&registry, "mine", json!({})).await.refused(Denied, "module_changed");
    assert_eq!(CallOutcome::of(&registry, "yours", json!({})).await.text(), "done");
}

#[tokio::test]
async fn an_approval_and_its_end_are_on_record_and_undo_each_other() {
    let world = world(&[("m.wasm", &module("mine"))]).with_policy(ENTRY);
    drop(world.registry().await);
    approve(&world);
    let pinned = lock(&world);
    let row = world.rows().pop().expect("a row");
    assert_eq!((row.event, row.outcome, row.decision), (Event::Approve, None, None));
    assert_eq!((&*row.tool, row.agent.as_deref()), ("mine", Some("cli")));
    assert_eq!(row.rule.as_deref(), Some("portcullis.lock: tools.mine"));
    let [module_sha256, declarations] =
        [&row.module_sha256, &row.args_sha256].map(|it| it.clone().expect("known"));
    assert!(pinned.contains(&format!("module_sha256 = \"{module_sha256}\"")), "{pinned}");
    assert!(pinned.contains(&format!("declarations_sha256 = \"{declarations}\"")), "{pinned}");

    let looked = portcullis(&world, &["tool", "approve", "mine", "--dry-run"]);
    assert_eq!((looked.status.code(), world.rows().len()), (Some(0), 1), "to look leaves no row");

    // Once the approval is taken back, the policy decides again on a quarantined tool.
    fs::write(folder(&world).join("m.wasm"), other_module("mine")).expect("written");
    assert_eq!(standing(&world).await, Standing::Quarantined);
    let revoked = portcullis(&world, &["tool", "revoke", "mine"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    let said = stdout(&revoked);
    assert!(
        said.contains(&*module_sha256) && said.contains("it was quarantined, and no longer is"),
        "{said}"
    );
    assert!(said.contains("`enabled = false` under `[tools.mine]`"), "{said}");
    assert_eq!(standing(&world).await, Standing::Unpinned);
    assert!(!lock(&world).contains("tools.mine"));
    let row = world.rows().pop().expect("a row");
    assert_eq!((row.event, &*row.tool), (Event::Revoke, "mine"));
    assert_eq!(row.module_sha256.as_deref(), Some(&*module_sha256), "of what was approved");

    let again = portcullis(&world, &["tool", "revoke", "mine"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("nothing is approved under the name `mine`"), "{}", stderr(&again));
    assert_eq!(world.rows().len(), 2, "what changes nothing leaves no row");
    let listed = stdout(&portcullis(&world, &["audit", "log"]));
    assert!(listed.contains("approves") && listed.contains("revokes"), "{listed}");
    let verified = portcullis(&world, &["audit", "verify"]);
    assert!(stdout(&verified).starts_with("intact: 2 rows"), "{}", stdout(&verified));
}

#[tokio::test]
async fn approval_is_revocable_without_the_module() {
    let world = world(&[("m.wasm", &module("mine"))]);
    drop(world.registry().await);
    approve(&world);
    fs::remove_file(folder(&world).join("m.wasm")).expect("removed");
    let revoked = portcullis(&world, &["tool", "revoke", "mine"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    assert!(stdout(&revoked).contains("no module has a tool of this name now"), "{}", stdout(&revoked));
    assert!(!lock(&world).contains("tools.mine"));
}

#[tokio::test]
async fn an_approval_without_a_row_or_a_lock_fails() {
    let world = world(&[("m.wasm", &module("mine"))]);
    let registry = world.registry().await;
    let approval = registry.approval_of("mine").expect("of a module");
    // A folder cannot be overwritten by the lock.
    let path = world.state().join(LOCK_FILE);
    fs::create_dir(&path).expect("made");
    approval.pin("tester").expect_err("no lock can be written");
    let events: Vec<_> = world.rows().iter().map(|row| (row.event, row.outcome)).collect();
    let failed = Outcome::Error(ToolErrorKind::Failed);
    assert_eq!(events, [(Event::Approve, None), (Event::End, Some(failed))]);
    fs::remove_dir(&path).expect("removed");
    // A truncated log takes no further row.
    fs::write(world.state().join("audit.jsonl"), "").expect("written");
    let error = approval.pin("tester").expect_err("no row can be written");
    assert!(matches!(error, PinError::Unrecorded { .. }), "{error:?}");
    assert!(!path.exists(), "nothing is pinned");
}
