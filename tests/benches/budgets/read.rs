//! `file_read` of 1 KiB: latency compared with `cat` and a native read, and throughput.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use portcullis_testing::Fixture;
use portcullis_tools::{Caller, ToolRegistry, new_call};

use crate::{
    report::{Report, Slowness},
    sample::{median_us, quantile_us},
};

const FILES: usize = 2000;
const FILE_BYTES: usize = 1024;

/// Calls under one agent's name: fewer than the shipped policy's rate, which stays in force.
const CALLS_PER_AGENT: usize = 500;

/// Native reads that measure the machine's speed before and after the load of eight callers.
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
    pub(crate) fn create(fixture: &Fixture) -> Self {
        let contents: Vec<String> = (0..FILES).map(content).collect();
        for (number, content) in contents.iter().enumerate() {
            fixture.put(&format!("bench/{number}.txt"), content);
        }
        Self { folder: fixture.shared("bench"), contents, next_agent: AtomicUsize::new(0) }
    }

    /// Returns the host path of one file.
    fn path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{}.txt", number % FILES))
    }

    /// Reads one file as any program would, compares its content, and returns the time of the read.
    pub(crate) fn read_natively(&self, number: usize) -> Duration {
        let path = self.path(number);
        let start = Instant::now();
        let text = std::fs::read_to_string(&path).expect("readable");
        let elapsed = start.elapsed();
        assert_eq!(text, self.contents[number % FILES]);
        elapsed
    }

    /// Creates a caller with an unused name.
    pub(crate) fn unused_caller(&self) -> Caller {
        let number = self.next_agent.fetch_add(1, Ordering::Relaxed);
        Caller::new(format!("agent-{number}"), "bench")
    }

    /// Reads one file through the whole pipeline and compares its content.
    pub(crate) async fn read(&self, registry: &ToolRegistry, caller: &Caller, number: usize) {
        let number = number % FILES;
        let call = new_call("file_read", format!("{{\"path\":\"/shared/bench/{number}.txt\"}}"));
        let result = registry.execute_with_policy(call, caller).await;
        let output = result.into_result().expect("a result");
        assert_eq!(output.joined_text(), self.contents[number]);
    }
}

fn content(number: usize) -> String {
    format!("file {number}\n").repeat(FILE_BYTES).chars().take(FILE_BYTES).collect()
}

/// Measures the latency of sequential calls.
pub(crate) async fn latency(registry: &ToolRegistry, fixture: &Fixture, files: &Files, report: &mut Report) {
    let mut call_times = Vec::with_capacity(LATENCY_CALLS);
    let mut native_times = Vec::with_capacity(LATENCY_CALLS);
    let mut cat_times = Vec::with_capacity(CAT_SPAWNS);
    for number in 0..1000 {
        files.read(registry, &files.unused_caller(), number).await;
    }
    let first_row = fixture.rows().len();
    let mut caller = files.unused_caller();
    for number in 0..LATENCY_CALLS {
        if number % CALLS_PER_AGENT == 0 {
            caller = files.unused_caller();
        }
        let start = Instant::now();
        files.read(registry, &caller, number).await;
        call_times.push(start.elapsed());
        native_times.push(files.read_natively(number));
        if number % (LATENCY_CALLS / CAT_SPAWNS) == 0 {
            let path = files.path(number);
            let start = Instant::now();
            let output = cat(&path);
            cat_times.push(start.elapsed());
            assert_eq!(output, files.contents[number % FILES].as_bytes());
        }
    }
    let native_times = median_us(&mut native_times);
    let slowness = Slowness::from_native_read(native_times);
    let mut worker_times: Vec<Duration> =
        fixture.rows()[first_row..].iter().filter_map(|row| row.cpu_us).map(Duration::from_micros).collect();
    let p50 = median_us(&mut call_times);
    let cat = median_us(&mut cat_times);
    report.add_reference("native read of 1 KiB, p50", native_times, "µs");
    report.add_reference("`cat` spawned, p50", cat, "µs");
    report.check_at_most_scaled("file_read of 1 KiB, whole pipeline, p50", p50, 90.0, "µs", slowness);
    report.add_reference("file_read of 1 KiB, whole pipeline, p99", quantile_us(&mut call_times, 0.99), "µs");
    report.check_at_most("… as a part of `cat` spawned", p50 / cat, 1.0 / 8.0, "");
    let worker_times = median_us(&mut worker_times);
    report.check_at_most_scaled(
        "… inside the worker (its processor time), p50",
        worker_times,
        30.0,
        "µs",
        slowness,
    );
}

#[expect(clippy::disallowed_methods, reason = "the measure that the budget names")]
fn cat(path: &std::path::Path) -> Vec<u8> {
    Command::new("cat").arg(path).stderr(Stdio::null()).output().expect("cat runs").stdout
}

/// Measures the calls per second of eight concurrent callers.
#[expect(clippy::disallowed_methods, reason = "a benchmark's own tasks, awaited below")]
pub(crate) async fn throughput(registry: &Arc<ToolRegistry>, files: &Arc<Files>, report: &mut Report) {
    let native_before = native_read(registry, files).await;
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (registry, files) = (Arc::clone(registry), Arc::clone(files));
            tokio::spawn(async move {
                let mut number = caller * (FILES / CALLERS);
                let first_number = number;
                while start.elapsed() < THROUGHPUT_TIME {
                    let caller = files.unused_caller();
                    for _ in 0..CALLS_PER_AGENT {
                        files.read(&registry, &caller, number).await;
                        number += 1;
                    }
                }
                number - first_number
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.expect("a caller");
    }
    let per_second = calls as f64 / start.elapsed().as_secs_f64();
    // The lower of the two times sets the stricter budget.
    let native = native_before.min(native_read(registry, files).await);
    report.add_reference("native read of 1 KiB before and after, p50", native, "µs");
    let slowness = Slowness::from_native_read(native);
    report.check_at_least_scaled(
        "file_read throughput, 8 callers",
        per_second,
        30_000.0,
        "calls/s",
        slowness,
    );
}

/// Measures the median of a native read between two calls on an idle machine, in microseconds.
async fn native_read(registry: &ToolRegistry, files: &Files) -> f64 {
    let mut native = Vec::with_capacity(NATIVE_READS);
    let mut caller = files.unused_caller();
    for number in 0..NATIVE_READS {
        if number % CALLS_PER_AGENT == 0 {
            caller = files.unused_caller();
        }
        files.read(registry, &caller, number).await;
        native.push(files.read_natively(number));
    }
    median_us(&mut native)
}
