//! `portcullis call file_read` as a process of its own.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use portcullis_tests::World;

use crate::{read::Files, report::Report, sample::median_us};

const STARTS: usize = 40;

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

/// The binary, in the benchmark's world.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn command(world: &World, state: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis-test"));
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
