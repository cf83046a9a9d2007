//! Measures the overhead of a run's step over an empty activity of the same SDK on the same server.
//!
//! Rounds alternate, and the best of each kind counts, because other work on the machine only adds time. The budget is
//! 1 ms for each activity.
#![expect(clippy::print_stdout, reason = "the result is for a person")]
#![expect(dead_code, reason = "the tests use more of the shared modules")]

#[path = "../../runs/tests/all/model.rs"]
mod model;
#[path = "../tests/all/scripts.rs"]
mod scripts;
#[path = "../tests/all/server.rs"]
mod server;
#[path = "../tests/all/tools.rs"]
mod tools;
#[path = "../tests/all/world.rs"]
mod world;

use std::{
    thread::JoinHandle,
    time::{Duration, Instant},
};

use portcullis_temporal::connect;
use temporalio_client::{Client, ClientOptions, WorkflowGetResultOptions, WorkflowStartOptions};
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::{
    ActivityOptions, Runtime, Worker, WorkerOptions, WorkflowContext, WorkflowResult,
    activities::{ActivityContext, ActivityError},
};

use crate::{scripts::IDLE, server::NAMESPACE, world::World};

/// The number of activities of the measured run: its prompt, ten model calls, 90 tool calls, nine turns and
/// its end.
const ACTIVITIES: u32 = 1 + 10 + 90 + 9 + 1;

/// The number of rounds of each kind that are measured.
const ROUNDS: usize = 7;

/// The maximum time that an activity may take beyond an empty one.
const BUDGET: Duration = Duration::from_millis(1);

/// The task queue of the empty activities.
const QUEUE: &str = "empty";

struct Nothing;

#[activities]
impl Nothing {
    #[activity(name = "nothing")]
    async fn nothing(_context: ActivityContext, _input: u32) -> Result<(), ActivityError> {
        Ok(())
    }
}

#[workflow]
#[derive(Debug, Default)]
struct Empty;

#[workflow_methods]
impl Empty {
    #[run]
    async fn run(ctx: &mut WorkflowContext<Self>, activities: u32) -> WorkflowResult<()> {
        for number in 0..activities {
            let options = ActivityOptions::with_start_to_close_timeout(Duration::from_secs(60));
            let options = options.heartbeat_timeout(Duration::from_secs(5)).build();
            ctx.execute_activity(Nothing::nothing, number, options).await?;
        }
        Ok(())
    }
}

/// Starts a worker for the empty activities. It ends with the process.
fn empty_worker(world: &World) -> JoinHandle<()> {
    let address = world.server.address();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let connection = connect(&address).await.expect("connects");
            let client = Client::new(connection, ClientOptions::new(NAMESPACE).build()).expect("a client");
            let runtime = Runtime::from_current_tokio(Default::default()).expect("a runtime of the SDK");
            let options = WorkerOptions::new(QUEUE)
                .register_activities(Nothing)
                .register_workflow::<Empty>()
                .expect("registered")
                .build();
            let mut worker = Worker::new(&runtime, client, options).expect("a worker");
            worker.run().await.expect("works");
        });
    })
}

#[tokio::main]
async fn main() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let _empty = empty_worker(&world);
    let (mut empty, mut runs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let start = Instant::now();
        let options = WorkflowStartOptions::new(QUEUE, format!("empty-{round}")).build();
        let handle = world.client.start_workflow(Empty::run, ACTIVITIES, options).await.expect("starts");
        handle.get_result(WorkflowGetResultOptions::default()).await.expect("ends");
        let of_empty = start.elapsed() / ACTIVITIES;
        let start = Instant::now();
        let (outcome, handle) = world.drive(&format!("run-{round}"), IDLE).await;
        let of_run = start.elapsed() / ACTIVITIES;
        assert_eq!(outcome.status, "completed");
        let count = world.activities(&handle).await.len();
        assert_eq!(u32::try_from(count), Ok(ACTIVITIES));
        println!("round {round}: an empty activity {of_empty:?}, a step {of_run:?}");
        // The first round is a warm-up: it also starts the workers.
        if round > 0 {
            empty.push(of_empty);
            runs.push(of_run);
        }
    }
    let best = |times: &[Duration]| *times.iter().min().expect("rounds");
    let overhead = best(&runs).saturating_sub(best(&empty));
    println!(
        "an empty activity {:?}, a step {:?}: {overhead:?} more, of {BUDGET:?}",
        best(&empty),
        best(&runs)
    );
    assert!(overhead <= BUDGET, "a step takes {overhead:?} more than an empty activity");
    // Exit, because the worker of the empty activities does not end by itself.
    std::process::exit(0);
}
