//! `vault_copyto`: its copies, its refusals, its rows, and the state after it is stopped.

mod command_line;
mod copying;
mod grants;
mod refusals;
mod stopping;

use std::{
    fs,
    path::{Path, PathBuf},
};

use portcullis_testing::{CallOutcome, World, approving};
use portcullis_tools::{ToolCall, ToolRegistry, audit::Row, new_call};
use serde_json::{Value, json};

use crate::support::snapshot;

/// Prefix of the write step's temporary files.
const TEMPORARY: &str = ".portcullis-tmp-";

/// A world with secrets in its vault, and its registry.
struct Vault {
    world: World,
    registry: ToolRegistry,
}

impl Vault {
    async fn new() -> Self {
        Self::of(World::new()).await
    }

    async fn of(world: World) -> Self {
        fs::write(in_vault(&world, "key"), "secret").expect("writable");
        let registry = world.registry().await;
        Self { world, registry }
    }

    /// A world whose policy has these additional lines in a tool's entry.
    async fn with_lines(entry: &str, lines: &str) -> Self {
        Self::of(with_lines(entry, lines)).await
    }

    async fn copy(&self, source: &str, destination: &str) -> CallOutcome {
        CallOutcome::of(&self.registry, "vault_copyto", arguments(source, destination)).await
    }

    /// Asserts that a copy succeeds.
    async fn copied(&self, source: &str, destination: &str) {
        let answer = self.copy(source, destination).await;
        assert!(answer.text().starts_with("copied "), "{answer:?}");
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(in_vault(&self.world, name), content).expect("writable");
    }

    /// Makes a sparse file of this size in the vault, which takes no room on the disk.
    fn put_sparse(&self, name: &str, bytes: u64) {
        let file = fs::File::create(in_vault(&self.world, name)).expect("writable");
        file.set_len(bytes).expect("a sparse file");
    }

    fn shared(&self, below: &str) -> PathBuf {
        self.world.shared(below)
    }

    /// The last row of each call, in the order in which they ended.
    fn ends(&self) -> Vec<Row> {
        self.world.rows().into_iter().filter(|row| row.outcome.is_some()).collect()
    }

    /// The last row of a tool's only call.
    #[track_caller]
    fn end_of(&self, tool: &str) -> Row {
        let mut ends = self.ends_of(tool);
        assert_eq!(ends.len(), 1, "{ends:#?}");
        ends.remove(0)
    }

    /// The last rows of all calls of a tool, in the order in which they ended.
    fn ends_of(&self, tool: &str) -> Vec<Row> {
        self.ends().into_iter().filter(|row| &*row.tool == tool).collect()
    }

    /// Asserts that no temporary file is in the workspace.
    #[track_caller]
    fn has_nothing_temporary(&self) {
        let files = snapshot(&self.world.workspace());
        let left: Vec<_> = files.keys().filter(|path| path.contains(TEMPORARY)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn in_vault(world: &World, name: &str) -> PathBuf {
    world.workspace().join("vault").join(name)
}

fn arguments(source: &str, destination: &str) -> Value {
    json!({"source_path": source, "destination_path": destination})
}

fn call(source: &str, destination: &str) -> ToolCall {
    new_call("vault_copyto", arguments(source, destination).to_string())
}

/// The shipped policy, with more lines in one of its entries.
fn with_lines(entry: &str, lines: &str) -> World {
    let head = policy_line(entry);
    World::new().with_policy_edit(&head, &format!("{head}{lines}\n"))
}

/// The line of the policy with the head of a tool's entry.
fn policy_line(entry: &str) -> String {
    let text = portcullis_tools::policy::DEFAULT_POLICY;
    let start = text.find(&format!("[tools.{entry}]")).expect("the shipped policy has the entry");
    let end = text[start..].find('\n').expect("a line") + 1;
    text[start..start + end].to_owned()
}

/// This many bytes, of every value, including NUL and newline, whose pattern does not repeat with a chunk's
/// length.
fn bytes(count: usize) -> Vec<u8> {
    // The periods 257 and 251 have no common factor with a chunk's length, nor with each other.
    let ramp = (0..=u8::MAX).chain([7]).cycle();
    ramp.zip((0..251).cycle()).map(|(one, other): (u8, u8)| one.wrapping_add(other)).take(count).collect()
}

#[track_caller]
fn same(path: &Path, expected: &[u8]) {
    let found = fs::read(path).expect("the copy");
    assert!(found == expected, "{} of {} bytes is another file", path.display(), found.len());
}

/// A caller that gets progress.
fn caller_with_progress(tell: impl Fn(String) + Send + Sync + 'static) -> portcullis_tools::Caller {
    let mut caller = approving();
    caller.on_progress = Some(std::sync::Arc::new(tell));
    caller
}
