//! `file_read` of 1 KiB: latency against `cat` and a native read, and throughput.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis_testing::World;
use portcullis_tools::{Caller, ToolRegistry, new_call};

use crate::{
    report::{Report, Slowness},
    sample::{median_us, quantile_us},
};

const FILES: usize = 2000;
const FILE_BYTES: usize = 1024;

/// Calls under one agent's name: below the shipped policy's rate, which stays in force.
const CALLS_PER_AGENT: usize = 500;

/// Native reads that measure the machine's speed, before and after the load of eight callers.
const NATIVE_READS: usize = 2000;

const LATENCY_CALLS: usize = 20_000;
const CAT_SPAWNS: usize = 400;
const CALLERS: usize = 8;
const THROUGHPUT_TIME: Duration = Duration::from_secs(5);

/// Files with different contents.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    contents: Vec<String>,
    next_agent: AtomicUsize,
}

impl Files {
    pub(crate) fn create(world: &World) -> Self {
        let contents: Vec<String> = (0..FILES).map(content).collect();
        for (number, content) in contents.iter().enumerate() {
            world.put(&format!("bench/{number}.txt"), content);
        }
        Self { folder: world.shared("bench"), contents, next_agent: AtomicUsize::new(0) }
    }

    /// The host path of one file.
    fn path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{}.txt", number % FILES))
    }

    /// Reads one file as any program would, compares it, and returns the time of the read.
    pub(crate) fn read_natively(&self, number: usize) -> Duration {
        let path = self.path(number);
        let start = Instant::now();
        let text = std::fs::read_to_string(&path).expect("readable");
        let elapsed = start.elapsed();
        assert_eq!(text, self.contents[number % FILES]);
        elapsed
    }

    /// A caller with an unused name.
    pub(crate) fn fresh_caller(&self) -> Caller {
        let number = self.next_agent.fetch_add(1, Ordering::Relaxed);
        Caller::new(format!("agent-{number}"), "bench")
    }

    /// Reads one file through the whole pipeline and compares it.
    pub(crate) async fn read(&self, registry: &ToolRegistry, caller: &Caller, number: usize) {
        let number = number % FILES;
        let call = new_call("file_read", format!("{{\"path\":\"/shared/bench/{number}.txt\"}}"));
        let result = registry.execute_with_policy(call, caller).await;
        let output = result.outcome.expect("a result");
        assert_eq!(output.joined_text(), self.contents[number]);
    }
}

fn content(number: usize) -> String {
    format!("file {number}\n").repeat(FILE_BYTES).chars().take(FILE_BYTES).collect()
}

/// The latency of sequential calls.
pub(crate) async fn latency(registry: &ToolRegistry, world: &World, files: &Files, report: &mut Report) {
    let mut whole = Vec::with_capacity(LATENCY_CALLS);
    let mut native = Vec::with_capacity(LATENCY_CALLS);
    let mut spawned = Vec::with_capacity(CAT_SPAWNS);
    for number in 0..1000 {
        files.read(registry, &files.fresh_caller(), number).await;
    }
    let first_row = world.rows().len();
    let mut caller = files.fresh_caller();
    for number in 0..LATENCY_CALLS {
        if number % CALLS_PER_AGENT == 0 {
            caller = files.fresh_caller();
        }
        let start = Instant::now();
        files.read(registry, &caller, number).await;
        whole.push(start.elapsed());
        native.push(files.read_natively(number));
        if number % (LATENCY_CALLS / CAT_SPAWNS) == 0 {
            let path = files.path(number);
            let start = Instant::now();
            let output = cat(&path);
            spawned.push(start.elapsed());
            assert_eq!(output, files.contents[number % FILES].as_bytes());
        }
    }
    let native = median_us(&mut native);
    let here = Slowness::of_kernel(native);
    let mut inside: Vec<Duration> =
        world.rows()[first_row..].iter().filter_map(|row| row.cpu_us).map(Duration::from_micros).collect();
    let p50 = median_us(&mut whole);
    let cat = median_us(&mut spawned);
    report.reference("native read of 1 KiB, p50", native, "µs");
    report.reference("`cat` spawned, p50", cat, "µs");
    report.at_most_here("file_read of 1 KiB, whole pipeline, p50", p50, 90.0, "µs", here);
    report.reference("file_read of 1 KiB, whole pipeline, p99", quantile_us(&mut whole, 0.99), "µs");
    report.at_most("… as a part of `cat` spawned", p50 / cat, 1.0 / 8.0, "");
    let inside = median_us(&mut inside);
    report.at_most_here("… inside the worker (its processor time), p50", inside, 30.0, "µs", here);
}

#[expect(clippy::disallowed_methods, reason = "the measure that the budget names")]
fn cat(path: &std::path::Path) -> Vec<u8> {
    Command::new("cat").arg(path).stderr(Stdio::null()).output().expect("cat runs").stdout
}

/// Calls per second of eight concurrent callers.
#[expect(clippy::disallowed_methods, reason = "a benchmark's own tasks, awaited below")]
pub(crate) async fn throughput(registry: &Arc<ToolRegistry>, files: &Arc<Files>, report: &mut Report) {
    let before = native_read(registry, files).await;
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (registry, files) = (Arc::clone(registry), Arc::clone(files));
            tokio::spawn(async move {
                let mut number = caller * (FILES / CALLERS);
                let first = number;
                while start.elapsed() < THROUGHPUT_TIME {
                    let caller = files.fresh_caller();
                    for _ in 0..CALLS_PER_AGENT {
                        files.read(&registry, &caller, number).await;
                        number += 1;
                    }
                }
                number - first
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.expect("a caller");
    }
    let per_second = calls as f64 / start.elapsed().as_secs_f64();
    // The lower of the two times, which sets the stricter budget.
    let native = before.min(native_read(registry, files).await);
    report.reference("native read of 1 KiB before and after, p50", native, "µs");
    let here = Slowness::of_kernel(native);
    report.at_least_here("file_read throughput, 8 callers", per_second, 30_000.0, "calls/s", here);
}

/// The median of a native read between two calls on an idle machine, in microseconds.
async fn native_read(registry: &ToolRegistry, files: &Files) -> f64 {
    let mut native = Vec::with_capacity(NATIVE_READS);
    let mut caller = files.fresh_caller();
    for number in 0..NATIVE_READS {
        if number % CALLS_PER_AGENT == 0 {
            caller = files.fresh_caller();
        }
        files.read(registry, &caller, number).await;
        native.push(files.read_natively(number));
    }
    median_us(&mut native)
}
