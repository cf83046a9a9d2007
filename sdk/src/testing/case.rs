//! One call and its expected result, made natively and in the sandbox.

use std::fmt;

use portcullis_types::{Access, GuestPath, ToolError, ToolErrorKind, ToolOutput};
use serde_json::Value;

use super::{call, folder::CaseFolder, grants::GrantedMounts, sandbox::Sandbox, with_root};
use crate::DeclaredTool;

/// One call, with its files and the folders that it is granted.
///
/// Each expectation makes the call natively and, if `portcullis tool test` runs the tests, again in the sandbox,
/// through the whole pipeline. Both calls must give the expected result. If the sandbox cannot be reached, the
/// first case of a process says on standard error that only the native mode was tested.
///
/// In the native call, the paths of arguments with roles are checked against the granted folders, as a policy would
/// check them. All other confinement exists only in the sandbox.
#[derive(Clone)]
pub struct Case<'a> {
    tool: &'a dyn DeclaredTool,
    arguments: Value,
    granted: GrantedMounts,
    files: Vec<(GuestPath, Vec<u8>)>,
    leaves: Vec<(GuestPath, Vec<u8>)>,
}

impl<'a> Case<'a> {
    /// A call of a tool without folders.
    #[must_use]
    pub fn new(tool: &'a dyn DeclaredTool, arguments: Value) -> Self {
        Self { tool, arguments, granted: GrantedMounts::default(), files: Vec::new(), leaves: Vec::new() }
    }

    /// Grants the tool a mount for reading: `shared`, `tmp` or `vault`.
    #[must_use]
    pub fn reads(mut self, mount: &str) -> Self {
        self.granted.grant(mount, Access::Read);
        self
    }

    /// Grants the tool a mount for reading and writing: `shared` or `tmp`.
    #[must_use]
    pub fn writes(mut self, mount: &str) -> Self {
        self.granted.grant(mount, Access::Write);
        self
    }

    /// Creates a file such as `/shared/notes.md` before the call.
    ///
    /// # Panics
    /// If the path is not below a mount.
    #[must_use]
    #[track_caller]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((parse_path_below_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects this file after the call.
    ///
    /// # Panics
    /// If the path is not below a mount.
    #[must_use]
    #[track_caller]
    pub fn leaves(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.leaves.push((parse_path_below_mount(path), content.as_ref().to_owned()));
        self
    }

    /// Expects a result with this text.
    ///
    /// # Panics
    /// If the result differs.
    #[track_caller]
    pub fn expect_text(&self, text: &str) {
        for (mode, outcome) in self.run_each_mode() {
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
        for (mode, outcome) in self.run_each_mode() {
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
        for (mode, outcome) in self.run_each_mode() {
            match outcome {
                Ok(output) => panic!("{mode}: expected {kind}, got `{}`", output.joined_text()),
                Err(error) => assert_eq!(error.kind(), kind, "{mode}: got {}", error_text(&error)),
            }
        }
    }

    /// Makes the call, and passes the result of each mode to `check`.
    ///
    /// # Panics
    /// If `check` panics, if the call does not leave a file as expected, or if the sandbox cannot be reached although
    /// it should be.
    #[track_caller]
    pub fn check(&self, mut check: impl FnMut(RunMode, &Result<ToolOutput, ToolError>)) {
        for (mode, outcome) in self.run_each_mode() {
            check(mode, &outcome);
        }
    }

    /// Makes the call in each mode, and checks the files that it leaves. All calls are made before their results
    /// are checked, so that each expectation can check in a plain loop: a panic in a closure would be reported at a
    /// line of this file instead of the author's line.
    #[track_caller]
    fn run_each_mode(&self) -> Vec<(RunMode, Result<ToolOutput, ToolError>)> {
        let arguments = self.arguments.to_string();
        let native_folder = CaseFolder::with(&self.files, &self.granted);
        let outcome = match self.granted.check_call(self.tool.spec(), &self.arguments) {
            Ok(()) => with_root(native_folder.root(), || call(self.tool, &arguments)),
            Err(denial) => Err(denial),
        };
        let mut runs = vec![(RunMode::Native, native_folder, outcome)];
        if let Some(sandbox) = Sandbox::find() {
            let folder = CaseFolder::with(&self.files, &self.granted);
            let outcome = sandbox.call(&folder, &self.granted, self.tool.spec().name, &arguments);
            runs.push((RunMode::Sandboxed, folder, outcome));
        }
        let mut outcomes = Vec::new();
        for (mode, folder, outcome) in runs {
            folder.expect_files(mode, &self.leaves, &outcome);
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

/// How a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// The call runs in the test's own process, without a sandbox.
    Native,
    /// The call runs as WebAssembly, through `portcullis call`.
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
fn parse_path_below_mount(path: &str) -> GuestPath {
    let parsed = match GuestPath::parse(path) {
        Ok(parsed) => parsed,
        Err(error) => panic!("`{path}`: {error}"),
    };
    let is_below = parsed.mount().is_some() && parsed.below_mount() != "." && !parsed.climbs_out();
    assert!(is_below, "`{path}` is not below a mount, such as `/shared/a.txt`");
    parsed
}
