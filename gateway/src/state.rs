//! [`GatewayState`]: the parts of a gateway that requests and cycles share.

use std::{fmt, sync::Arc, time::Duration};

use portcullis_agent::{Provider, ProviderError};
use portcullis_runs::{ModelIdentity, Runs, now};
use portcullis_store::{Change, ChangeResult, GatewayStore, Json, NewEvent, StoreError};
use portcullis_tools::ToolRegistry;
use portcullis_types::{CancellationToken, async_trait, random_hex};
use serde::Serialize;

use crate::{
    allowance::MessageAllowance, audit_rows::RunAuditRows, cycles::CycleScheduler, hub::EventHub,
    stream_access::StreamAccesses, topic,
};

/// How long a writer waits until readers can have its events.
const EVENT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Chooses the model of an agent.
#[async_trait]
pub trait Models: Send + Sync {
    /// Chooses the provider of an agent's model, and the model's name in rows. `model` is the name in the
    /// agent's definition.
    ///
    /// # Errors
    /// [`ProviderError`], if there is no such model. The cycle then fails with its text.
    async fn choose(&self, agent: &str, model: Option<&str>) -> Result<ChosenModel, ProviderError>;
}

/// The model of an agent.
#[derive(Clone)]
pub struct ChosenModel {
    /// Answers the requests.
    pub provider: Arc<dyn Provider>,
    /// The model's name and address, as rows show them.
    pub identity: ModelIdentity,
}

impl fmt::Debug for ChosenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChosenModel").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The parts of a gateway that requests and cycles share.
pub(crate) struct GatewayState {
    pub(crate) store: Arc<dyn GatewayStore>,
    pub(crate) runs: Runs,
    pub(crate) registry: Arc<ToolRegistry>,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) hub: EventHub,
    pub(crate) cycles: CycleScheduler,
    pub(crate) stream_accesses: StreamAccesses,
    pub(crate) allowance: MessageAllowance,
    /// The folder that the runs work on, as the operator names it.
    pub(crate) workspace: String,
    pub(crate) rows: Arc<RunAuditRows>,
    /// A script with additional components for the page.
    pub(crate) extensions: Option<String>,
    pub(crate) stop: CancellationToken,
}

impl GatewayState {
    /// Makes these changes in one transaction, and waits until readers can have their events.
    ///
    /// # Errors
    /// [`StoreError`]. Then nothing is changed.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<Vec<ChangeResult>, StoreError> {
        let applied = self.store.apply(changes).await?;
        self.show(&applied).await;
        Ok(applied)
    }

    /// Waits until readers can have the events among these changes.
    pub(crate) async fn show(&self, applied: &[ChangeResult]) {
        let written = applied.iter().filter_map(|applied| match applied {
            ChangeResult::Event { id } => Some(*id),
            _ => None,
        });
        let Some(last) = written.max() else { return };
        // Wake the hub, so that it does not wait for its next poll.
        self.hub.notify_written();
        let mut newest = self.hub.newest();
        // The events are stored in any case. A gateway that stops, or whose store does not answer, shows them
        // later.
        tokio::select! {
            _ = newest.wait_for(|newest| *newest >= last) => {}
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(EVENT_DELIVERY_TIMEOUT) => {}
        }
    }
}

/// Returns the change that appends an event with these topics.
///
/// # Errors
/// [`StoreError::Json`] if the data cannot be written as JSON.
pub(crate) fn event(
    kind: &str,
    topics: impl IntoIterator<Item = String>,
    data: &impl Serialize,
) -> Result<Change, StoreError> {
    let topics = topics.into_iter().collect();
    let event = NewEvent { topics, kind: kind.to_owned(), data: Json::of(data)?, created: now() };
    Ok(Change::AppendEvent(event))
}

/// Returns the topics of a run's event. They include the agent's active space.
pub(crate) fn run_topics(agent: &str, run: &str, space: Option<&str>) -> Vec<String> {
    let mut topics = vec![topic::for_agent(agent), topic::for_run(run)];
    topics.extend(space.map(topic::for_space));
    topics
}

/// Creates an id: a prefix and 128 random bits.
///
/// # Errors
/// Fails if the kernel provides no random bytes.
pub(crate) fn new_id(prefix: &str) -> std::io::Result<String> {
    Ok(format!("{prefix}_{}", random_hex::<16>()?))
}
