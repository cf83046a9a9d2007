//! Copies that are refused before either step runs, each with the rule that refuses.

use std::{fs, os::unix::fs::symlink};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{OVERLAY_FILE, approval::ApprovalAnswer};
use portcullis_types::{
    MAX_TRANSFER_BYTES,
    ToolErrorKind::{Denied, Failed, InvalidArguments, NotFound},
};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Vault, assert_content, call, fixture_with_lines, vault_path};
use crate::support::{ScriptedApprover, caller, caller_asking, snapshot};

/// Asserts that a call is denied before anything runs: one row, which names the rule, and no change.
async fn assert_denied(vault: &Vault, source: &str, destination: &str, code: &str, rule: &str) -> String {
    let before = snapshot(&vault.fixture.workspace());
    let rows = vault.fixture.rows().len();
    let message = vault.copy(source, destination).await.assert_refused(Denied, code);
    let rows = &vault.fixture.rows()[rows..];
    assert_eq!(rows.len(), 1, "{source} → {destination}: {rows:#?}");
    assert_eq!((&*rows[0].tool, rows[0].rule.as_deref()), ("vault_copyto", Some(rule)));
    assert!(rows[0].subjects.iter().any(|subject| &*subject.value == source), "{rows:#?}");
    assert_eq!(snapshot(&vault.fixture.workspace()), before, "{source} → {destination} changed something");
    message
}

#[tokio::test]
async fn each_path_is_judged_as_its_steps_before_anything_runs() {
    let vault = Vault::new().await;
    vault.fixture.put("notes.txt", "notes");
    for (source, destination, code, rule) in [
        ("/vault/key", "/vault/copy", "mount_not_granted", "profiles.VaultWrite.mounts.vault"),
        ("/shared/notes.txt", "/shared/copy", "mount_not_granted", "profiles.VaultRead.mounts.shared"),
        ("/tmp/x", "/tmp/y", "mount_not_granted", "profiles.VaultRead.mounts.tmp"),
        ("/vault/../shared/notes.txt", "/tmp/y", "path_escapes_mount", "mounts"),
        ("/vault/key", "/shared/../vault/copy", "path_escapes_mount", "mounts"),
        ("/etc/passwd", "/shared/x", "unknown_mount", "mounts"),
        ("/vault/key", "/etc/x", "unknown_mount", "mounts"),
        ("/vault/key", "/shared/.git/hooks/x", "protected_path", "protect.paths[\".git/hooks\"]"),
        ("/vault/key", "/shared/a/.BASHRC", "protected_path", "protect.paths[\".bashrc\"]"),
    ] {
        let message = assert_denied(&vault, source, destination, code, rule).await;
        assert!(message.contains(source) || message.contains(destination), "{message}");
    }
    // A relative path starts in `/shared`, which the read step does not have.
    vault.copy("key", "copy").await.assert_refused(Denied, "mount_not_granted");
    for (source, destination) in [("", "/shared/x"), ("/vault/key", ""), ("/vault/key", "/shared/\0")] {
        vault.copy(source, destination).await.assert_refused(InvalidArguments, "invalid_arguments");
    }
}

