//! Opens the store of runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_runs::{
    ClientCalls, Driver, Runs, now,
    store::{RunStore, SqliteOptions, open, open_sqlite},
};
use portcullis_tools::{ExternalCalls, state};
use portcullis_types::RunnerBootstrapEnvelope;

use crate::{
    cli::{CommonOptions, StoreOptions},
    error::CliError,
};

/// The variable with the place of the store.
const STORE_VARIABLE: &str = "PORTCULLIS_STORE";

/// The file of the store in the state folder.
const FILE: &str = "runs.db";

/// How long a run is kept after its end: 90 days.
pub(crate) const RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How many runs and questions are removed or expired at one start.
const SWEEP: u32 = 100;

/// The place of a store.
enum Place {
    /// As the operator names it.
    Named(String),
    /// The file in the state folder.
    State(PathBuf),
}

fn place(options: &StoreOptions, state: &Path) -> Place {
    let variable = || std::env::var(STORE_VARIABLE).ok().filter(|value| !value.is_empty());
    match options.store.clone().or_else(variable) {
        Some(place) => Place::Named(place),
        None => Place::State(state.join(FILE)),
    }
}

/// Opens the store to drive runs, and removes what is older than [`RETENTION`]. The file is made if there is none.
pub(crate) async fn open_to_drive(options: &StoreOptions, state: &Path) -> Result<Runs, CliError> {
    state::prepare(state)?;
    let store = open_place(place(options, state)).await?;
    let sweep = async {
        let now = now();
        store.expire_approvals(now, SWEEP).await?;
        store.expire_calls(now, SWEEP).await?;
        let retention = i64::try_from(RETENTION.as_millis()).unwrap_or(i64::MAX);
        store.remove_ended_before(now - retention, SWEEP).await
    };
    // A store that takes no writes says so at the first write of the run.
    if let Err(error) = sweep.await {
        tracing::warn!(error = &error as &dyn std::error::Error, "old runs are not removed");
    }
    Ok(Runs::new(store, Driver::start(state)?))
}

/// Keeps the external calls of clients that have no agent loop here, if the command line names external tools.
pub(crate) async fn client_calls(
    common: &CommonOptions,
    options: &StoreOptions,
    envelope: &RunnerBootstrapEnvelope,
) -> Result<Option<Arc<dyn ExternalCalls>>, CliError> {
    if common.tool_files.is_empty() {
        return Ok(None);
    }
    let runs = open_to_drive(options, &envelope.state).await?;
    let workspace = envelope.workspace.to_string_lossy().into_owned();
    Ok(Some(Arc::new(ClientCalls::new(runs, workspace))))
}

/// Opens a store to read it, or to answer its questions. None if there is no file: no run was ever stored.
pub(crate) async fn open_existing(
    options: &StoreOptions,
    state: &Path,
) -> Result<Option<Arc<dyn RunStore>>, CliError> {
    let place = place(options, state);
    if let Place::State(file) = &place
        && !file.exists()
    {
        return Ok(None);
    }
    Ok(Some(open_place(place).await?))
}

async fn open_place(place: Place) -> Result<Arc<dyn RunStore>, CliError> {
    Ok(match place {
        Place::Named(place) => open(&place).await?,
        Place::State(file) => open_sqlite(&file, SqliteOptions::default()).await?,
    })
}
