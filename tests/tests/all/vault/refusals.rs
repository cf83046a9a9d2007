//! Refusals before either step runs, with the rule that refuses.

use std::{fs, os::unix::fs::symlink};

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::{OVERLAY_FILE, approval::ApprovalAnswer};
use portcullis_types::{
    MAX_TRANSFER_BYTES,
    ToolErrorKind::{Denied, Failed, InvalidArguments, NotFound},
};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Vault, call, in_vault, same, with_lines};
use crate::support::{Scripted, asking, caller, snapshot};

/// Asserts that a call is denied before anything runs: one row, which names the rule, and no change.
async fn denied(vault: &Vault, source: &str, destination: &str, code: &str, rule: &str) -> String {
    let before = snapshot(&vault.world.workspace());
    let rows = vault.world.rows().len();
    let said = vault.copy(source, destination).await.refused(Denied, code);
    let rows = &vault.world.rows()[rows..];
    assert_eq!(rows.len(), 1, "{source} → {destination}: {rows:#?}");
    assert_eq!((&*rows[0].tool, rows[0].rule.as_deref()), ("vault_copyto", Some(rule)));
    assert!(rows[0].subjects.iter().any(|subject| &*subject.value == source), "{rows:#?}");
    assert_eq!(snapshot(&vault.world.workspace()), before, "{source} → {destination} changed something");
    said
}

#[tokio::test]
async fn each_path_is_judged_as_its_steps_before_anything_runs() {
    let vault = Vault::new().await;
    vault.world.put("notes.txt", "notes");
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
        let said = denied(&vault, source, destination, code, rule).await;
        assert!(said.contains(source) || said.contains(destination), "{said}");
    }
    // A relative path starts in `/shared`, which the read step does not have.
    vault.copy("key", "copy").await.refused(Denied, "mount_not_granted");
    for (source, destination) in [("", "/shared/x"), ("/vault/key", ""), ("/vault/key", "/shared/\0")] {
        vault.copy(source, destination).await.refused(InvalidArguments, "invalid_arguments");
    }
}

#[tokio::test]
async fn links_and_special_files_are_judged_before_anything_runs() {
    let vault = Vault::new().await;
    fs::write(vault.world.root().join("outside"), "outside").expect("writable");
    fs::create_dir(vault.shared(".git")).expect("a folder");
    for (link, target) in [
        (in_vault(&vault.world, "out"), "../../outside"),
        (in_vault(&vault.world, "passwd"), "/etc/passwd"),
        (in_vault(&vault.world, "to_shared"), "../shared"),
        (vault.shared("to_vault"), "../vault"),
        (vault.shared("git"), ".git"),
    ] {
        symlink(target, link).expect("a link");
    }
    mknodat(CWD, in_vault(&vault.world, "pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    for (source, destination, code, rule) in [
        ("/vault/out", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/passwd", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/to_shared/x", "/shared/x", "link_escapes_mount", "mounts"),
        ("/vault/key", "/shared/to_vault/x", "link_escapes_mount", "mounts"),
        ("/vault/key", "/shared/git/config", "protected_path", "mounts"),
        ("/vault/pipe", "/shared/x", "special_file", "mounts"),
    ] {
        denied(&vault, source, destination, code, rule).await;
    }
}

#[tokio::test]
async fn error_of_a_step_is_reported_and_changes_nothing() {
    let vault = Vault::new().await;
    fs::create_dir(in_vault(&vault.world, "folder")).expect("a folder");
    vault.put_sparse("large", MAX_TRANSFER_BYTES + 1);
    vault.world.put("old", "old");
    symlink("old", vault.shared("link")).expect("a link");
    fs::create_dir(vault.shared("folder")).expect("a folder");
    let before = snapshot(&vault.world.workspace());
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
            "cannot write `/shared/link`: it is a symbolic link: write to what it leads to",
        ),
    ] {
        let answer = vault.copy(source, destination).await;
        assert_eq!((answer.error().kind(), answer.error().message()), (kind, message));
        assert_eq!(snapshot(&vault.world.workspace()), before, "{source} → {destination}");
    }
    // Only the rename detects that the name is too long.
    let long = "x".repeat(300);
    vault.copy("/vault/key", &long).await.refused(Failed, "failed");
    assert_eq!(snapshot(&vault.world.workspace()), before);
    assert!(vault.ends().iter().all(|row| row.outcome.is_some_and(|outcome| outcome.as_str() != "unknown")));
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
    let mut rights = fs::metadata(&folder).expect("there").permissions();
    rights.set_readonly(true);
    fs::set_permissions(&folder, rights).expect("ours");
    vault.copy("/vault/key", "closed/x").await.refused(Denied, "denied");
    vault.has_nothing_temporary();
}