#[tokio::test]
async fn links_and_special_files_are_judged_before_anything_runs() {
    let vault = Vault::new().await;
    fs::write(vault.fixture.root().join("outside"), "outside").expect("writable");
    fs::create_dir(vault.shared(".git")).expect("a folder");
    for (link, target) in [
        (vault_path(&vault.fixture, "out"), "../../outside"),
        (vault_path(&vault.fixture, "passwd"), "/etc/passwd"),
        (vault_path(&vault.fixture, "to_shared"), "../shared"),
        (vault.shared("to_vault"), "../vault"),
        (vault.shared("git"), ".git"),
    ] {
        symlink(target, link).expect("a link");
    }
    mknodat(CWD, vault_path(&vault.fixture, "pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .expect("a pipe");
    for (source, destination, code, rule) in [
        ("/vault/out", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/passwd", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/to_shared/x", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/key", "/shared/to_vault/x", "link_escapes_mount", "mounts"),
        ("/vault/key", "/shared/git/config", "protected_path", "mounts"),
        ("/vault/pipe", "/shared/x", "special_file", "mounts"),
    ] {
        assert_denied(&vault, source, destination, code, rule).await;
    }
}

#[tokio::test]
async fn error_of_a_step_is_reported_and_changes_nothing() {
    let vault = Vault::new().await;
    fs::create_dir(vault_path(&vault.fixture, "folder")).expect("a folder");
    vault.put_sparse("large", MAX_TRANSFER_BYTES + 1);
    vault.fixture.put("old", "old");
    symlink("old", vault.shared("link")).expect("a link");
    fs::create_dir(vault.shared("folder")).expect("a folder");
    let before = snapshot(&vault.fixture.workspace());
    for (source, destination, kind, message) in [
        ("/vault/none", "/shared/new/x", NotFound, "no such file `/vault/none`"),
        ("/vault/folder", "old", Failed, "`/vault/folder` is a directory: only a file can be copied"),
        (
            "/vault/large",
            "old",
            Failed,
            "`/vault/large` has more than 268435456 bytes, which is the most that is copied",
        ),
        ("/vault/key", "folder", Failed, "cannot write `/shared/folder`: it is a directory"),
        ("/vault/key", "/shared", Failed, "cannot write `/shared`: it is a directory"),
        ("/vault/key", "old/x", Failed, "cannot write `/shared/old/x`: a part of it is a file"),
        (
            "/vault/key",
            "link",
            Failed,
            "cannot write `/shared/link`: it is a symbolic link: write to its target",
        ),
    ] {
        let answer = vault.copy(source, destination).await;
        assert_eq!((answer.error().kind(), answer.error().message()), (kind, message));
        assert_eq!(snapshot(&vault.fixture.workspace()), before, "{source} → {destination}");
    }
    // Only the rename detects that the name is too long.
    let long = "x".repeat(300);
    vault.copy("/vault/key", &long).await.assert_refused(Failed, "failed");
    assert_eq!(snapshot(&vault.fixture.workspace()), before);
    assert!(
        vault.end_rows().iter().all(|row| row.outcome.is_some_and(|outcome| outcome.as_str() != "unknown"))
    );
}

#[tokio::test]
async fn a_read_only_folder_is_an_error_of_the_write_step() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root writes everywhere");
        return;
    }
    let vault = Vault::new().await;
    let folder = vault.shared("closed");
    fs::create_dir(&folder).expect("a folder");
    let mut rights = fs::metadata(&folder).expect("the path exists").permissions();
    rights.set_readonly(true);
    fs::set_permissions(&folder, rights).expect("the permissions can be set");
    vault.copy("/vault/key", "closed/x").await.assert_refused(Denied, "denied");
    vault.assert_no_temporary_file();
}

#[tokio::test]
async fn one_question_shows_both_steps_and_a_no_is_for_both() {
    for fixture in [
        fixture_with_lines("vault_copyto", "approval = \"ask\""),
        fixture_with_lines("vault_copyto_read", "approval = \"ask\""),
        fixture_with_lines("vault_copyto_write", "approval = \"ask\""),
        Fixture::new().with_policy_edit(
            "side_effecting = { profile = \"FileReadWrite\", approval = \"allow\" }",
            "side_effecting = { profile = \"FileReadWrite\", approval = \"ask\" }",
        ),
    ] {
        let vault = Vault::with_fixture(fixture).await;
        let before = snapshot(&vault.fixture.workspace());
        let approver = ScriptedApprover::new(|number, _| match number {
            0 => ApprovalAnswer::Deny { reason: None },
            _ => ApprovalAnswer::Approve,
        });
        let caller = caller_asking(approver.clone());
        let refused = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
        CallOutcome(refused).assert_refused(Denied, "approval_refused");
        let rows = vault.fixture.rows();
        assert_eq!(rows.len(), 1, "neither step ran: {rows:#?}");
        assert!(rows[0].rule.as_deref().is_some_and(|rule| rule.ends_with(".approval")), "{rows:#?}");
        assert_eq!(snapshot(&vault.fixture.workspace()), before);

        let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
        result.into_result().expect("approved");
        assert_content(&vault.shared("key"), b"secret");
        let requests = approver.requests();
        assert_eq!(requests.len(), 2, "the steps are not asked about again");
        let request = &requests[0];
        assert_eq!((&*request.tool, request.unconfined), ("vault_copyto", false));
        assert!(request.grant.mounts.is_empty());
        let steps: Vec<_> = request
            .steps
            .iter()
            .map(|step| {
                let mounts = step.grant.mounts.iter().map(|mount| format!("{}:{}", mount.name, mount.access));
                (step.step.as_str(), step.grant.profile.as_str(), mounts.collect::<Vec<_>>().join(","))
            })
            .collect();
        assert_eq!(
            steps,
            [
                ("vault_copyto_read", "VaultRead", "vault:read".to_owned()),
                ("vault_copyto_write", "VaultWrite", "shared:write,tmp:write".to_owned()),
            ]
        );
        assert!(request.steps.iter().all(|step| step.grant.subjects.len() == 1));
        assert_eq!(request.binding, requests[1].binding);
        assert_eq!(vault.end_rows().pop().expect("a row").approval.as_deref(), Some("approved"));
    }
}

#[tokio::test]
async fn arguments_changed_by_an_approver_are_judged_again() {
    let vault = Vault::with_lines("vault_copyto", "approval = \"ask\"").await;
    let approver_redirecting_to = |destination: &'static str| {
        ScriptedApprover::new(move |number, _| match number {
            0 => ApprovalAnswer::ApproveWith {
                arguments: super::arguments("/vault/key", destination).to_string(),
            },
            _ => ApprovalAnswer::Approve,
        })
    };
    let changed = approver_redirecting_to("/vault/copy");
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller_asking(changed)).await;
    CallOutcome(result).assert_refused(Denied, "mount_not_granted");
    assert_eq!(vault.end_rows().len(), 1);
    let changed = approver_redirecting_to("/tmp/other");
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller_asking(changed)).await;
    result.into_result().expect("approved");
    assert_content(&vault.fixture.workspace().join("tmp/other"), b"secret");
    assert!(!vault.shared("key").exists());
}

