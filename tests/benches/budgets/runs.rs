//! The cost of storing a run: for each step of a loop, for resuming a long run, and the memory of waiting
//! runs.
//!
//! The same loop runs over a conversation in memory and over a store, in alternating rounds.

#[expect(clippy::print_stdout, reason = "a server that is skipped says so")]
#[expect(dead_code, reason = "the tests of the store use more of the server")]
#[path = "../../../store/tests/all/postgres_server.rs"]
mod postgres_server;

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use portcullis_agent::{
    AgentConfig, AgentLoop, Delta, DeltaStream, InMemoryMessageStore, MessageStore as _, ModelRequest,
    Provider, ProviderError, StopReason, ToolCallDelta,
};
use portcullis_runs::{
    Continuation, DrivenRun, RunDriver, RunId, RunSubject, Runs, StoredExecutor,
    store::{SqliteOptions, open, open_sqlite},
};
use portcullis_testing::Fixture;
use portcullis_tools::{CallStartListener, Caller, RegistryExecutor, ToolRegistry};
use portcullis_types::{Message, MessageRole, async_trait};

use crate::{
    report::{Report, Slowness},
    sample::{median_us, resident_bytes},
};

/// Turns with one call each.
const TURNS: usize = 100;
const ROUNDS: usize = 9;
/// Each turn is two steps.
const LONG_TURNS: usize = 500;
const WAITING_RUNS: usize = 1_000;
/// Syncs in each round.
const SYNCS: usize = 20;

pub(crate) async fn storing(report: &mut Report) {
    let fixture = Fixture::new();
    let registry = Arc::new(fixture.registry().await);
    let runs = runs(&fixture).await;
    let (mut in_memory, mut stored, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        syncs.extend(sync_times(&fixture.state()));
        in_memory.push(time_in_memory(&registry).await);
        stored.push(time_stored(&runs, &registry, TURNS).await.0);
    }
    let steps = (2 * TURNS + 3) as f64;
    let (in_memory, stored) = (median_us(&mut in_memory) / steps, median_us(&mut stored) / steps);
    report.add_reference("a step of a loop in memory, p50", in_memory, "µs");
    report.add_reference("… stored in SQLite, p50", stored, "µs");
    let sync = median_us(&mut syncs);
    report.add_reference("a sync of 4 KiB on the same disk, p50", sync, "µs");
    let slowness = Slowness::from_sync_time(sync);
    report.check_at_most_scaled("… what storing adds", stored - in_memory, 300.0, "µs", slowness);
    storing_in_postgresql(&fixture, &registry, in_memory, report).await;

    let (_, subject) = time_stored(&runs, &registry, LONG_TURNS).await;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let next = Continuation::Prompt(Message::user("And now?"));
        let run = drive(&runs, &subject, next, &registry).await;
        let messages = run.load().await.expect("loaded");
        times.push(start.elapsed());
        assert!(messages.len() > 2 * LONG_TURNS, "{}", messages.len());
        runs.cancel(&subject.id).await.expect("cancelled");
    }
    report.check_at_most("resuming a run of 1 000 steps, p50", median_us(&mut times) / 1000.0, 100.0, "ms");
    waiting(&runs, &registry, report).await;
}

/// Measures a step that is stored in PostgreSQL, over a socket and with syncs, compared with a step in
/// memory. Without PostgreSQL there is no row.
async fn storing_in_postgresql(
    fixture: &Fixture,
    registry: &Arc<ToolRegistry>,
    in_memory: f64,
    report: &mut Report,
) {
    let Some(server) = postgres_server::Server::start_with(|_| "-c fsync=on".to_owned()) else { return };
    let store = open(&server.new_database().await).await.expect("a store");
    let process = RunDriver::start(&fixture.state()).expect("starts");
    let runs = Runs::new(store, process);
    let (mut stored, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        syncs.extend(sync_times(&fixture.state()));
        stored.push(time_stored(&runs, registry, TURNS).await.0);
    }
    let added = (median_us(&mut stored) / (2 * TURNS + 3) as f64 - in_memory) / 1000.0;
    let slowness = Slowness::from_sync_time(median_us(&mut syncs));
    report.check_at_most_scaled("… in PostgreSQL over a socket", added, 2.0, "ms", slowness);
}

