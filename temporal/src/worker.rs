//! [`RunWorker`]: a process that takes steps of runs when Temporal assigns them.

use std::{sync::Arc, time::Duration};

use portcullis_runs::Stepper;
use portcullis_types::CancellationToken;
use temporalio_client::{
    Client, ClientOptions, Connection,
    tonic::{self, Code},
};
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;
use temporalio_sdk::{
    Runtime, Worker, WorkerOptions,
    runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder, WorkerTuner},
};

use crate::{AgentRun, Placement, WorkerError, activities::StepActivities, placement, search_attributes};

/// The maximum number of concurrent activities of a worker. A call that waits for an answer occupies one, but
/// uses few resources. The registry limits the number of concurrent calls.
const MAX_ACTIVITIES: usize = 200;

/// The maximum number of concurrent workflow tasks of a worker.
const MAX_WORKFLOW_TASKS: usize = 50;

/// How long Temporal holds a workflow task for the worker that has the workflow cached. Then any worker takes it and
/// replays the history.
const STICKY: Duration = Duration::from_secs(2);

/// How long activities may continue after the worker was asked to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The settings of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The name of the namespace at the Temporal server.
    pub namespace: String,
    /// The task queue.
    pub task_queue: String,
    /// The tools whose calls other task queues run.
    pub placements: Vec<Placement>,
}

/// A worker for one task queue.
pub struct RunWorker {
    worker: Worker,
    /// The runtime must outlive the worker.
    _runtime: Runtime,
}

impl RunWorker {
    /// Creates a worker. It takes tasks only when it runs.
    ///
    /// # Errors
    /// [`WorkerError`] if the namespace cannot be used, if this worker does not offer a placed tool, or
    /// if the SDK fails.
    pub async fn new(
        connection: Connection,
        settings: WorkerSettings,
        stepper: Arc<Stepper>,
    ) -> Result<Self, WorkerError> {
        let WorkerSettings { namespace, task_queue, placements } = settings;
        ensure_namespace(&connection, &namespace).await?;
        if let Some(unknown) = placements.iter().find(|placement| !stepper.offers(&placement.tool)) {
            return Err(WorkerError::PlacedTool { tool: unknown.tool.clone() });
        }
        let has_search_attributes = search_attributes::prepare(&connection, &namespace).await;
        let runtime = Runtime::from_current_tokio(Default::default());
        let runtime = runtime.map_err(|error| WorkerError::sdk("start the SDK", error))?;
        let client = Client::new(connection, ClientOptions::new(namespace).build());
        let client = client.map_err(|error| WorkerError::sdk("create a client", error))?;
        let steps = StepActivities::new(stepper, placement::by_tool(placements), has_search_attributes);
        let options = WorkerOptions::new(task_queue)
            .register_activities(steps)
            .register_workflow::<AgentRun>()
            .map_err(|error| WorkerError::sdk("register the workflow", error))?
            .tuner(slots())
            .sticky_queue_schedule_to_start_timeout(STICKY)
            .graceful_shutdown_period(GRACE)
            .build();
        let worker = Worker::new(&runtime, client, options);
        let worker = worker.map_err(|error| WorkerError::sdk("start polling", error))?;
        Ok(Self { worker, _runtime: runtime })
    }

    /// Takes tasks until `stop` is cancelled. Then it takes no further task, and those in flight get the
    /// grace period to end. The server gives the others to other workers.
    ///
    /// # Errors
    /// [`WorkerError::Sdk`] if the SDK's worker ends with an error.
    pub async fn run(&mut self, stop: &CancellationToken) -> Result<(), WorkerError> {
        let shut_down = self.worker.shutdown_handle();
        let mut running = std::pin::pin!(self.worker.run());
        let outcome = tokio::select! {
            outcome = &mut running => outcome,
            () = stop.cancelled() => {
                shut_down();
                running.await
            }
        };
        outcome.map_err(|error| WorkerError::sdk("run", error))
    }
}

impl std::fmt::Debug for RunWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunWorker").field("task_queue", &self.worker.task_queue()).finish_non_exhaustive()
    }
}

/// Checks that the namespace exists. The SDK would report it only when the worker runs.
async fn ensure_namespace(connection: &Connection, namespace: &str) -> Result<(), WorkerError> {
    let request = DescribeNamespaceRequest { namespace: namespace.to_owned(), ..Default::default() };
    match connection.workflow_service().describe_namespace(tonic::Request::new(request)).await {
        Ok(_) => Ok(()),
        Err(status)
            if matches!(status.code(), Code::NotFound | Code::PermissionDenied | Code::InvalidArgument) =>
        {
            Err(WorkerError::Namespace { namespace: namespace.to_owned(), source: Box::new(status) })
        }
        Err(status) => Err(WorkerError::sdk("ask for the namespace", status)),
    }
}

fn slots() -> WorkerTuner {
    TunerHolder::builder()
        .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(MAX_WORKFLOW_TASKS))
        .activity_task_slot_supplier(FixedSizeSlotSupplier::new(MAX_ACTIVITIES))
        .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
        .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
        .build()
        .into()
}
