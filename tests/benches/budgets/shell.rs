//! Commands in a live session compared with bare `bash` and `bwrap`, new sessions, output, and an idle
//! session's memory.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, World, approving, binary};
use portcullis_tools::{Caller, ToolRegistry, new_call};
use serde_json::json;

use crate::{
    report::Report,
    sample::{median_us, resident_bytes},
};

const ROUNDS: usize = 200;
const SESSIONS: usize = 15;
const OUTPUT_BYTES: u64 = 100_000_000;
/// Rounds of the same command, with a measurement of the sidecar's memory after each.
const OUTPUT_ROUNDS: usize = 4;

pub(crate) async fn commands(world: &World, report: &mut Report) {
    let registry = world.registry_with_shell().await;
    run(&registry, "true", "default").await;
    live_session(&registry, report).await;
    new_sessions(&registry, report).await;
    output(&registry, report).await;
    idle_session(world, report).await;
}

/// Each round runs all of them in turn, so that all meet the same state of the machine.
#[expect(clippy::disallowed_methods, reason = "the programs that a session is compared with")]
async fn live_session(registry: &ToolRegistry, report: &mut Report) {
    let bwrap = found("bwrap");
    let (mut ours, mut bare, mut wrapped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(run(registry, "true", "default").await);
        bare.push(spawned(Command::new("bash").args(["-c", "true"])));
        if let Some(bwrap) = &bwrap {
            let arguments = ["--unshare-all", "--ro-bind", "/", "/", "bash", "-c", "true"];
            wrapped.push(spawned(Command::new(bwrap).args(arguments)));
        }
    }
    let (ours, bare) = (median_us(&mut ours) / 1000.0, median_us(&mut bare) / 1000.0);
    report.reference("`bash -c true`, p50", bare, "ms");
    report.at_most("shell_exec \"true\" in a live session, p50", ours, bare + 1.5, "ms");
    let what = "the same beside `bwrap --unshare-all … bash -c true`";
    if wrapped.is_empty() {
        report.impossible(what, "bubblewrap (`bwrap`) is not installed");
    } else {
        let wrapped = median_us(&mut wrapped) / 1000.0;
        report.reference("`bwrap --unshare-all … bash -c true`, p50", wrapped, "ms");
        report.at_most(what, ours / wrapped, 2.0 / 3.0, "×");
    }
}

/// The time of making a session: its first command less the second one.
async fn new_sessions(registry: &ToolRegistry, report: &mut Report) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        // Each in another run: a run may have only a few sessions.
        let mut caller = approving();
        caller.run_id = format!("new-{number}");
        first.push(run_as(&caller, registry, "true", "new").await);
        second.push(run_as(&caller, registry, "true", "new").await);
        registry.end_run(&caller);
    }
    let took = (median_us(&mut first) - median_us(&mut second)) / 1000.0;
    report.at_most("a new session in the strongest posture, p50", took, 12.0, "ms");
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
    report.at_least("100 MB of output", rate, 200.0, "MB/s");
    let grown = resident[OUTPUT_ROUNDS - 1].saturating_sub(resident[0]);
    report.at_most("growth of the sidecar meanwhile", grown as f64 / 1e6, 2.0, "MB");
}

/// The private memory of one session's processes.
async fn idle_session(world: &World, report: &mut Report) {
    let registry = world.registry_with_shell().await;
    run(&registry, "true", "one").await;
    let one = private_bytes();
    run(&registry, "true", "two").await;
    let two = private_bytes();
    report.at_most("memory of an idle session", two.saturating_sub(one) as f64 / 1e6, 3.0, "MB");
}

async fn run(registry: &ToolRegistry, command: &str, session: &str) -> Duration {
    run_as(&approving(), registry, command, session).await
}

async fn run_as(caller: &Caller, registry: &ToolRegistry, command: &str, session: &str) -> Duration {
    let arguments = json!({"command": command, "session": session}).to_string();
    let start = Instant::now();
    let answer = CallOutcome(registry.execute_with_policy(new_call("shell_exec", arguments), caller).await);
    let took = start.elapsed();
    assert_eq!(answer.0.details["exit_code"], 0, "{answer:?}");
    took
}

fn spawned(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("starts");
    assert!(status.success());
    start.elapsed()
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The sidecars of this process.
fn sidecars() -> Vec<u32> {
    let program = binary();
    let parent = std::process::id();
    processes()
        .filter(|process| process.parent == parent && is(process.id, &program))
        .map(|it| it.id)
        .collect()
}

/// The private memory of this process and all its descendants, in bytes.
fn private_bytes() -> u64 {
    let all: Vec<Process> = processes().collect();
    let mut below = vec![std::process::id()];
    let mut at = 0;
    while at < below.len() {
        let parent = below[at];
        below.extend(all.iter().filter(|process| process.parent == parent).map(|process| process.id));
        at += 1;
    }
    below[1..].iter().map(|process| private_of(*process)).sum()
}

fn private_of(process: u32) -> u64 {
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

fn is(process: u32, program: &Path) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|running| running == program)
}
