//! Opens the store of runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_runs::{
    ClientCalls, RunDriver, Runs, now,
    store::{self, GatewayStore, RunStore, SqliteOptions, open, open_gateway_sqlite, open_sqlite},
};
use portcullis_tools::{ExternalCalls, state};
use portcullis_types::RunnerBootstrapEnvelope;

use crate::{cli::StoreOptions, error::CliError, tool_file};

/// The variable with the location of the store.
const STORE_VARIABLE: &str = "PORTCULLIS_STORE";

/// The file of the store in the state folder.
const FILE: &str = "runs.db";

/// How long a run is kept after its end: 90 days.
pub(crate) const RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The maximum number of rows that one start removes.
const ROWS_SWEPT_AT_START: u32 = 100;

/// The location of a store.
enum StoreLocation {
    /// The location as the operator names it.
    Named(String),
    /// The file in the state folder.
    State(PathBuf),
}

fn location(options: &StoreOptions, state: &Path) -> StoreLocation {
    let variable = || std::env::var(STORE_VARIABLE).ok().filter(|value| !value.is_empty());
    match options.store.clone().or_else(variable) {
        Some(location) => StoreLocation::Named(location),
        None => StoreLocation::State(state.join(FILE)),
    }
}

/// Opens the store to drive runs, and removes runs that are older than [`RETENTION`]. The file is created if
/// it is missing.
pub(crate) async fn open_to_drive(options: &StoreOptions, state: &Path) -> Result<Runs, CliError> {
    state::prepare(state)?;
    let store = open_location(location(options, state)).await?;
    let sweep = async {
        let now = now();
        store.expire_approvals(now, ROWS_SWEPT_AT_START).await?;
        store.expire_external_calls(now, ROWS_SWEPT_AT_START).await?;
        let retention = i64::try_from(RETENTION.as_millis()).unwrap_or(i64::MAX);
        store.remove_ended_before(now - retention, ROWS_SWEPT_AT_START).await
    };
    // Ignore the error here: a store that cannot be written fails the run's first write, which reports it.
    if let Err(error) = sweep.await {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot remove old runs");
    }
    Ok(Runs::new(store, RunDriver::start(state)?))
}

/// Opens the store of a gateway, whose runs this process drives.
pub(crate) async fn open_gateway(
    options: &StoreOptions,
    state: &Path,
) -> Result<(Arc<dyn GatewayStore>, RunDriver), CliError> {
    state::prepare(state)?;
    let store = match location(options, state) {
        StoreLocation::Named(location) => store::open_gateway(&location).await?,
        StoreLocation::State(file) => open_gateway_sqlite(&file, SqliteOptions::default()).await?,
    };
    Ok((store, RunDriver::start(state)?))
}

/// Stores the external calls of clients that have no agent loop here, if a tool of the command line is
/// external.
pub(crate) async fn client_calls(
    options: &StoreOptions,
    envelope: &RunnerBootstrapEnvelope,
) -> Result<Option<Arc<dyn ExternalCalls>>, CliError> {
    if !tool_file::have_external() {
        return Ok(None);
    }
    let runs = open_to_drive(options, &envelope.state).await?;
    let workspace = envelope.workspace.to_string_lossy().into_owned();
    Ok(Some(Arc::new(ClientCalls::new(runs, workspace))))
}

/// Opens a store to read it, or to answer its questions. Returns `None` if there is no file, because no run
/// was ever stored.
pub(crate) async fn open_existing(
    options: &StoreOptions,
    state: &Path,
) -> Result<Option<Arc<dyn RunStore>>, CliError> {
    let location = location(options, state);
    if let StoreLocation::State(file) = &location
        && !file.exists()
    {
        return Ok(None);
    }
    Ok(Some(open_location(location).await?))
}

async fn open_location(location: StoreLocation) -> Result<Arc<dyn RunStore>, CliError> {
    Ok(match location {
        StoreLocation::Named(location) => open(&location).await?,
        StoreLocation::State(file) => open_sqlite(&file, SqliteOptions::default()).await?,
    })
}
