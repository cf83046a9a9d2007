//! The examples that review a changed policy, in a real repository.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::binary;
use portcullis_tools::policy::DEFAULT_POLICY;
use serde_json::Value;

const REVIEW: &str = include_str!("../../../../examples/policy-review/review");
const HOOK: &str = include_str!("../../../../examples/policy-review/pre-commit");
const WORKFLOW: &str = include_str!("../../../../examples/policy-review/workflow.yml");

/// A repository with a committed policy, whose hooks are the examples.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(repository.path("bin")).expect("the folder can be made");
        symlink(binary(), repository.path("bin/portcullis")).expect("linked");
        repository.write("repo/policy.toml", DEFAULT_POLICY);
        repository.git(&["init", "--quiet"]);
        repository.git(&["add", "."]);
        repository.git(&["commit", "--quiet", "--message", "first"]);
        for (name, text) in [("review", REVIEW), ("pre-commit", HOOK)] {
            repository.write(&format!("repo/.git/hooks/{name}"), text);
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(repository.path(&format!("repo/.git/hooks/{name}")), executable)
                .expect("set");
        }
        repository
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("a parent")).expect("the folder can be made");
        fs::write(path, text).expect("writes");
    }

    #[expect(clippy::disallowed_methods, reason = "git and the scripts under test")]
    fn run(&self, program: &Path, args: &[&str]) -> Output {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display());
        Command::new(program)
            .args(args)
            .current_dir(self.path("repo"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.0.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.com")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.com")
            .output()
            .expect("runs")
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> Output {
        let output = self.run(Path::new("git"), args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    /// Runs a review, and returns its exit code and its text.
    fn review(&self) -> (Option<i32>, String) {
        let output = self.run(&self.path("repo/.git/hooks/review"), &["policy.toml"]);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    }
}

#[test]
fn a_review_distinguishes_wider_faulty_and_unexpected_policies() {
    let repository = Repository::new();
    let (code, text) = repository.review();
    let is_clean = code == Some(0) || text.contains("the same meaning");
    assert!(is_clean, "{text}");
    let unchanged_code = code;

    let wider = DEFAULT_POLICY.replace("calls_per_minute = 600", "calls_per_minute = 6000");
    repository.write("repo/policy.toml", &wider);
    let (code, text) = repository.review();
    assert!(code == Some(1) && text.contains("WIDER"), "{text}");
    repository.git(&["add", "."]);
    let refused = repository.run(Path::new("git"), &["commit", "--quiet", "--message", "wider"]);
    assert!(!refused.status.success(), "{refused:?}");

    let narrower = DEFAULT_POLICY.replace("calls_per_minute = 600", "calls_per_minute = 60");
    repository.write("repo/policy.toml", &narrower);
    let (code, text) = repository.review();
    assert!(code == unchanged_code && text.contains("NARROWER"), "{text}");

    let never =
        "[[expect]]\ntool = \"file_read\"\npath = \"/shared/a\"\naccess = \"read\"\nverdict = \"deny\"\n";
    repository.write("repo/portcullis.expect.toml", never);
    let (code, text) = repository.review();
    assert!(code == Some(1) && text.contains("FAILS"), "{text}");
    let held = never.replace("\"deny\"", "\"allow\"");
    repository.write("repo/portcullis.expect.toml", &held);
    repository.git(&["add", "."]);
    if unchanged_code == Some(0) {
        repository.git(&["commit", "--quiet", "--message", "narrower"]);
    }

    repository.write("repo/policy.toml", "version = 1\nunknown = 1\n");
    let (code, text) = repository.review();
    assert!(code == Some(2) && text.contains("policy.toml:2:1: unknown"), "{text}");
}

#[test]
fn the_workflow_runs_commands_that_exist() {
    let repository = Repository::new();
    let command = "portcullis policy lint policy.toml --sarif";
    assert!(WORKFLOW.contains(&format!("run: {command} > policy.sarif")));
    assert!(WORKFLOW.contains("run: ./review policy.toml"));
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let output = repository.run(&repository.path("bin/portcullis"), &words);
    let sarif: Value = serde_json::from_slice(&output.stdout).expect("SARIF");
    assert_eq!(sarif["version"], "2.1.0");
}