#[tokio::test]
async fn missing_approver_means_denial() {
    let vault = Vault::with_lines("vault_copyto_write", "approval = \"ask\"").await;
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller()).await;
    CallOutcome(result).assert_refused(Denied, "approval_unavailable");
    assert_eq!(vault.end_rows().len(), 1);
}

#[tokio::test]
async fn an_overlay_takes_the_operation_or_one_of_its_steps_away() {
    for (overlay, code) in [
        ("[tools.vault_copyto]\nenabled = false", "tool_disabled"),
        ("[tools.vault_copyto_read]\nenabled = false", "tool_disabled"),
        ("[tools.vault_copyto_write]\nenabled = false", "tool_disabled"),
        ("[tools.vault_copyto]\napproval = \"deny\"", "approval_denied"),
        ("[tools.vault_copyto_read]\napproval = \"deny\"", "approval_denied"),
        ("[profiles.VaultRead]\nmounts = { vault = \"none\" }", "mount_not_granted"),
        ("[profiles.VaultWrite]\nmounts = { shared = \"read\" }", "mount_read_only"),
    ] {
        let fixture = Fixture::new();
        fs::write(fixture.workspace().join(OVERLAY_FILE), overlay).expect("writable");
        let vault = Vault::with_fixture(fixture).await;
        vault.copy("/vault/key", "/shared/key").await.assert_refused(Denied, code);
        assert_eq!(vault.end_rows().len(), 1, "{overlay}");
        assert!(!vault.shared("key").exists());
        let tool = vault.registry.get("vault_copyto").expect("registered");
        let assigned = vault.registry.assignment(&tool);
        assert_eq!(assigned.is_err(), code == "tool_disabled", "{overlay}");
    }
}

#[tokio::test]
async fn a_policy_without_entries_for_the_steps_opens_nothing() {
    let fixture = Fixture::new()
        .with_policy_edit(&super::policy_line("vault_copyto_read"), "[tools.other]\noptional = true\n")
        .with_policy_edit(&super::policy_line("vault_copyto_write"), "[tools.another]\noptional = true\n");
    let vault = Vault::with_fixture(fixture).await;
    let message = vault.copy("/vault/key", "/shared/key").await.assert_refused(Denied, "mount_not_granted");
    assert!(message.contains("nothing is readable"), "{message}");
    let row = vault.end_row_of("vault_copyto");
    assert_eq!(row.rule.as_deref(), Some("profiles.Nothing.mounts.vault"));
}
