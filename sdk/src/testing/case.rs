//! One call and what must come of it, natively and in the sandbox.

use std::fmt;

use portcullis_types::{Access, GuestPath, ToolError, ToolErrorKind, ToolOutput};
use serde_json::Value;

use super::{call, lent::Lent, sandbox::Sandbox, with_root, world::World};
use crate::DeclaredTool;

/// One call, with the files that it finds and the folders that it is lent.
///
/// Each expectation makes the call natively; and, where `portcullis tool test` runs the tests, a second time
/// in the sandbox, through the whole pipeline. Both must come out as expected. Where nothing says how to reach
/// the sandbox, the first case of a process says on standard error that only the native half was tested.
///
/// Natively what an argument names by its role is held against the folders that are lent, as a policy would.
/// All else that keeps a tool in is the sandbox's, and shows there only.
#[derive(Clone)]
pub struct Case<'a> {
    tool: &'a dyn DeclaredTool,
    arguments: Value,
    lent: Lent,
    files: Vec<(GuestPath, Vec<u8>)>,
    leaves: Vec<(GuestPath, Vec<u8>)>,
}

impl<'a> Case<'a> {
    /// A call of a tool, which is lent no folder.
    #[must_use]
    pub fn new(tool: &'a dyn DeclaredTool, arguments: Value) -> Self {
        Self { tool, arguments, lent: Lent::default(), files: Vec::new(), leaves: Vec::new() }
    }

    /// Lends it a mount for reading: `shared`, `tmp` or `vault`.
    #[must_use]
    pub fn reads(mut self, mount: &str) -> Self {
        self.lent.lend(mount, Access::Read);
        self
    }

    /// Lends it a mount for reading and writing: `shared` or `tmp`.
    #[must_use]
    pub fn writes(mut self, mount: &str) -> Self {
        self.lent.lend(mount, Access::Write);
        self
    }

    /// Puts a file there, such as `/shared/notes.md`.
    ///
    /// # Panics
    /// When it is no path below a mount.
    #[must_use]
    #[track_caller]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((below_a_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects this file after the call.
    ///
    /// # Panics
    /// When it is no path below a mount.
    #[must_use]
    #[track_caller]
    pub fn leaves(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.leaves.push((below_a_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects a result with this text.
    ///
    /// # Panics
    /// When there is another.
    #[track_caller]
    pub fn expect_text(&self, text: &str) {
        for (half, outcome) in self.halves() {
            match outcome {
                Ok(output) => assert_eq!(output.joined_text(), text, "{half}"),
                Err(error) => panic!("{half}: expected `{text}`, got {}", told(&error)),
            }
        }
    }

    /// Expects a result with this data.
    ///
    /// # Panics
    /// When there is another.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "made for `json!`")]
    pub fn expect_structured(&self, data: Value) {
        for (half, outcome) in self.halves() {
            match outcome {
                Ok(output) => assert_eq!(output.structured.as_ref(), Some(&data), "{half}"),
                Err(error) => panic!("{half}: expected {data}, got {}", told(&error)),
            }
        }
    }

    /// Expects an error of this kind.
    ///
    /// # Panics
    /// When there is another, or a result.
    #[track_caller]
    pub fn expect_error(&self, kind: ToolErrorKind) {
        for (half, outcome) in self.halves() {
            match outcome {
                Ok(output) => panic!("{half}: expected {kind}, got `{}`", output.joined_text()),
                Err(error) => assert_eq!(error.kind(), kind, "{half}: got {}", told(&error)),
            }
        }
    }

    /// Makes the call, and hands what came of it to `check`, for each half that there is.
    ///
    /// # Panics
    /// When `check` does, when a file is not left as expected, and when the sandbox cannot be reached although
    /// it should.
    #[track_caller]
    pub fn check(&self, mut check: impl FnMut(Half, &Result<ToolOutput, ToolError>)) {
        for (half, outcome) in self.halves() {
            check(half, &outcome);
        }
    }

    /// Makes the call, in each half that there is, and holds the files that it leaves against what is expected.
    /// All halves are made before any outcome is looked at, so that each expectation fails in a plain loop of
    /// its own: a panic within a closure would be told of this file and not of the author's line.
    #[track_caller]
    fn halves(&self) -> Vec<(Half, Result<ToolOutput, ToolError>)> {
        let arguments = self.arguments.to_string();
        let native = World::with(&self.files, &self.lent);
        let outcome = match self.lent.judge(self.tool.spec(), &self.arguments) {
            Ok(()) => with_root(native.root(), || call(self.tool, &arguments)),
            Err(denied) => Err(denied),
        };
        let mut halves = vec![(Half::Native, native, outcome)];
        if let Some(sandbox) = Sandbox::find() {
            let world = World::with(&self.files, &self.lent);
            let outcome = sandbox.call(&world, &self.lent, self.tool.spec().name, &arguments);
            halves.push((Half::Sandboxed, world, outcome));
        }
        let mut outcomes = Vec::new();
        for (half, world, outcome) in halves {
            world.expect_left(half, &self.leaves, &outcome);
            outcomes.push((half, outcome));
        }
        outcomes
    }
}

/// An error for the tool's author, with what no model reads of it.
pub(super) fn told(error: &ToolError) -> String {
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

/// Where a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// In the test's own process, without a sandbox.
    Native,
    /// As WebAssembly, through `portcullis call`.
    Sandboxed,
}

impl fmt::Display for Half {
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
