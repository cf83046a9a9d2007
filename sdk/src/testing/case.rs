//! One call and its expected result, natively and in the sandbox.

use std::fmt;

use portcullis_types::{Access, GuestPath, ToolError, ToolErrorKind, ToolOutput};
use serde_json::Value;

use super::{call, lent::LentMounts, sandbox::Sandbox, with_root, world::World};
use crate::DeclaredTool;

/// One call, with its files and the folders that it is granted.
///
/// Each expectation makes the call natively and, if `portcullis tool test` runs the tests, a second time in
/// the sandbox, through the whole pipeline. Both must give the expected result. If the sandbox cannot be
/// reached, the first case of a process says on standard error that only the native mode was tested.
///
/// Natively the paths of arguments with roles are checked against the granted folders, as a policy would do.
/// All other confinement takes effect only in the sandbox.
#[derive(Clone)]
pub struct Case<'a> {
    tool: &'a dyn DeclaredTool,
    arguments: Value,
    lent: LentMounts,
    files: Vec<(GuestPath, Vec<u8>)>,
    leaves: Vec<(GuestPath, Vec<u8>)>,
}

impl<'a> Case<'a> {
    /// A call of a tool without folders.
    #[must_use]
    pub fn new(tool: &'a dyn DeclaredTool, arguments: Value) -> Self {
        Self { tool, arguments, lent: LentMounts::default(), files: Vec::new(), leaves: Vec::new() }
    }

    /// Lends the tool a mount for reading: `shared`, `tmp` or `vault`.
    #[must_use]
    pub fn reads(mut self, mount: &str) -> Self {
        self.lent.lend(mount, Access::Read);
        self
    }

    /// Lends the tool a mount for reading and writing: `shared` or `tmp`.
    #[must_use]
    pub fn writes(mut self, mount: &str) -> Self {
        self.lent.lend(mount, Access::Write);
        self
    }

    /// Creates a file such as `/shared/notes.md` before the call.
    ///
    /// # Panics
    /// If the path is not below a mount.
    #[must_use]
    #[track_caller]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((below_a_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects this file after the call.
    ///
    /// # Panics
    /// If the path is not below a mount.
    #[must_use]
    #[track_caller]
    pub fn leaves(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.leaves.push((below_a_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects a result with this text.
    ///
    /// # Panics
    /// If the result differs.
    #[track_caller]
    pub fn expect_text(&self, text: &str) {
        for (mode, outcome) in self.halves() {
            match outcome {
                Ok(output) => assert_eq!(output.joined_text(), text, "{mode}"),
                Err(error) => panic!("{mode}: expected `{text}`, got {}", error_text(&error)),
            }
        }
    }

    /// Expects a result with this data.
    ///
    /// # Panics
    /// If the result differs.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "made for `json!`")]
    pub fn expect_structured(&self, data: Value) {
        for (mode, outcome) in self.halves() {
            match outcome {
                Ok(output) => assert_eq!(output.structured.as_ref(), Some(&data), "{mode}"),
                Err(error) => panic!("{mode}: expected {data}, got {}", error_text(&error)),
            }
        }
    }

    /// Expects an error of this kind.
    ///
    /// # Panics
    /// If the call succeeds, or its error has another kind.
    #[track_caller]
    pub fn expect_error(&self, kind: ToolErrorKind) {
        for (mode, outcome) in self.halves() {
            match outcome {
                Ok(output) => panic!("{mode}: expected {kind}, got `{}`", output.joined_text()),
                Err(error) => assert_eq!(error.kind(), kind, "{mode}: got {}", error_text(&error)),
            }
        }
    }

    /// Makes the call, and passes the result of each mode to `check`.
    ///
    /// # Panics
    /// If `check` panics, if a file is not left as expected, or if the sandbox cannot be reached although it
    /// should.
    #[track_caller]
    pub fn check(&self, mut check: impl FnMut(RunMode, &Result<ToolOutput, ToolError>)) {
        for (mode, outcome) in self.halves() {
            check(mode, &outcome);
        }
    }

    /// Makes the call in each mode, and checks the files that it leaves. Makes all calls before their results
    /// are checked, so that each expectation can check in a plain loop: a panic in a closure would be
    /// reported at a line of this file and not at the author's line.
    #[track_caller]
    fn halves(&self) -> Vec<(RunMode, Result<ToolOutput, ToolError>)> {
        let arguments = self.arguments.to_string();
        let native = World::with(&self.files, &self.lent);
        let outcome = match self.lent.judge(self.tool.spec(), &self.arguments) {
            Ok(()) => with_root(native.root(), || call(self.tool, &arguments)),
            Err(denied) => Err(denied),
        };
        let mut halves = vec![(RunMode::Native, native, outcome)];
        if let Some(sandbox) = Sandbox::find() {
            let world = World::with(&self.files, &self.lent);
            let outcome = sandbox.call(&world, &self.lent, self.tool.spec().name, &arguments);
            halves.push((RunMode::Sandboxed, world, outcome));
        }
        let mut outcomes = Vec::new();
        for (mode, world, outcome) in halves {
            world.expect_left(mode, &self.leaves, &outcome);
            outcomes.push((mode, outcome));
        }
        outcomes
    }
}

/// An error with its operator detail, for the tool's author.
pub(super) fn error_text(error: &ToolError) -> String {
    let cause = error.operator_detail().map(|detail| format!(" (cause: {})", detail.trim_end()));
    format!("{}: {error}{}", error.kind(), cause.unwrap_or_default())
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("tool", &self.tool.spec().name)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

/// The place of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// In the test's own process, without a sandbox.
    Native,
    /// As WebAssembly, through `portcullis call`.
    Sandboxed,
}

impl fmt::Display for RunMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "natively",
            Self::Sandboxed => "in the sandbox",
        })
    }
}

#[track_caller]
fn below_a_mount(path: &str) -> GuestPath {
    let parsed = match GuestPath::parse(path) {
        Ok(parsed) => parsed,
        Err(error) => panic!("`{path}`: {error}"),
    };
    let is_below = parsed.mount().is_some() && parsed.below_mount() != "." && !parsed.climbs_out();
    assert!(is_below, "`{path}` is not below a mount, such as `/shared/a.txt`");
    parsed
}
