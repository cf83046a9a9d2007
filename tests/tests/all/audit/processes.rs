//! Several processes on one log, one of them killed. Each process is this test binary, started for a single
//! test that does nothing otherwise.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{self, ChildStdout, Command, Stdio},
};

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::{
    PolicyFiles, RegistryBuilder, ToolRegistry,
    audit::{self, Event, Outcome},
    runtime_builder,
};
use portcullis_types::{RunnerBootstrapEnvelope, SafetyTier, SandboxTier};
use serde_json::json;

use crate::support::{Spy, caller, enabled, raw};

/// The environment variable with the folder of the child's world.
const FOLDER: &str = "PORTCULLIS_TEST_WORLD";

/// Prefix of a child's lines, which tells them from the test harness's output.
const MARK: &str = "child: ";

/// A world that another process owns: dropping this keeps its folders.
pub(super) struct Inherited {
    envelope: RunnerBootstrapEnvelope,
}

/// The world that this process was started for, or `None` in a process that runs all tests.
pub(super) fn inherited_world() -> Option<Inherited> {
    let root = PathBuf::from(env::var_os(FOLDER)?);
    let mut envelope = RunnerBootstrapEnvelope::new(root.join("workspace"), root.join("state"));
    envelope.policy = Some(root.join("policy.toml"));
    Some(Inherited { envelope })
}

impl Inherited {
    /// A registry with this native tool, without the engine.
    pub(super) fn natives(&self, spy: Spy) -> ToolRegistry {
        let files = PolicyFiles::find(&self.envelope).expect("policy files");
        let policy = files.load(SandboxTier::Process).expect("a policy");
        ToolRegistry::builder().policy(policy).state(&self.envelope.state).tool(spy).build().expect("builds")
    }

    /// The host path of something in `shared`.
    pub(super) fn shared(&self, below: &str) -> PathBuf {
        self.envelope.workspace.join("shared").join(below)
    }

    async fn builder(&self) -> RegistryBuilder {
        runtime_builder(&self.envelope).await.expect("bootstraps")
    }

    async fn registry(&self) -> ToolRegistry {
        self.builder().await.build().expect("builds")
    }
}

/// Says something to the parent.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// Limit on the size of the child's files.
#[derive(Clone, Copy)]
pub(super) enum FileLimit {
    None,
    /// 64 blocks of 512 bytes, by the shell's `ulimit`. A write beyond it fails, as on a full disk.
    Small,
}

/// A child process that runs one test.
pub(super) struct Child {
    process: process::Child,
    lines: BufReader<ChildStdout>,
}

impl Child {
    #[expect(clippy::disallowed_methods, reason = "a test about several processes must start some")]
    pub(super) fn start(test: &str, world: &World, limit: FileLimit) -> Self {
        // The test writes the policy once: another child may be reading it now.
        assert!(world.root().join("policy.toml").is_file(), "the test writes the policy first");
        let own = env::current_exe().expect("this binary");
        let mut command = match limit {
            FileLimit::None => Command::new(own),
            FileLimit::Small => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]).arg(own);
                shell
            }
        };
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(FOLDER, world.root()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines }
    }

    /// Waits for a line of the child with this beginning, and returns the rest of the line.
    #[track_caller]
    pub(super) fn line_with(&mut self, beginning: &str) -> String {
        let mut all = String::new();
        loop {
            let from = all.len();
            let read = self.lines.read_line(&mut all).expect("readable");
            assert_ne!(read, 0, "the child ended without saying `{beginning}`: {all}");
            let said = all[from..].strip_prefix(MARK).and_then(|line| line.strip_prefix(beginning));
            if let Some(rest) = said {
                return rest.to_owned();
            }
        }
    }

    /// Waits for the child to end, and asserts success.
    #[track_caller]
    pub(super) fn wait(mut self) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).expect("readable");
        let status = self.process.wait().expect("ends");
        assert!(status.success(), "{status}: {rest}");
    }

    /// Ends the child as `kill -9` does.
    fn kill(mut self) {
        self.process.kill().expect("there");
        self.process.wait().expect("ends");
    }
}

#[tokio::test]
async fn child_that_is_killed() {
    let Some(world) = inherited_world() else { return };
    let spy = Spy::new("deadly", |_, _| async {
        say("begun");
        std::future::pending().await
    });
    let spy = spy.tier(SafetyTier::SideEffecting).timeout(std::time::Duration::from_secs(500));
    let registry = world.builder().await.tool(spy).build().expect("builds");
    let written = CallOutcome::of(&registry, "file_write", json!({"path": "a", "content": "a"})).await;
    written.0.outcome.expect("writes");
    registry.execute_with_policy(raw("deadly", "{}"), &caller()).await.outcome.expect_err("is killed before");
}

#[tokio::test]
async fn a_killed_processs_call_ends_as_unknown_at_the_next_start() {
    let world = World::new().with_policy(&format!("{}optional = true\n", enabled("deadly")));
    assert!(world.policy_file().is_file());
    let mut child = Child::start("audit::processes::child_that_is_killed", &world, FileLimit::None);
    child.line_with("begun");
    let registry = world.registry().await;
    let of_the_child =
        |event| world.rows().iter().filter(|row| &*row.tool == "deadly" && row.event == event).count();
    assert_eq!(
        (of_the_child(Event::Begin), of_the_child(Event::End)),
        (1, 0),
        "it lives, so its call is open"
    );
    child.kill();
    drop(registry);

    drop(world.registry().await);
    let rows = world.rows();
    let seen: Vec<_> = rows.iter().map(|row| (&*row.tool, row.event, row.outcome)).collect();
    assert_eq!(
        seen,
        [
            ("file_write", Event::Begin, None),
            ("file_write", Event::End, Some(Outcome::Ok)),
            ("deadly", Event::Begin, None),
            ("deadly", Event::End, Some(Outcome::Unknown)),
        ]
    );
    assert_eq!(rows[2].call_id, rows[3].call_id);
    assert_eq!(rows[2].process, rows[3].process, "it says whose call it was");
    // Only once.
    drop(world.registry().await);
    assert_eq!(world.rows().len(), 4);
    let report = audit::verify(&audit::log_path(&world.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
}

/// The number of calls of each process.
const CALLS: usize = 40;

#[tokio::test]
async fn child_that_shares_the_log() {
    let Some(world) = inherited_world() else { return };
    let registry = world.registry().await;
    say("ready");
    for number in 0..CALLS {
        let arguments = json!({"path": format!("p{}/{number}", process::id()), "content": "x"});
        CallOutcome::of(&registry, "file_write", arguments).await.0.outcome.expect("writes");
    }
    say("done");
}

#[tokio::test]
async fn processes_that_share_a_log_write_one_chain() {
    let world = World::new();
    let registry = world.registry().await;
    let start = || Child::start("audit::processes::child_that_shares_the_log", &world, FileLimit::None);
    let mut children = [start(), start()];
    for child in &mut children {
        child.line_with("ready");
    }
    for _ in 0..CALLS {
        CallOutcome::of(&registry, "file_list", json!({})).await.0.outcome.expect("lists");
    }
    for mut child in children {
        child.line_with("done");
        child.wait();
    }
    let report = audit::verify(&audit::log_path(&world.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
    let rows = world.rows();
    assert_eq!(rows.len(), CALLS * (2 + 2 + 1));
    let processes: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.process).collect();
    assert_eq!(processes.len(), 3);
    assert!(rows.iter().zip(1..).all(|(row, seq)| row.seq == seq));
}
