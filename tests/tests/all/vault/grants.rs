//! Each step is a separate call with a separate grant, and no other call gets that grant.

use std::collections::BTreeSet;

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{BootstrapError, RegistryError, audit::Row, new_call};
use portcullis_types::{SafetyTier, ToolErrorKind::NotFound};
use serde_json::{Value, json};

use super::{Vault, arguments, assert_content, call};
use crate::{
    hostile::wat_guest::WatGuest,
    support::{Spy, caller, enabling_entry, record_events},
};

fn mounts(row: &Row) -> Vec<String> {
    row.mounts.iter().map(|mount| format!("{}:{}", mount.name, mount.access)).collect()
}

fn subjects(row: &Row) -> Vec<(&str, &str)> {
    row.subjects.iter().map(|subject| (subject.source.as_str(), &*subject.value)).collect()
}

#[tokio::test]
async fn one_operation_leaves_a_separate_row_for_each_grant() {
    let vault = Vault::new().await;
    vault.assert_copied("/vault/key", "/shared/key").await;
    let rows = vault.fixture.rows();
    let row_events: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.tool, row.event.as_str())).collect();
    assert_eq!(row_events[0], ("vault_copyto", "begin"));
    assert_eq!(row_events[4], ("vault_copyto", "end"));
    assert_eq!(
        row_events[1..4],
        [("vault_copyto_write", "begin"), ("vault_copyto_read", "end"), ("vault_copyto_write", "end")],
        "the write step ends only after the read step is on record"
    );
    let operations: BTreeSet<_> = rows.iter().map(|row| row.operation_id.as_deref()).collect();
    assert_eq!(operations.len(), 1, "{operations:?}");
    assert!(operations.first().expect("one").is_some_and(|id| id.starts_with("op_")));
    let calls: BTreeSet<_> = rows.iter().map(|row| &*row.call_id).collect();
    assert_eq!(calls.len(), 3, "each step is a separate call");

    let operation_row = vault.end_row_of("vault_copyto");
    assert_eq!(operation_row.tier, Some(SafetyTier::SideEffecting));
    assert_eq!((operation_row.profile.as_deref(), mounts(&operation_row)), (Some("Nothing"), vec![]));
    assert_eq!(
        subjects(&operation_row),
        [("source_path", "/vault/key"), ("destination_path", "/shared/key")]
    );
    assert!(operation_row.mounts_used.is_empty() && operation_row.module_sha256.is_none());

    let read_row = vault.end_row_of("vault_copyto_read");
    assert_eq!(read_row.tier, Some(SafetyTier::ReadOnly));
    assert_eq!(
        (read_row.profile.as_deref(), mounts(&read_row)),
        (Some("VaultRead"), vec!["vault:read".to_owned()])
    );
    assert_eq!(subjects(&read_row), [("source_path", "/vault/key")]);
    assert_eq!(read_row.mounts_used.iter().map(|name| &**name).collect::<Vec<_>>(), ["vault"]);

    let write_row = vault.end_row_of("vault_copyto_write");
    assert_eq!(write_row.tier, Some(SafetyTier::SideEffecting));
    assert_eq!(write_row.profile.as_deref(), Some("VaultWrite"));
    assert_eq!(mounts(&write_row), ["shared:write", "tmp:write"]);
    assert_eq!(subjects(&write_row), [("destination_path", "/shared/key")]);
    assert_eq!(write_row.mounts_used.iter().map(|name| &**name).collect::<Vec<_>>(), ["shared"]);

    for step in [&read_row, &write_row] {
        assert_eq!((step.agent.as_deref(), step.run_id.as_deref()), (Some("tester"), Some("run")));
        assert!(step.posture.as_deref().is_some_and(|posture| posture.contains("seccomp")), "{step:#?}");
        assert_eq!(step.module_sha256, read_row.module_sha256);
        assert!(step.module_sha256.is_some() && step.policy_digest == operation_row.policy_digest);
    }
}

#[tokio::test]
async fn callers_operation_id_joins_the_steps() {
    let vault = Vault::new().await;
    let mut caller = caller();
    caller.operation_id = Some("op_of_the_caller".to_owned());
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
    result.into_result().expect("copied");
    assert!(vault.fixture.rows().iter().all(|row| row.operation_id.as_deref() == Some("op_of_the_caller")));
    vault.assert_copied("/vault/key", "one").await;
    vault.assert_copied("/vault/key", "two").await;
    let operations: BTreeSet<_> =
        vault.fixture.rows().into_iter().map(|row| row.operation_id.expect("one")).collect();
    assert_eq!(operations.len(), 3, "each copy has one of its own otherwise");
}

