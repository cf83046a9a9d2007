//! The path of an author, from nothing to a tool that a policy allows: the real commands and a real cargo, offline.
//!
//! The crates share one target folder, so that the SDK is built once. Tool names are unique to each test, because a
//! tool's module is a file in that folder.

mod docs;
mod mishaps;
mod new;
mod refusals;
mod tests;
mod way;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use portcullis_testing::call_rows;
use portcullis_tools::audit::Row;
use tempfile::TempDir;

/// An author with a folder of their own.
struct Author {
    root: TempDir,
}

impl Author {
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a folder") }
    }

    /// An author with a crate, whose source may be replaced.
    fn with_crate(name: &str, program: Option<&str>) -> Self {
        let author = Self::new();
        author.run_successfully(&["tool", "new", name, "--dir", "crate", "--sdk", &sdk()]);
        if let Some(program) = program {
            fs::write(author.path("crate/src/main.rs"), program).expect("written");
        }
        author
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// Creates a command of the program in this folder, for a person without any configuration and without
    /// network.
    fn command(&self, program: &Path) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(program);
        command
            .current_dir(self.root.path())
            .env("CARGO_TARGET_DIR", target())
            .env("CARGO_NET_OFFLINE", "true")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(&portcullis_testing::binary()).args(words).output().expect("starts")
    }

    /// Runs the program, and returns its standard output and standard error.
    #[track_caller]
    fn run_expecting(&self, code: i32, words: &[&str]) -> (String, String) {
        let output = self.run(words);
        let (answer, stderr_text) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words:?}\n{answer}\n{stderr_text}");
        (answer, stderr_text)
    }

    #[track_caller]
    fn run_successfully(&self, words: &[&str]) -> (String, String) {
        self.run_expecting(0, words)
    }

    /// Tries a tool of the crate, under the policy file if there is one.
    #[track_caller]
    fn try_tool(&self, code: i32, tool: &str, arguments: &str, more: &[&str]) -> (String, String) {
        let mut words = vec!["tool", "try", tool, arguments, "--dir", "crate"];
        if self.path("policy.toml").exists() {
            words.extend(["--policy", "policy.toml"]);
        }
        words.extend(more);
        self.run_expecting(code, &words)
    }

    /// Writes a policy file: the shipped text and these lines.
    fn write_policy(&self, more: &str) {
        let (shipped, _) = self.run_successfully(&["policy", "default"]);
        fs::write(self.path("policy.toml"), format!("{shipped}\n{more}")).expect("written");
    }

    /// Returns the rows of the default workspace's audit log.
    fn rows(&self) -> Vec<Row> {
        let state =
            fs::read_dir(self.path("state/portcullis")).expect("the folder is readable").next().expect("one");
        call_rows(&state.expect("readable").path())
    }
}

/// Returns the path of this checkout's SDK.
fn sdk() -> String {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk");
    sdk.to_str().expect("the path is UTF-8").to_owned()
}

/// Returns the target folder of all crates of these tests.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("authoring")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
