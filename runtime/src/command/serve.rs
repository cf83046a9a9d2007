//! `portcullis serve`: serves the tools to clients of the Model Context Protocol.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use portcullis_http_server::{Reach, bind};
use portcullis_mcp::{BearerToken, HttpAccess, MCP_PATH, McpLimits, McpServer, serve_http, serve_stdio};
use portcullis_tools::approval::ApproveAll;
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::interrupts::{INTERRUPTED, Interrupts};
use crate::{
    cli::{CommonOptions, ServeOptions},
    client_config::{Launch, snippet},
    error::CliError,
    output::stream,
    run_store, setup, sidecar,
};

/// How long unfinished calls may take to write their audit rows at the end.
const UNFINISHED_CALL_GRACE: Duration = Duration::from_secs(1);

pub(crate) fn run(common: &CommonOptions, options: ServeOptions) -> Result<ExitCode, CliError> {
    if let Some(client) = options.print_config {
        let launch = launch(common, &options)?;
        let text = snippet(client, &launch).ok_or(CliError::Unprintable)?;
        stream::write_output(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = setup::runtime()?;
    let served = runtime.block_on(serve(common, options));
    // Leftover calls get this time to write their rows. A native tool that blocks its thread is abandoned.
    runtime.shutdown_timeout(UNFINISHED_CALL_GRACE);
    served
}

/// Serves until the client leaves or a signal arrives. A signal cancels the calls, and the server waits for
/// their end or for a second signal.
///
/// # Cancellation
/// Dropping the future cancels the calls.
async fn serve(common: &CommonOptions, options: ServeOptions) -> Result<ExitCode, CliError> {
    let ServeOptions {
        http,
        token_file,
        allow_remote,
        allow_hosts,
        allow_origins,
        approve,
        modules,
        store,
        ..
    } = options;
    let envelope = setup::envelope_with(common, modules)?;
    // Take over the signals before the start, so that a signal during the start ends it in an orderly way.
    let mut signals = Signals::listen()?;
    // Bind first: a wrong address is wrong usage, and nothing has been created yet.
    let listener = match http {
        Some(address) => Some(bind(address, Reach::allowing_remote(allow_remote)).await?),
        None => None,
    };
    let registry = tokio::select! {
        registry = setup::serving_registry(&envelope, sidecar::shell_source(common)) => {
            Arc::new(setup::recording_refusals(&envelope, registry)?)
        }
        _ = signals.end.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let mut server = McpServer::new(registry, McpLimits::default())?;
    if approve {
        server = server.approver(Arc::new(ApproveAll));
    }
    if let Some(calls) = run_store::client_calls(&store, &envelope).await? {
        server = server.external_calls(calls);
    }
    let stop = CancellationToken::new();
    let serving = async {
        let Some(listener) = listener else { return Ok(serve_stdio(&server, stop.clone()).await?) };
        let failed = |source| CliError::Start { source };
        let address = listener.local_addr().map_err(failed)?;
        let (token, file) = token(token_file, &envelope)?;
        let hosts = allow_hosts.into_iter().chain(host_of_address(address));
        let access = HttpAccess::new(token).hosts(hosts).origins(allow_origins);
        stream::write_stderr(&format!(
            "serving at http://{address}{MCP_PATH}\nthe token is in {}\n",
            file.display()
        ));
        serve_http(&server, listener, access, stop.clone()).await;
        Ok(())
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map(|()| ExitCode::SUCCESS),
        () = signals.reload_on_hangup(async || reload(common, &envelope, &server).await) => stop.cancel(),
    }
    tokio::select! {
        served = &mut serving => served.map(|()| ExitCode::SUCCESS),
        _ = signals.end.next() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Returns the token and the path of its file: the operator's file, or the file in the state folder.
fn token(
    file: Option<PathBuf>,
    envelope: &RunnerBootstrapEnvelope,
) -> Result<(BearerToken, PathBuf), CliError> {
    Ok(match file {
        Some(file) => (BearerToken::read(&file)?, file),
        None => BearerToken::from_state_folder(&envelope.state)?,
    })
}

/// Returns the host name under which clients reach the address. `None` for the unspecified address (all
/// interfaces).
fn host_of_address(address: SocketAddr) -> Option<String> {
    let ip = address.ip();
    (!ip.is_unspecified()).then(|| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() })
}

/// Reloads policy and modules. If they cannot be used, everything stays unchanged. The audit log records the
/// outcome.
async fn reload(common: &CommonOptions, envelope: &RunnerBootstrapEnvelope, server: &McpServer) {
    let before = server.registry();
    let reload_result = async {
        let registry = Arc::new(setup::serving_registry(envelope, sidecar::shell_source(common)).await?);
        server.replace(Arc::clone(&registry))?;
        Ok::<_, CliError>(registry)
    };
    let recorded = match reload_result.await {
        Ok(registry) => {
            stream::write_stderr("policy and modules were reloaded\n");
            registry.record_reload(&before)
        }
        Err(error) => {
            let reason = error.report();
            stream::write_stderr(&format!("policy and modules stay as they were\n{reason}"));
            before.record_refused_reload(&reason)
        }
    };
    // Calls need the log too, and will be refused without it.
    if let Err(source) = recorded {
        stream::write_stderr(&CliError::Audit { source }.report());
    }
}

/// The signals that end a server, and the signal that makes it reload.
struct Signals {
    end: Interrupts,
    hangup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, CliError> {
        let hangup = signal(SignalKind::hangup()).map_err(|source| CliError::Start { source })?;
        Ok(Self { end: Interrupts::listen()?, hangup })
    }

    /// Reloads at each hangup, until a signal requests the end.
    async fn reload_on_hangup(&mut self, reload: impl AsyncFn()) {
        loop {
            tokio::select! {
                _ = self.end.next() => return,
                _ = self.hangup.recv() => {}
            }
            tokio::select! {
                _ = self.end.next() => return,
                // A reload can take long, and must not delay the end.
                () = reload() => {}
            }
        }
    }
}

/// Returns the command that starts this program with the same options. Paths are absolute, so that they are
/// valid in any working directory.
fn launch(common: &CommonOptions, options: &ServeOptions) -> Result<Launch, CliError> {
    let failed = |source| CliError::Start { source };
    let program = std::env::current_exe().map_err(failed)?;
    let absolute = |path: &PathBuf| -> Result<_, CliError> {
        std::path::absolute(path).map(PathBuf::into_os_string).map_err(failed)
    };
    let mut arguments = vec!["serve".into()];
    // A client may start the program in another folder, so name a project that was found here by its file.
    let project = setup::project(common)?.map(|project| project.file);
    let workspace =
        common.workspace.clone().or_else(|| project.is_none().then(|| setup::DEFAULT_WORKSPACE.into()));
    let paths = [
        ("--workspace", workspace.as_ref()),
        ("--policy", common.policy.as_ref().or(project.as_ref())),
        ("--state", common.state.as_ref()),
        ("--shell-token-file", common.shell_token_file.as_ref()),
    ];
    for (name, path) in paths {
        if let Some(path) = path {
            arguments.extend([name.into(), absolute(path)?]);
        }
    }
    for mount in &common.mounts {
        arguments.extend(["--mount".into(), mount.to_string().into()]);
    }
    if common.shell != crate::cli::ShellOption::Own {
        arguments.extend(["--shell".into(), common.shell.to_string().into()]);
    }
    if common.sandbox_tier != portcullis_types::SandboxTier::Process {
        arguments.extend(["--sandbox-tier".into(), common.sandbox_tier.as_str().into()]);
    }
    for file in &options.modules.files {
        arguments.extend(["--module".into(), absolute(file)?]);
    }
    if options.approve {
        arguments.push("--approve".into());
    }
    Ok(Launch { program, arguments })
}