#[tokio::test]
async fn one_question_shows_both_steps_and_a_no_is_for_both() {
    for world in [
        with_lines("vault_copyto", "approval = \"ask\""),
        with_lines("vault_copyto_read", "approval = \"ask\""),
        with_lines("vault_copyto_write", "approval = \"ask\""),
        World::new().with_policy_edit(
            "side_effecting = { profile = \"FileReadWrite\", approval = \"allow\" }",
            "side_effecting = { profile = \"FileReadWrite\", approval = \"ask\" }",
        ),
    ] {
        let vault = Vault::of(world).await;
        let before = snapshot(&vault.world.workspace());
        let approver = Scripted::new(|number, _| match number {
            0 => ApprovalAnswer::Deny { reason: None },
            _ => ApprovalAnswer::Approve,
        });
        let caller = asking(approver.clone());
        let refused = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
        CallOutcome(refused).refused(Denied, "approval_refused");
        let rows = vault.world.rows();
        assert_eq!(rows.len(), 1, "neither step ran: {rows:#?}");
        assert!(rows[0].rule.as_deref().is_some_and(|rule| rule.ends_with(".approval")), "{rows:#?}");
        assert_eq!(snapshot(&vault.world.workspace()), before);

        let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
        result.outcome.expect("approved");
        same(&vault.shared("key"), b"secret");
        let asked = approver.requests();
        assert_eq!(asked.len(), 2, "the steps are not asked about again");
        let request = &asked[0];
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
        assert_eq!(request.binding, asked[1].binding);
        assert_eq!(vault.ends().pop().expect("a row").approval.as_deref(), Some("approved"));
    }
}

#[tokio::test]
async fn arguments_that_an_approver_changed_are_judged_anew() {
    let vault = Vault::with_lines("vault_copyto", "approval = \"ask\"").await;
    let to = |destination: &'static str| {
        Scripted::new(move |number, _| match number {
            0 => ApprovalAnswer::ApproveWith {
                arguments: super::arguments("/vault/key", destination).to_string(),
            },
            _ => ApprovalAnswer::Approve,
        })
    };
    let changed = to("/vault/copy");
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &asking(changed)).await;
    CallOutcome(result).refused(Denied, "mount_not_granted");
    assert_eq!(vault.ends().len(), 1);
    let changed = to("/tmp/other");
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &asking(changed)).await;
    result.outcome.expect("approved");
    same(&vault.world.workspace().join("tmp/other"), b"secret");
    assert!(!vault.shared("key").exists());
}

#[tokio::test]
async fn missing_approver_means_denial() {
    let vault = Vault::with_lines("vault_copyto_write", "approval = \"ask\"").await;
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller()).await;
    CallOutcome(result).refused(Denied, "approval_unavailable");
    assert_eq!(vault.ends().len(), 1);
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
        let world = World::new();
        fs::write(world.workspace().join(OVERLAY_FILE), overlay).expect("writable");
        let vault = Vault::of(world).await;
        vault.copy("/vault/key", "/shared/key").await.refused(Denied, code);
        assert_eq!(vault.ends().len(), 1, "{overlay}");
        assert!(!vault.shared("key").exists());
        let tool = vault.registry.get("vault_copyto").expect("registered");
        let assigned = vault.registry.assignment(&tool);
        assert_eq!(assigned.is_err(), code == "tool_disabled", "{overlay}");
    }
}

#[tokio::test]
async fn a_policy_without_entries_for_the_steps_opens_nothing() {
    let world = World::new()
        .with_policy_edit(&super::policy_line("vault_copyto_read"), "[tools.other]\noptional = true\n")
        .with_policy_edit(&super::policy_line("vault_copyto_write"), "[tools.another]\noptional = true\n");
    let vault = Vault::of(world).await;
    let said = vault.copy("/vault/key", "/shared/key").await.refused(Denied, "mount_not_granted");
    assert!(said.contains("nothing is readable"), "{said}");
    let row = vault.end_of("vault_copyto");
    assert_eq!(row.rule.as_deref(), Some("profiles.Nothing.mounts.vault"));
}
