//! `portcullis call file_read` and `portcullis demo` as separate processes.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use portcullis_testing::World;

use crate::{read::Files, report::Report, sample::median_us};

const STARTS: usize = 40;
/// Number of demonstrations. Each begins with nothing and compiles the core tools again.
const DEMOS: usize = 3;

pub(crate) fn start(world: &World, files: &Files, report: &mut Report) {
    let (mut samples, mut native) = (Vec::with_capacity(STARTS), Vec::with_capacity(STARTS));
    for number in 0..=STARTS {
        let start = Instant::now();
        let output = command(world, &world.root().join("process-state"))
            .args(["call", "file_read", &format!("{{\"path\":\"/shared/bench/{number}.txt\"}}")])
            .output()
            .expect("starts");
        let elapsed = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.starts_with(format!("file {number}\n").as_bytes()));
        // The first start fills the module cache.
        if number > 0 {
            samples.push(elapsed);
            native.push(files.read_natively(number));
        }
    }
    let native = median_us(&mut native);
    let p50 = median_us(&mut samples) / 1000.0;
    report.reference("native read of 1 KiB between starts, p50", native, "µs");
    report.at_most("`portcullis call file_read` as a process, p50", p50, 25.0, "ms");
}

/// The demonstration directly after an installation. It makes a new workspace and a new state folder, so that
/// nothing is compiled before.
pub(crate) fn demo(report: &mut Report) {
    let slowest = (0..DEMOS).map(|_| {
        let start = Instant::now();
        let output = program().arg("demo").stdin(Stdio::null()).output().expect("starts");
        let elapsed = start.elapsed().as_secs_f64();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            shown.contains("Done: the notes are in order") && shown.contains("intact: 14 rows"),
            "{shown}"
        );
        elapsed
    });
    let slowest = slowest.fold(0.0, f64::max);
    let what = format!("`portcullis demo`, nothing compiled before, the slowest of {DEMOS}");
    report.at_most(&what, slowest, 10.0, "s");
}

/// The binary, in the benchmark's world.
pub(crate) fn command(world: &World, state: &std::path::Path) -> Command {
    let mut command = program();
    command
        .arg("--workspace")
        .arg(world.workspace())
        .arg("--state")
        .arg(state)
        .arg("--policy")
        .arg(world.policy_file())
        .stdin(Stdio::null());
    command
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_portcullis-test"))
}
