//! The audit log compared with `sha256sum`, replay, the map of mounts, and the cost of a checkpoint.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis_testing::Fixture;
use portcullis_tools::{
    ExplainedTool, Explainer, PolicyFiles, Replay, ToolRegistry,
    audit::{
        self, AuditLog, CallEnd, Decision, NewRow, Outcome, RowFields, SealingOptions, Subject, SubjectKind,
        SyncMode,
    },
};
use portcullis_types::{FunctionDecl, JsonSchema, SafetyTier, SandboxTier, Tool, ToolError};
use serde_json::json;

use crate::{report::Report, sample::median_us};

/// The rows of the log that is verified: about 150 MB.
const ROWS: usize = 150_000;
/// The tools and mounts of the map.
const TOOLS: usize = 1000;
const MOUNTS: usize = 20;
const REPEATS: usize = 5;

#[expect(clippy::disallowed_methods, reason = "the program that the log is compared with")]
pub(crate) fn log(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(folder.path(), SyncMode::Interval).expect("opens").0;
    let record = NewRow::end(&call(), CallEnd::new(Outcome::Ok));
    for _ in 0..ROWS {
        log.append(&record).expect("appends");
    }
    drop(log);
    let path = audit::log_path(folder.path());

    let ratio = median_of(|| {
        let start = Instant::now();
        assert_eq!(audit::verify(&path).expect("verifies").rows, ROWS as u64);
        let verified = start.elapsed();
        let start = Instant::now();
        let output = Command::new("sha256sum").arg(&path).output().expect("runs");
        assert!(output.status.success());
        verified.as_secs_f64() / start.elapsed().as_secs_f64()
    });
    report.check_at_most("`audit verify` of 150,000 rows, beside sha256sum", ratio, 1.2, "×");

    let fixture = Fixture::new();
    let _written = fixture.policy_file();
    let envelope = fixture.envelope();
    let files = PolicyFiles::find(&envelope).expect("found");
    let policy = files.load(SandboxTier::Process).expect("the shipped policy");
    let rows: Vec<_> = audit::rows(&path).take(50_000).map(|row| row.expect("a row")).collect();
    let rate = median_of(|| {
        let start = Instant::now();
        let mut replay = Replay::new(&policy);
        rows.iter().for_each(|row| replay.add(row, Some(&policy)));
        assert_eq!(replay.into_report().calls, rows.len() as u64);
        50_000.0 / start.elapsed().as_secs_f64()
    });
    report.check_at_least("replay of calls under two policies", rate, 200_000.0, "calls/s");
}

/// Measures how much slower appends are while checkpoints are made.
pub(crate) fn checkpoints(report: &mut Report) {
    let mean_us = |has_checkpoints: bool| {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path(), SyncMode::Interval).expect("opens").0;
        if has_checkpoints {
            let options = SealingOptions { sink: Some(Arc::new(|_| {})), ..SealingOptions::default() };
            log.set_sealing_options(options);
        }
        let record = NewRow::end(&call(), CallEnd::new(Outcome::Ok));
        let mut total = Duration::ZERO;
        for _ in 0..100_000 {
            let start = Instant::now();
            log.append(&record).expect("appends");
            total += start.elapsed();
        }
        total.as_secs_f64() * 1e6 / 100_000.0
    };
    let added = median_of(|| mean_us(true) - mean_us(false));
    report.check_at_most("a row more, while checkpoints are made each 1,000 rows", added, 50.0, "µs");
}

/// Measures the map of many tools in many mounts.
pub(crate) async fn mounts(fixture: &Fixture, report: &mut Report) {
    let names: Vec<String> = (0..MOUNTS).map(|number| format!("m{number}")).collect();
    let mounts: String = names.iter().map(|name| format!("{name} = \"folder-of-{name}\"\n")).collect();
    let grants: Vec<String> = names.iter().map(|name| format!("{name} = \"read\"")).collect();
    let text = format!(
        "version = 1\nhome = \"m0\"\n[mounts]\n{mounts}[profiles.All]\nmounts = {{ {} }}\n[tiers]\nread_only = {{ profile = \"All\", approval = \"allow\" }}\n",
        grants.join(", ")
    );
    let file = fixture.root().join("map.toml");
    std::fs::write(&file, text).expect("writes");
    let mut envelope = fixture.envelope();
    envelope.policy = Some(file);
    let files = PolicyFiles::find(&envelope).expect("found");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let state = tempfile::tempdir().expect("a folder");
    let mut builder = ToolRegistry::builder().policy(policy).state(state.path());
    for number in 0..TOOLS {
        builder = builder.tool(NamedTool(format!("t{number}")));
    }
    let registry = builder.build().expect("builds");
    let tools: Vec<ExplainedTool> = (0..TOOLS)
        .map(|number| ExplainedTool::from(&*registry.get(&format!("t{number}")).expect("registered")))
        .collect();
    let explainer = Explainer::new(&envelope, &files).await.expect("loads");
    let mut samples: Vec<Duration> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(explainer.grants_of(&tools).len(), TOOLS);
            start.elapsed()
        })
        .collect();
    let p50 = median_us(&mut samples) / 1000.0;
    report.check_at_most("the map of 1,000 tools in 20 mounts, p50", p50, 200.0, "ms");
}

/// A tool that has a description and never runs.
struct NamedTool(String);

#[async_trait]
impl Tool for NamedTool {
    fn schema(&self) -> FunctionDecl {
        let parameters = json!({"type": "object", "properties": {}});
        FunctionDecl { name: self.0.clone(), description: None, parameters: JsonSchema::new(parameters) }
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        Ok(String::new())
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }
}

fn call() -> Arc<RowFields> {
    let subject =
        Subject { source: "path".into(), kind: SubjectKind::Path, value: "/shared/src/main.rs".into() };
    Arc::new(RowFields {
        call_id: "call-0123456789abcdef".into(),
        agent: Some("agent".into()),
        tool: "file_read".into(),
        tier: Some(SafetyTier::ReadOnly),
        profile: Some("FileReadOnly".into()),
        subjects: vec![subject],
        decision: Some(Decision::Allow),
        policy_digest: Some("ab".repeat(32).into()),
        posture: Some("landlock(abi=6), seccomp, no_new_privs".into()),
        ..RowFields::default()
    })
}

fn median_of(mut measure: impl FnMut() -> f64) -> f64 {
    let mut samples: Vec<f64> = (0..REPEATS).map(|_| measure()).collect();
    samples.sort_by(f64::total_cmp);
    samples[REPEATS / 2]
}