#[tokio::test]
async fn the_steps_cannot_be_called_as_tools() {
    let vault = Vault::new().await;
    for (step, arguments) in [
        ("vault_copyto_read", json!({"source_path": "/vault/key"})),
        ("vault_copyto_write", json!({"destination_path": "/shared/x", "temporary": "1"})),
        (
            "vault_copyto_write",
            json!({"destination_path": "/shared/x", "temporary": "1", "action": "clean_up"}),
        ),
    ] {
        assert!(vault.registry.get(step).is_none());
        assert!(vault.registry.tools().iter().all(|tool| tool.descriptor().name.as_str() != step));
        let answer = CallOutcome::run(&vault.registry, step, arguments).await;
        let message = answer.assert_refused(NotFound, "unknown_tool");
        assert!(message.contains("vault_copyto`"), "what can be called is named: {message}");
    }
    let tool = vault.registry.get("vault_copyto").expect("listed");
    let steps: Vec<&str> = tool.steps().iter().map(|step| step.descriptor().name.as_str()).collect();
    assert_eq!(steps, ["vault_copyto_read", "vault_copyto_write"]);
    assert!(tool.descriptor().declared_timeout.is_some_and(|time| time.as_secs() == 30));
}

#[tokio::test]
async fn no_other_tool_gets_the_name_of_a_step() {
    for name in ["vault_copyto_read", "vault_copyto_write", "vault_copyto"] {
        let fixture = Fixture::new().with_policy_edit(&super::policy_line(name), &enabling_entry(name));
        let builder = fixture.builder().await.expect("bootstraps").tool(Spy::repeating(name));
        let error = builder.build().expect_err("taken");
        assert!(matches!(error, BootstrapError::Registry(RegistryError::Taken { .. })), "{error:?}");
    }
    for name in ["vault_copyto_read", "vault-copyto-write", "vau1t_copyto", "vault_copyt0_read"] {
        let error = WatGuest::new(name).try_registry(&Fixture::new()).await.expect_err("taken");
        assert!(
            matches!(
                error,
                BootstrapError::Registry(RegistryError::Taken { .. } | RegistryError::LookAlike { .. })
            ),
            "{name}: {error:?}"
        );
    }
}

#[tokio::test]
async fn the_listener_gets_the_events_of_one_call() {
    let vault = Vault::new().await;
    let mut caller = caller();
    let events = record_events(&mut caller);
    let result = vault.registry.execute_with_policy(call("/vault/key", "key"), &caller).await;
    result.into_result().expect("copied");
    let events = events.lock().expect("not poisoned");
    assert_eq!(*events, ["requested vault_copyto", "started vault_copyto", "finished"]);
}

#[tokio::test]
async fn a_copy_takes_one_place_and_counts_once() {
    let fixture = Fixture::new()
        .with_policy_edit("concurrency = 10", "concurrency = 1")
        .with_policy_edit("calls_per_minute = 600", "calls_per_minute = 2");
    let vault = Vault::with_fixture(fixture).await;
    let (one, other) = tokio::join!(vault.copy("/vault/key", "one"), vault.copy("/vault/key", "other"));
    assert!(one.0.outcome.is_output() && other.0.outcome.is_output(), "{one:?} {other:?}");
    assert_content(&vault.shared("one"), b"secret");
    assert_content(&vault.shared("other"), b"secret");
    let third = vault.copy("/vault/key", "third").await;
    assert_eq!(third.error().code(), "rate_limited");
}

#[tokio::test]
async fn schema_of_the_operation_is_strict() {
    let vault = Vault::new().await;
    for (arguments, message) in [
        (json!({"source_path": "/vault/key"}), "missing required field 'destination_path' in arguments"),
        (json!({"destination_path": "/shared/key"}), "missing required field 'source_path' in arguments"),
    ] {
        let answer = CallOutcome::run(&vault.registry, "vault_copyto", arguments).await;
        assert_eq!(answer.error().message(), message);
    }
    let mut extended_arguments: Value = arguments("/vault/key", "/shared/key");
    extended_arguments["action"] = "clean_up".into();
    let answer = CallOutcome::run(&vault.registry, "vault_copyto", extended_arguments).await;
    assert!(answer.error().message().starts_with("unknown field 'action'"), "{}", answer.error());
    let twice = r#"{"source_path":"/vault/key","destination_path":"/shared/a","destination_path":"/tmp/b"}"#;
    let twice = vault.registry.execute_with_policy(new_call("vault_copyto", twice), &caller()).await;
    assert_eq!(twice.into_result().expect_err("refused").code(), "invalid_arguments");
    assert!(vault.end_rows().iter().all(|row| &*row.tool == "vault_copyto"), "no step was called");
}
