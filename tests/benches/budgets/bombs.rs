//! How long a neighbour of a command waits for a thread, a file and memory while the command takes as much as
//! it can get, compared with the neighbour's waits alone.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use serde_json::json;

use crate::report::Report;

const ROUNDS: usize = 5;

/// The pause between two rounds of the neighbour.
const PAUSE: Duration = Duration::from_millis(10);

/// The memory that the neighbour allocates in each round.
const ALLOCATED_BYTES: usize = 64 << 20;

/// The maximum permitted wait, in milliseconds. For memory it is added only to the wait, because the kernel has to
/// clear the memory.
const LONGEST_WAIT_MS: f64 = 100.0;

/// Each bomb stops growing by itself at a size that the machine can bear: 4,096 processes, 3 GiB.
const BOMBS: [(&str, &str); 2] = [
    (
        "processes",
        "grow() { if (($1)); then grow $(($1 - 1)) & grow $(($1 - 1)) & fi; while :; do :; done; }; grow 11",
    ),
    ("memory", "head -c 3G /dev/zero | tail -n 1 | wc -c"),
];

/// The longest waits.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    thread: Duration,
    file: Duration,
    memory: Duration,
}

pub(crate) async fn neighbour(fixture: &Fixture, report: &mut Report) {
    let registry = fixture.registry_with_shell().await;
    run(&registry, "true").await;
    let file = fixture.root().join("neighbour");
    let (waits_alone, ()) = measure_neighbour(&file, tokio::time::sleep(Duration::from_secs(2)));
    report.add_reference(
        "64 MiB of memory for a neighbour of no command, longest",
        ms(waits_alone.memory),
        "ms",
    );
    for (what, bomb) in BOMBS {
        let mut waits = Waits::default();
        for _ in 0..ROUNDS {
            let (round_waits, answer) = measure_neighbour(&file, run(&registry, bomb));
            let code = answer.0.outcome.error().map(|error| error.code().to_owned());
            assert!(matches!(code.as_deref(), Some("too_many_processes" | "too_much_memory")), "{answer:?}");
            waits = waits.max_with(round_waits);
        }
        let row_name = |resource: &str| format!("{resource} for a neighbour of a bomb of {what}, longest");
        report.check_at_most(&row_name("a thread"), ms(waits.thread), LONGEST_WAIT_MS, "ms");
        report.check_at_most(&row_name("a file"), ms(waits.file), LONGEST_WAIT_MS, "ms");
        report.check_at_most(
            &row_name("64 MiB of memory"),
            ms(waits.memory),
            ms(waits_alone.memory) + LONGEST_WAIT_MS,
            "ms",
        );
    }
}

impl Waits {
    fn max_with(self, other: Self) -> Self {
        Self {
            thread: self.thread.max(other.thread),
            file: self.file.max(other.file),
            memory: self.memory.max(other.memory),
        }
    }
}

/// Runs a future. Returns the neighbour's waits during the run, and the future's output.
fn measure_neighbour<T>(file: &Path, future: impl Future<Output = T>) -> (Waits, T) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut waits = Waits::default();
            while !is_done.load(Ordering::Relaxed) {
                waits = waits.max_with(Waits {
                    thread: timed(|| std::thread::spawn(|| ()).join().expect("it ends")),
                    file: timed(|| fs::write(file, "text").expect("written")),
                    memory: timed(|| drop(std::hint::black_box(vec![1_u8; ALLOCATED_BYTES]))),
                });
                std::thread::sleep(PAUSE);
            }
            waits
        });
        let output = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future));
        is_done.store(true, Ordering::Relaxed);
        (neighbour.join().expect("it was refused nothing"), output)
    })
}

fn timed(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

async fn run(registry: &ToolRegistry, command: &str) -> CallOutcome {
    CallOutcome::run(registry, "shell_exec", json!({"command": command})).await
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