/// Measures syncs of 4 KiB each, in a file of this folder.
pub(crate) fn sync_times(folder: &Path) -> Vec<Duration> {
    let file = folder.join("synced");
    let mut synced = File::create(&file).expect("a file");
    let times = (0..SYNCS).map(|_| {
        synced.write_all(&[1; 4096]).expect("written");
        let start = Instant::now();
        synced.sync_data().expect("synced");
        start.elapsed()
    });
    let times = times.collect();
    fs::remove_file(file).expect("removed");
    times
}

async fn waiting(runs: &Runs, registry: &Arc<ToolRegistry>, report: &mut Report) {
    let before = resident_bytes(std::process::id());
    let mut waiting = Vec::with_capacity(WAITING_RUNS);
    for _ in 0..WAITING_RUNS {
        let subject = add(runs).await;
        waiting.push(drive(runs, &subject, Continuation::Resume, registry).await);
    }
    let added = resident_bytes(std::process::id()).saturating_sub(before) as f64 / 1e6;
    assert_eq!(waiting.len(), WAITING_RUNS);
    report.check_at_most("memory of 1 000 runs that wait", added, 50.0, "MB");
}

/// A model that calls `add` in each turn, until it has done so often enough.
struct Repeating(usize);

#[async_trait]
impl Provider for Repeating {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let answers = request.messages.iter().filter(|message| message.role == MessageRole::Assistant);
        let turn = answers.count();
        let deltas = if turn < self.0 {
            let call = ToolCallDelta {
                index: 0,
                id: Some(format!("call-{turn}")),
                name: Some("add".to_owned()),
                arguments: Some(format!("{{\"a\":{turn},\"b\":1}}")),
            };
            vec![Delta::ToolCall(call), Delta::End(StopReason::ToolCalls)]
        } else {
            vec![Delta::Text("Done.".to_owned()), Delta::End(StopReason::Stop)]
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

fn config(run: &str, turns: usize) -> AgentConfig {
    let mut config = AgentConfig::new("agent");
    config.run_id = Some(run.to_owned());
    config.max_iterations =
        u32::try_from(turns + 1).ok().and_then(std::num::NonZeroU32::new).expect("few turns");
    config
}

async fn time_in_memory(registry: &Arc<ToolRegistry>) -> Duration {
    let executor = RegistryExecutor::new(Arc::clone(registry), Caller::new("agent", "memory"));
    let store = InMemoryMessageStore::new();
    let mut agent = AgentLoop::new(config("memory", TURNS), (), store, Repeating(TURNS), executor);
    let start = Instant::now();
    let run = agent.run("Add.").await;
    assert_eq!(run.answer(), Some("Done."), "{:?}", run.end);
    start.elapsed()
}

async fn time_stored(runs: &Runs, registry: &Arc<ToolRegistry>, turns: usize) -> (Duration, RunSubject) {
    let start = Instant::now();
    let subject = add(runs).await;
    let run = drive(runs, &subject, Continuation::Resume, registry).await;
    let mut template = Caller::new("agent", subject.id.as_str());
    template.start_listener = Some(Arc::clone(&run) as Arc<dyn CallStartListener>);
    let executor = RegistryExecutor::new(Arc::clone(registry), template).with_continued_run();
    let executor = StoredExecutor::new(executor, Arc::clone(&run));
    let config = config(subject.id.as_str(), turns);
    let mut agent = AgentLoop::new(config, (), Arc::clone(&run), Repeating(turns), executor);
    let state = run.take_resume_point(&agent.handle()).expect("the resume point is taken once");
    let ended = agent.resume(state).await;
    assert_eq!(ended.answer(), Some("Done."), "{:?}", ended.end);
    (start.elapsed(), subject)
}

async fn runs(fixture: &Fixture) -> Runs {
    let file = fixture.state().join("runs.db");
    let store = open_sqlite(&file, SqliteOptions::default()).await.expect("a store");
    Runs::new(store, RunDriver::start(&fixture.state()).expect("starts"))
}

async fn add(runs: &Runs) -> RunSubject {
    let id = RunId::random().expect("random bytes");
    let subject = RunSubject { id, agent: "agent".to_owned(), workspace: "/work".to_owned() };
    runs.add(subject.clone(), Message::user("Add.")).await.expect("added");
    subject
}

async fn drive(
    runs: &Runs,
    subject: &RunSubject,
    next: Continuation,
    registry: &Arc<ToolRegistry>,
) -> Arc<DrivenRun> {
    let caller = Caller::new("agent", subject.id.as_str());
    runs.drive(subject, next, Arc::clone(registry), caller).await.expect("driven")
}
