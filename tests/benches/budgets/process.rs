//! `portcullis call file_read`, even as the first call in a workspace, and `portcullis demo` as separate processes.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use portcullis_testing::Fixture;

use crate::{read::Files, report::Report, sample::median_us};

const STARTS: usize = 40;
/// Number of new workspaces, each with a state folder that does not exist yet.
const WORKSPACES: usize = 20;
/// Number of demonstrations. Each starts from nothing and compiles the core tools again.
const DEMOS: usize = 3;

pub(crate) fn start(fixture: &Fixture, files: &Files, report: &mut Report) {
    let (mut samples, mut native) = (Vec::with_capacity(STARTS), Vec::with_capacity(STARTS));
    for number in 0..=STARTS {
        let start = Instant::now();
        let output = command(fixture, &fixture.root().join("process-state"))
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
    let mut explanations: Vec<_> = (0..STARTS).map(|number| explanation(fixture, number)).collect();
    let p50 = median_us(&mut explanations) / 1000.0;
    report.check_at_most("`portcullis explain` as a process, p50", p50, 20.0, "ms");
    let native = median_us(&mut native);
    let p50 = median_us(&mut samples) / 1000.0;
    report.add_reference("native read of 1 KiB between starts, p50", native, "µs");
    report.check_at_most("`portcullis call file_read` as a process, p50", p50, 25.0, "ms");
}

/// Measures one run of `explain`.
fn explanation(fixture: &Fixture, number: usize) -> std::time::Duration {
    let start = Instant::now();
    let output = command(fixture, &fixture.root().join("process-state"))
        .args(["explain", "file_read", &format!("/shared/bench/{number}.txt")])
        .output()
        .expect("starts");
    let elapsed = start.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    elapsed
}

/// Measures the first call in a workspace on a machine that has called a core tool before: only the compiled
/// modules exist.
pub(crate) fn first_calls(fixture: &Fixture, report: &mut Report) {
    let (mut samples, folder) = (Vec::with_capacity(WORKSPACES), fixture.root().join("first-calls"));
    for number in 0..=WORKSPACES {
        let workspace = folder.join(number.to_string());
        std::fs::create_dir_all(workspace.join("shared")).expect("a folder");
        std::fs::write(workspace.join("shared/first.txt"), "the first text\n").expect("writable");
        let mut command = program();
        command
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .env("XDG_STATE_HOME", folder.join("state"))
            .arg("--workspace")
            .arg(&workspace)
            .args(["call", "file_read", r#"{"path":"/shared/first.txt"}"#])
            .stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output().expect("starts");
        let elapsed = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.starts_with(b"the first text\n"));
        // The very first call compiles the core tools.
        if number > 0 {
            samples.push(elapsed);
        }
    }
    let p50 = median_us(&mut samples) / 1000.0;
    report.check_at_most("the first `portcullis call file_read` in a workspace, p50", p50, 60.0, "ms");
}

/// Measures the demonstration directly after an installation. It makes a new workspace and a new state
/// folder, so no module is compiled yet.
pub(crate) fn demo(report: &mut Report) {
    let slowest = (0..DEMOS).map(|_| {
        let start = Instant::now();
        let output = program().arg("demo").stdin(Stdio::null()).output().expect("starts");
        let elapsed = start.elapsed().as_secs_f64();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout_text = String::from_utf8_lossy(&output.stdout);
        assert!(
            stdout_text.contains("Done: the notes are in order") && stdout_text.contains("\nintact: "),
            "{stdout_text}"
        );
        elapsed
    });
    let slowest = slowest.fold(0.0, f64::max);
    let what = format!("`portcullis demo`, nothing compiled before, the slowest of {DEMOS}");
    report.check_at_most(&what, slowest, 10.0, "s");
}

/// Creates a command of the binary in the benchmark's fixture.
pub(crate) fn command(fixture: &Fixture, state: &std::path::Path) -> Command {
    let mut command = program();
    command
        .arg("--workspace")
        .arg(fixture.workspace())
        .arg("--state")
        .arg(state)
        .arg("--policy")
        .arg(fixture.policy_file())
        .stdin(Stdio::null());
    command
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_portcullis-test"))
}
