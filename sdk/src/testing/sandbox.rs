//! The sandbox, which `portcullis tool test` describes: a `portcullis` program that makes one call.

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Once,
};

use portcullis_types::{Content, ToolError, ToolErrorKind, ToolOutput};
use serde::Deserialize;
use serde_json::Value;

use super::{folder::CaseFolder, grants::GrantedMounts};

/// The variables that `portcullis tool test` sets: the program, the crate's modules, and a folder for the program's
/// state.
const PROGRAM: &str = "PORTCULLIS_TRY";
const MODULES: &str = "PORTCULLIS_TRY_MODULES";
const STATE: &str = "PORTCULLIS_TRY_STATE";

/// The program that makes calls in the sandbox, and its inputs.
#[derive(Debug)]
pub(super) struct Sandbox {
    program: OsString,
    modules: OsString,
    state: OsString,
}

/// The fields of the answer of `portcullis call --json` that are used here.
#[derive(Deserialize)]
struct SandboxOutput {
    content: Vec<Content>,
    structured: Option<Value>,
    details: Value,
    error: Option<AnsweredError>,
    /// The tool's standard error.
    #[serde(default)]
    stderr: Option<String>,
}

#[derive(Deserialize)]
struct AnsweredError {
    kind: ToolErrorKind,
    code: String,
    message: String,
    hint: Option<String>,
}

impl Sandbox {
    /// Finds the sandbox, if the variables are set. If not, says once that it is missing.
    #[track_caller]
    pub(super) fn find() -> Option<Self> {
        static NOTICE: Once = Once::new();
        let Some(program) = env::var_os(PROGRAM) else {
            // `eprintln!` is not used, because the test harness captures its output and shows it only if the test
            // fails.
            NOTICE.call_once(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "portcullis: the cases are tested natively only; `portcullis tool test` runs them in the sandbox too"
                );
            });
            return None;
        };
        Some(Self { program, modules: required_variable(MODULES), state: required_variable(STATE) })
    }

    /// Makes one call, under a policy that grants the tool exactly these folders.
    #[track_caller]
    pub(super) fn call(
        &self,
        folder: &CaseFolder,
        granted: &GrantedMounts,
        tool: &str,
        arguments: &str,
    ) -> Result<ToolOutput, ToolError> {
        let policy = folder.root().join("policy.toml");
        let default_policy = self.run(&["policy".as_ref(), "default".as_ref()]);
        let text = format!(
            "{}\n[profiles.Case]\nmounts = {}\n\n[tools.{tool}]\nprofile = \"Case\"\napproval = \"allow\"\nmax_output_bytes = \"64MiB\"\n",
            String::from_utf8_lossy(&default_policy.stdout),
            granted.as_toml()
        );
        fs::write(&policy, text).expect("a policy file");
        let mut words: Vec<&std::ffi::OsStr> =
            ["call", tool, arguments, "--json", "--stderr", "--approve", "--workspace"]
                .map(AsRef::as_ref)
                .into();
        words.extend([folder.root().as_os_str(), "--policy".as_ref(), policy.as_os_str()]);
        words.extend(["--state".as_ref(), self.state.as_os_str()]);
        let modules: Vec<_> = env::split_paths(&self.modules).collect();
        for module in &modules {
            words.extend(["--module".as_ref(), Path::as_os_str(module)]);
        }
        let output = self.run(&words);
        // A panic in a closure would be reported at this line instead of the author's.
        let Ok(answer) = serde_json::from_slice::<SandboxOutput>(&output.stdout) else {
            panic!("the sandbox gives no answer: {}", String::from_utf8_lossy(&output.stderr));
        };
        match answer.error {
            None => Ok(ToolOutput {
                content: answer.content,
                details: answer.details,
                structured: answer.structured,
            }),
            Some(AnsweredError { kind, code, message, hint }) => {
                let mut error = ToolError::new(kind, message).with_code(code);
                if let Some(stderr_text) = answer.stderr.filter(|stderr_text| !stderr_text.is_empty()) {
                    error = error.with_operator_detail(stderr_text);
                }
                Err(match hint {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                })
            }
        }
    }

    #[track_caller]
    fn run(&self, words: &[&std::ffi::OsStr]) -> Output {
        #[expect(clippy::disallowed_methods, reason = "a test starts the program that it was told of")]
        let output = Command::new(&self.program).args(words).stdin(Stdio::null()).output();
        match output {
            Ok(output) => output,
            Err(error) => panic!("cannot start `{}`: {error}", self.program.display()),
        }
    }
}

#[track_caller]
fn required_variable(name: &str) -> OsString {
    match env::var_os(name) {
        Some(value) => value,
        None => panic!("{PROGRAM} is set, and {name} is not"),
    }
}
