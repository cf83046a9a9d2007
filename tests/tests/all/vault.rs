//! `vault_copyto`: its copies, its refusals, its rows, and the state after a stopped copy.

mod command_line;
mod copying;
mod grants;
mod refusals;
mod stopping;

use std::{
    fs,
    path::{Path, PathBuf},
};

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{ToolCall, ToolRegistry, audit::Row, new_call};
use serde_json::{Value, json};

use crate::support::snapshot;

/// The prefix of the write step's temporary files.
const TEMPORARY: &str = ".portcullis-tmp-";

/// A fixture with secrets in its vault, and its registry.
struct Vault {
    fixture: Fixture,
    registry: ToolRegistry,
}

impl Vault {
    async fn new() -> Self {
        Self::with_fixture(Fixture::new()).await
    }

    async fn with_fixture(fixture: Fixture) -> Self {
        fs::write(vault_path(&fixture, "key"), "secret").expect("writable");
        let registry = fixture.registry().await;
        Self { fixture, registry }
    }

    /// Creates a fixture whose policy has these additional lines in the entry of this tool.
    async fn with_lines(entry: &str, lines: &str) -> Self {
        Self::with_fixture(fixture_with_lines(entry, lines)).await
    }

    async fn copy(&self, source: &str, destination: &str) -> CallOutcome {
        CallOutcome::run(&self.registry, "vault_copyto", arguments(source, destination)).await
    }

    /// Asserts that a copy succeeds.
    async fn assert_copied(&self, source: &str, destination: &str) {
        let answer = self.copy(source, destination).await;
        assert!(answer.text().starts_with("copied "), "{answer:?}");
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(vault_path(&self.fixture, name), content).expect("writable");
    }

    /// Creates a sparse file of this size in the vault. It takes no space on the disk.
    fn put_sparse(&self, name: &str, bytes: u64) {
        let file = fs::File::create(vault_path(&self.fixture, name)).expect("writable");
        file.set_len(bytes).expect("a sparse file");
    }

    fn shared(&self, below: &str) -> PathBuf {
        self.fixture.shared(below)
    }

    /// Returns the last row of each call, in the order in which they ended.
    fn end_rows(&self) -> Vec<Row> {
        self.fixture.rows().into_iter().filter(|row| row.outcome.is_some()).collect()
    }

    /// Returns the last row of a tool's only call.
    #[track_caller]
    fn end_row_of(&self, tool: &str) -> Row {
        let mut end_rows = self.end_rows_of(tool);
        assert_eq!(end_rows.len(), 1, "{end_rows:#?}");
        end_rows.remove(0)
    }

    /// Returns the last rows of all calls of a tool, in the order in which they ended.
    fn end_rows_of(&self, tool: &str) -> Vec<Row> {
        self.end_rows().into_iter().filter(|row| &*row.tool == tool).collect()
    }

    #[track_caller]
    fn assert_no_temporary_file(&self) {
        let files = snapshot(&self.fixture.workspace());
        let temporary_files: Vec<_> = files.keys().filter(|path| path.contains(TEMPORARY)).collect();
        assert!(temporary_files.is_empty(), "{temporary_files:?}");
    }
}

fn vault_path(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.workspace().join("vault").join(name)
}

fn arguments(source: &str, destination: &str) -> Value {
    json!({"source_path": source, "destination_path": destination})
}

fn call(source: &str, destination: &str) -> ToolCall {
    new_call("vault_copyto", arguments(source, destination).to_string())
}

/// Creates a fixture with the shipped policy and more lines in one of its entries.
fn fixture_with_lines(entry: &str, lines: &str) -> Fixture {
    let head = policy_line(entry);
    Fixture::new().with_policy_edit(&head, &format!("{head}{lines}\n"))
}

/// Returns the policy's line that begins a tool's entry.
fn policy_line(entry: &str) -> String {
    let text = portcullis_tools::policy::DEFAULT_POLICY;
    let start = text.find(&format!("[tools.{entry}]")).expect("the shipped policy has the entry");
    let end = text[start..].find('\n').expect("a line") + 1;
    text[start..start + end].to_owned()
}

/// Returns this many bytes, of every value, including NUL and newline. The pattern is not aligned with
/// chunks.
fn bytes(count: usize) -> Vec<u8> {
    // The periods 257 and 251 have no common factor with a chunk's length, nor with each other.
    let ramp = (0..=u8::MAX).chain([7]).cycle();
    ramp.zip((0..251).cycle()).map(|(one, other): (u8, u8)| one.wrapping_add(other)).take(count).collect()
}

#[track_caller]
fn assert_content(path: &Path, expected: &[u8]) {
    let content = fs::read(path).expect("the copy");
    assert!(content == expected, "{} of {} bytes is another file", path.display(), content.len());
}

/// Returns a caller that gets progress.
fn caller_with_progress(on_progress: impl Fn(String) + Send + Sync + 'static) -> portcullis_tools::Caller {
    let mut caller = approving_caller();
    caller.on_progress = Some(std::sync::Arc::new(on_progress));
    caller
}
