//! Several processes with one log, one of them killed. Each process is this test binary, started for one test that does
//! nothing in other runs.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{self, ChildStdout, Command, Stdio},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{
    PolicyFiles, RegistryBuilder, ToolRegistry,
    audit::{self, Outcome, RowEvent},
    runtime_builder,
};
use portcullis_types::{RunnerBootstrapEnvelope, SafetyTier, SandboxTier};
use serde_json::json;

use crate::support::{Spy, caller, enabling_entry, raw_call};

/// The environment variable with the folder of the child's fixture.
const FOLDER_VARIABLE: &str = "PORTCULLIS_TEST_WORLD";

/// Prefix of a child's lines, which distinguishes them from the test harness's output.
const LINE_PREFIX: &str = "child: ";

/// A fixture that another process owns: dropping this keeps its folders.
pub(super) struct InheritedFixture {
    envelope: RunnerBootstrapEnvelope,
}

/// Returns the fixture that this process was started for, or `None` in a process that runs all tests.
pub(super) fn inherited_fixture() -> Option<InheritedFixture> {
    let root = PathBuf::from(env::var_os(FOLDER_VARIABLE)?);
    let mut envelope = RunnerBootstrapEnvelope::new(root.join("workspace"), root.join("state"));
    envelope.policy = Some(root.join("policy.toml"));
    Some(InheritedFixture { envelope })
}

impl InheritedFixture {
    /// Creates a registry with this native tool, without the engine.
    pub(super) fn native_registry(&self, spy: Spy) -> ToolRegistry {
        let files = PolicyFiles::find(&self.envelope).expect("policy files");
        let policy = files.load(SandboxTier::Process).expect("a policy");
        ToolRegistry::builder().policy(policy).state(&self.envelope.state).tool(spy).build().expect("builds")
    }

    /// Returns the host path of a file in `shared`.
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

pub(super) fn print_for_parent(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{LINE_PREFIX}{line}").and_then(|()| out.flush()).expect("the parent listens");
}

/// Limit on the size of the child's files.
#[derive(Clone, Copy)]
pub(super) enum FileLimit {
    None,
    /// 64 blocks of 512 bytes, set with the shell's `ulimit`. A write beyond the limit fails, as on a full disk.
    Small,
}

/// A child process that runs one test.
pub(super) struct Child {
    process: process::Child,
    lines: BufReader<ChildStdout>,
}

impl Child {
    #[expect(clippy::disallowed_methods, reason = "a test about several processes must start some")]
    pub(super) fn start(test: &str, fixture: &Fixture, limit: FileLimit) -> Self {
        // The test writes the policy once: another child may be reading it.
        assert!(fixture.root().join("policy.toml").is_file(), "the test writes the policy first");
        let test_binary = env::current_exe().expect("this binary");
        let mut command = match limit {
            FileLimit::None => Command::new(test_binary),
            FileLimit::Small => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]).arg(test_binary);
                shell
            }
        };
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(FOLDER_VARIABLE, fixture.root()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starts");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines }
    }

    /// Waits for a line of the child with this beginning, and returns the rest of the line.
    #[track_caller]
    pub(super) fn wait_for_line(&mut self, beginning: &str) -> String {
        let mut output_text = String::new();
        loop {
            let start = output_text.len();
            let read = self.lines.read_line(&mut output_text).expect("readable");
            assert_ne!(read, 0, "the child ended without saying `{beginning}`: {output_text}");
            let line_rest =
                output_text[start..].strip_prefix(LINE_PREFIX).and_then(|line| line.strip_prefix(beginning));
            if let Some(rest) = line_rest {
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
        self.process.kill().expect("the process lives");
        self.process.wait().expect("ends");
    }
}

#[tokio::test]
async fn child_that_is_killed() {
    let Some(fixture) = inherited_fixture() else { return };
    let spy = Spy::new("deadly", |_, _| async {
        print_for_parent("begun");
        std::future::pending().await
    });
    let spy = spy.tier(SafetyTier::SideEffecting).timeout(std::time::Duration::from_secs(500));
    let registry = fixture.builder().await.tool(spy).build().expect("builds");
    let written = CallOutcome::run(&registry, "file_write", json!({"path": "a", "content": "a"})).await;
    written.0.into_result().expect("writes");
    registry
        .execute_with_policy(raw_call("deadly", "{}"), &caller())
        .await
        .into_result()
        .expect_err("is killed before");
}

#[tokio::test]
async fn a_killed_processs_call_ends_as_unknown_at_the_next_start() {
    let fixture = Fixture::new().with_policy(&format!("{}optional = true\n", enabling_entry("deadly")));
    assert!(fixture.policy_file().is_file());
    let mut child = Child::start("audit::processes::child_that_is_killed", &fixture, FileLimit::None);
    child.wait_for_line("begun");
    let registry = fixture.registry().await;
    let child_row_count =
        |event| fixture.rows().iter().filter(|row| &*row.tool == "deadly" && row.event == event).count();
    assert_eq!(
        (child_row_count(RowEvent::Begin), child_row_count(RowEvent::End)),
        (1, 0),
        "it lives, so its call is open"
    );
    child.kill();
    drop(registry);

    drop(fixture.registry().await);
    let rows = fixture.rows();
    let events: Vec<_> = rows.iter().map(|row| (&*row.tool, row.event, row.outcome)).collect();
    assert_eq!(
        events,
        [
            ("file_write", RowEvent::Begin, None),
            ("file_write", RowEvent::End, Some(Outcome::Ok)),
            ("deadly", RowEvent::Begin, None),
            ("deadly", RowEvent::End, Some(Outcome::Unknown)),
        ]
    );
    assert_eq!(rows[2].call_id, rows[3].call_id);
    assert_eq!(rows[2].process, rows[3].process, "it says whose call it was");
    // The log has the row only once.
    drop(fixture.registry().await);
    assert_eq!(fixture.rows().len(), 4);
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
}

/// The number of calls of each process.
const CALLS: usize = 40;

#[tokio::test]
async fn child_that_shares_the_log() {
    let Some(fixture) = inherited_fixture() else { return };
    let registry = fixture.registry().await;
    print_for_parent("ready");
    for number in 0..CALLS {
        let arguments = json!({"path": format!("p{}/{number}", process::id()), "content": "x"});
        CallOutcome::run(&registry, "file_write", arguments).await.0.into_result().expect("writes");
    }
    print_for_parent("done");
}

#[tokio::test]
async fn processes_that_share_a_log_write_one_chain() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    let start = || Child::start("audit::processes::child_that_shares_the_log", &fixture, FileLimit::None);
    let mut children = [start(), start()];
    for child in &mut children {
        child.wait_for_line("ready");
    }
    for _ in 0..CALLS {
        CallOutcome::run(&registry, "file_list", json!({})).await.0.into_result().expect("lists");
    }
    for mut child in children {
        child.wait_for_line("done");
        child.wait();
    }
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
    let rows = fixture.rows();
    assert_eq!(rows.len(), CALLS * (2 + 2 + 1));
    let processes: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.process).collect();
    assert_eq!(processes.len(), 3);
    assert!(fixture.all_rows().iter().zip(1..).all(|(row, seq)| row.seq == seq));
}
