//! `portcullis gateway`: serves agents that live in spaces.

mod demo;
mod models;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use portcullis_gateway::{Gateway, GatewayParts, Models};
use portcullis_http_server::{Reach, bind};
use portcullis_runs::Runs;
use portcullis_shell_daemon::raise_descriptor_limit;
use portcullis_tools::{audit, confine::bounded};
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope};
use tokio::net::TcpListener;

use super::interrupts::{INTERRUPTED, Interrupts};
use crate::{
    agent_file::AgentFile,
    cli::{CommonOptions, GatewayOptions},
    error::CliError,
    output::stream,
    run_store, setup, sidecar,
};

/// The maximum size of a script with components: 1 MiB.
const MAX_COMPONENTS_BYTES: u64 = 1 << 20;

/// The file of the operator's token in the state folder.
const TOKEN_FILE: &str = "gateway-token";

/// Runs `portcullis gateway`.
pub(crate) fn run(common: &CommonOptions, options: &GatewayOptions) -> Result<ExitCode, CliError> {
    // Each reader of events needs a descriptor.
    raise_descriptor_limit();
    // Change the environment before there are threads.
    let demo = options.demo.then(|| demo::GatewayDemo::set_up(common)).transpose()?;
    let common = demo.as_ref().map_or(common, |demo| &demo.common);
    let envelope = setup::envelope_with(common, options.modules.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Start { source })?;
    let served = runtime.block_on(serve(common, options, &envelope, demo.as_ref()));
    // Do not wait for a native tool that blocks its thread.
    runtime.shutdown_background();
    served
}

async fn serve(
    common: &CommonOptions,
    options: &GatewayOptions,
    envelope: &RunnerBootstrapEnvelope,
    demo: Option<&demo::GatewayDemo>,
) -> Result<ExitCode, CliError> {
    let mut interrupts = Interrupts::listen()?;
    // Detect wrong usage first, before anything is created.
    let listener = bind(options.http, Reach::allowing_remote(options.allow_remote)).await?;
    let components = options.components.as_deref().map(read_components).transpose()?;
    let models: Arc<dyn Models> = match demo {
        Some(_) => Arc::new(demo::DemoModels),
        None => Arc::new(models::RemoteModels::new(&options.model, &AgentFile::read()?, envelope)?),
    };
    let stop = CancellationToken::new();
    let gateway = start(common, options, envelope, (models, components), stop.clone()).await?;
    let address = listener.local_addr().map_err(|source| CliError::Start { source })?;
    match demo {
        Some(demo) => {
            let token = gateway.make_admin_token().await?;
            let entry = demo.populate(&gateway, &token).await?;
            stream::write_stderr(&format!("open http://{address}/#token={entry}\n"));
        }
        None => {
            let file = operator_token(options, envelope, &gateway).await?;
            stream::write_stderr(&format!(
                "serving at http://{address}/\nthe operator's token is in {}\n",
                file.display()
            ));
        }
    }
    Ok(until_stopped(&gateway, listener, &stop, &mut interrupts).await)
}

/// Serves until the first signal. Then waits until all started work has ended, or until the second signal.
async fn until_stopped(
    gateway: &Gateway,
    listener: TcpListener,
    stop: &CancellationToken,
    interrupts: &mut Interrupts,
) -> ExitCode {
    let mut serving = std::pin::pin!(gateway.serve(listener));
    tokio::select! {
        () = &mut serving => return ExitCode::SUCCESS,
        _ = interrupts.next() => stop.cancel(),
    }
    tokio::select! {
        () = serving => ExitCode::SUCCESS,
        _ = interrupts.next() => ExitCode::from(INTERRUPTED),
    }
}

async fn start(
    common: &CommonOptions,
    options: &GatewayOptions,
    envelope: &RunnerBootstrapEnvelope,
    (models, extensions): (Arc<dyn Models>, Option<String>),
    stop: CancellationToken,
) -> Result<Gateway, CliError> {
    let (store, driver) = run_store::open_gateway(&options.store, &envelope.state).await?;
    // The policy may name tools of agents, so read their names before the policy.
    let names = portcullis_gateway::tool_names(&*store).await?;
    let shell = sidecar::shell_source(common);
    let registry = setup::serving_registry_awaiting(envelope, shell, names).await;
    let registry = Arc::new(setup::recording_refusals(envelope, registry)?);
    let parts = GatewayParts {
        runs: Runs::new(Arc::clone(&store) as Arc<_>, driver),
        store,
        registry,
        models,
        workspace: envelope.workspace.to_string_lossy().into_owned(),
        audit_log: audit::log_path(&envelope.state),
        extensions,
    };
    Ok(Gateway::new(parts, stop).await?)
}

fn read_components(path: &std::path::Path) -> Result<String, CliError> {
    let failed = |source| CliError::Components { path: path.to_owned(), source };
    let file = bounded::open_regular(path, bounded::FinalSymlink::Follow).map_err(failed)?;
    bounded::read_text(file, MAX_COMPONENTS_BYTES).map_err(failed)
}

/// Makes the gateway accept the operator's token, and returns the path of its file.
async fn operator_token(
    options: &GatewayOptions,
    envelope: &RunnerBootstrapEnvelope,
    gateway: &Gateway,
) -> Result<PathBuf, CliError> {
    let (token, file) = match &options.token_file {
        Some(file) => (portcullis_mcp::BearerToken::read(file)?, file.clone()),
        None => portcullis_mcp::BearerToken::from_file_of_state(&envelope.state, TOKEN_FILE)?,
    };
    gateway.accept_admin_token(token.reveal()).await?;
    Ok(file)
}
