//! Commands in a live session, compared with bare `bash` and `bwrap`; new sessions; output; and the memory of an idle
//! session.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, Fixture, approving_caller, binary};
use portcullis_tools::{Caller, ToolRegistry, new_call};
use serde_json::json;

use crate::{
    report::Report,
    sample::{median_us, resident_bytes},
};

const ROUNDS: usize = 200;
const SESSIONS: usize = 15;
const OUTPUT_BYTES: u64 = 100_000_000;
/// Rounds of the same command, each followed by a measurement of the sidecar's memory.
const OUTPUT_ROUNDS: usize = 4;

pub(crate) async fn commands(fixture: &Fixture, report: &mut Report) {
    let registry = fixture.registry_with_shell().await;
    run(&registry, "true", "default").await;
    live_session(&registry, report).await;
    new_sessions(&registry, report).await;
    output(&registry, report).await;
    idle_session(fixture, report).await;
}

/// Runs every command once in each round, so that the load of the machine affects all of them equally.
#[expect(clippy::disallowed_methods, reason = "the programs that a session is compared with")]
async fn live_session(registry: &ToolRegistry, report: &mut Report) {
    let bwrap = find_program("bwrap");
    let (mut shell_times, mut bash_times, mut bwrap_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        shell_times.push(run(registry, "true", "default").await);
        bash_times.push(time_program(Command::new("bash").args(["-c", "true"])));
        if let Some(bwrap) = &bwrap {
            let arguments = ["--unshare-all", "--ro-bind", "/", "/", "bash", "-c", "true"];
            bwrap_times.push(time_program(Command::new(bwrap).args(arguments)));
        }
    }
    let (shell_times, bash_times) =
        (median_us(&mut shell_times) / 1000.0, median_us(&mut bash_times) / 1000.0);
    report.add_reference("`bash -c true`, p50", bash_times, "ms");
    report.check_at_most("shell_exec \"true\" in a live session, p50", shell_times, bash_times + 1.5, "ms");
    let what = "the same beside `bwrap --unshare-all … bash -c true`";
    if bwrap_times.is_empty() {
        report.add_unmeasurable(what, "bubblewrap (`bwrap`) is not installed");
    } else {
        let bwrap_times = median_us(&mut bwrap_times) / 1000.0;
        report.add_reference("`bwrap --unshare-all … bash -c true`, p50", bwrap_times, "ms");
        report.check_at_most(what, shell_times / bwrap_times, 2.0 / 3.0, "×");
    }
}

/// Measures the creation of a session: the time of its first command minus the time of the second.
async fn new_sessions(registry: &ToolRegistry, report: &mut Report) {
    let (mut first_times, mut second_times) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        // Each session is in a separate run, because a run may have only a few sessions.
        let mut caller = approving_caller();
        caller.run_id = format!("new-{number}");
        first_times.push(run_as(&caller, registry, "true", "new").await);
        second_times.push(run_as(&caller, registry, "true", "new").await);
        registry.end_run(&caller);
    }
    let making_time = (median_us(&mut first_times) - median_us(&mut second_times)) / 1000.0;
    report.check_at_most("a new session in the strongest posture, p50", making_time, 12.0, "ms");
}

async fn output(registry: &ToolRegistry, report: &mut Report) {
    let command = format!("head -c {OUTPUT_BYTES} /dev/zero");
    let mut samples = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..OUTPUT_ROUNDS {
        samples.push(run(registry, &command, "default").await);
        resident.push(sidecars().into_iter().map(resident_bytes).max().unwrap_or_default());
    }
    let rate = OUTPUT_BYTES as f64 / median_us(&mut samples);
    report.check_at_least("100 MB of output", rate, 200.0, "MB/s");
    let growth_bytes = resident[OUTPUT_ROUNDS - 1].saturating_sub(resident[0]);
    report.check_at_most("growth of the sidecar meanwhile", growth_bytes as f64 / 1e6, 2.0, "MB");
}

/// Measures the private memory of one session's processes.
async fn idle_session(fixture: &Fixture, report: &mut Report) {
    let registry = fixture.registry_with_shell().await;
    run(&registry, "true", "one").await;
    let bytes_of_one = private_bytes();
    run(&registry, "true", "two").await;
    let bytes_of_two = private_bytes();
    report.check_at_most(
        "memory of an idle session",
        bytes_of_two.saturating_sub(bytes_of_one) as f64 / 1e6,
        3.0,
        "MB",
    );
}

async fn run(registry: &ToolRegistry, command: &str, session: &str) -> Duration {
    run_as(&approving_caller(), registry, command, session).await
}

async fn run_as(caller: &Caller, registry: &ToolRegistry, command: &str, session: &str) -> Duration {
    let arguments = json!({"command": command, "session": session}).to_string();
    let start = Instant::now();
    let answer = CallOutcome(registry.execute_with_policy(new_call("shell_exec", arguments), caller).await);
    let took = start.elapsed();
    assert_eq!(answer.0.details["exit_code"], 0, "{answer:?}");
    took
}

fn time_program(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("starts");
    assert!(status.success());
    start.elapsed()
}

fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns the process ids of this process's sidecars.
fn sidecars() -> Vec<u32> {
    let program = binary();
    let parent = std::process::id();
    processes()
        .filter(|process| process.parent == parent && runs_program(process.id, &program))
        .map(|process| process.id)
        .collect()
}

/// Returns the private memory of this process and all its descendants, in bytes.
fn private_bytes() -> u64 {
    let running: Vec<Process> = processes().collect();
    let mut family = vec![std::process::id()];
    let mut index = 0;
    while index < family.len() {
        let parent = family[index];
        family.extend(running.iter().filter(|process| process.parent == parent).map(|process| process.id));
        index += 1;
    }
    family[1..].iter().map(|process| private_bytes_of(*process)).sum()
}

fn private_bytes_of(process: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let kibibytes: u64 = rollup
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum();
    kibibytes * 1024
}

struct Process {
    id: u32,
    parent: u32,
}

fn processes() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc").expect("readable").flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        Some(Process { id, parent })
    })
}

fn runs_program(process: u32, program: &Path) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|running| running == program)
}
