//! Workers that are killed at random moments: each run ends once, and each effect happens at most once.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    hash::{BuildHasher as _, RandomState},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use portcullis_types::CancellationToken;
use serde_json::{Value, json};

use crate::{
    scripts::WORK,
    tools::{ALL, notes},
    world::{Handle, QUEUE, World, result, work},
};

/// The variable with the server's address. It marks a process of this program as a worker.
const WORKER: &str = "PORTCULLIS_TEST_WORKER";

/// The variable with the folder of the store.
const FOLDER: &str = "PORTCULLIS_TEST_FOLDER";

/// The number of concurrent runs.
const RUNS: usize = 100;

/// The number of workers that are killed.
const KILLS: usize = 50;

/// The number of workers.
const WORKERS: usize = 2;

/// The words that tell the model that a call may have run.
const UNKNOWN: &str = "whether the call took effect is not known";

/// The process of a worker, which the tests below start and kill. Started by hand, it does nothing.
#[test]
fn worker_process() {
    let (Ok(target), Ok(folder)) = (env::var(WORKER), env::var(FOLDER)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let stop = CancellationToken::new();
    runtime.block_on(work(target, PathBuf::from(folder), QUEUE.to_owned(), &ALL, Vec::new(), &stop));
}

/// A worker in a separate process. Dropping this value kills it.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(world: &World) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this program, as a worker that can be killed")]
        let mut command = Command::new(env::current_exe().expect("a program"));
        command.args(["--exact", "kills::worker_process", "--nocapture"]);
        command.env(WORKER, world.server.target()).env(FOLDER, world.folder());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts"))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Ignore the errors: the process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an unpredictable number below a limit.
fn random(limit: u64) -> u64 {
    RandomState::new().hash_one(Instant::now()) % limit
}

async fn start_runs(world: &World, batch: usize) -> Vec<Handle> {
    let start = |number| world.start_owned(format!("run-{batch}-{number}"), json!({"prompt": WORK}));
    join_all((0..RUNS).map(start)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_end_once_while_workers_are_killed() {
    let Some(world) = World::new().await else { return };
    let began = Instant::now();
    let mut workers: Vec<_> = (0..WORKERS).map(|_| WorkerProcess::start(&world)).collect();
    let mut outcomes = Vec::new();
    let mut kills = 0;
    for batch in 0.. {
        let handles = start_runs(&world, batch).await;
        let mut ending = std::pin::pin!(join_all(handles.iter().map(result)));
        let ended = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                () = tokio::time::sleep(Duration::from_millis(200 + random(1_300))), if kills < KILLS => {
                    let victim = usize::try_from(random(2)).expect("small");
                    workers[victim] = WorkerProcess::start(&world);
                    kills += 1;
                }
            }
        };
        outcomes.extend(ended);
        if kills >= KILLS {
            break;
        }
    }
    drop(workers);
    let elapsed = began.elapsed();
    let (_, here) = world.drive_here(WORK, None).await;
    let expected: Value = serde_json::from_str(&world.export(here.as_str()).await).expect("JSON");
    let effects = count_effects(world.folder());
    let (mut unknown, mut repeated) = (0, 0);
    for outcome in &outcomes {
        assert_eq!(outcome.status, "completed", "{outcome:?}");
        let mut found: Value = serde_json::from_str(&world.export(&outcome.run).await).expect("JSON");
        for ((run, tool, call), count) in effects.iter().filter(|((run, ..), _)| *run == outcome.run) {
            assert!(*count == 1 || tool == "look", "{run} {tool} {call} has had {count} effects");
        }
        let interrupted = (restore_unknown(&mut found, &expected), restore_attempts(&mut found));
        if interrupted != (0, 0) {
            restore_labels(&mut found, &expected);
        }
        (unknown, repeated) = (unknown + interrupted.0, repeated + interrupted.1);
        assert_eq!(found, expected, "{outcome:?}");
    }
    println!(
        "{} runs, {kills} kills of {WORKERS} workers, {elapsed:?}; {unknown} calls unknown, {repeated} calls that read \
         were repeated",
        outcomes.len()
    );
    assert_eq!(kills, KILLS);
}

/// Counts the effects of each call.
fn count_effects(folder: &Path) -> BTreeMap<(String, String, String), usize> {
    let mut effects = BTreeMap::new();
    for note in notes(folder) {
        let parts: Vec<&str> = note.split(' ').collect();
        *effects.entry((parts[0].to_owned(), parts[1].to_owned(), parts[2].to_owned())).or_insert(0) += 1;
    }
    effects
}

/// Replaces unknown results by those of the reference, and returns their number.
fn restore_unknown(found: &mut Value, expected: &Value) -> usize {
    let mut results: HashMap<String, Value> = HashMap::new();
    for message in expected["messages"].as_array().expect("messages") {
        if let Some(call) = message["tool_call_id"].as_str() {
            results.insert(call.to_owned(), message.clone());
        }
    }
    let mut unknown = Vec::new();
    for message in found["messages"].as_array_mut().expect("messages") {
        if message["role"] == "tool" && message.to_string().contains(UNKNOWN) {
            let call = message["tool_call_id"].as_str().expect("a call").to_owned();
            *message = results[&call].clone();
            unknown.push(call);
        }
    }
    let calls = expected["calls"].as_array().expect("calls");
    for call in found["calls"].as_array_mut().expect("calls") {
        if unknown.iter().any(|id| call["id"] == **id) {
            assert_eq!((&call["result"], &call["may_repeat"]), (&Value::Null, &Value::Bool(false)));
            *call = calls.iter().find(|expected| expected["id"] == call["id"]).expect("a call").clone();
        }
    }
    unknown.len()
}

/// Sets the attempts of read-only calls to 1, and returns the number of repetitions.
fn restore_attempts(found: &mut Value) -> usize {
    let mut repeated = 0;
    for call in found["calls"].as_array_mut().expect("calls") {
        if call["may_repeat"] == true && call["attempts"] != 1 {
            call["attempts"] = json!(1);
            repeated += 1;
        }
    }
    repeated
}

/// Replaces the labels of an interrupted run: its calls count as having read everything that they could, as
/// in a single process.
fn restore_labels(found: &mut Value, expected: &Value) {
    found["run"]["labels"] = expected["run"]["labels"].clone();
    found["state"]["labels"] = expected["state"]["labels"].clone();
    for call in found["calls"].as_array_mut().expect("calls") {
        call["labels"] = json!([]);
    }
}
