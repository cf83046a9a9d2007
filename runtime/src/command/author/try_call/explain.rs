//! Explains a refused call to the tool's author: the decision, and a remedy.

use portcullis_tools::{
    PolicyFiles, RegisteredTool, ToolRegistry, ToolResult,
    audit::{self, Confinement, Row, RowEvent, SubjectKind},
    policy::{CallRequest, DenialCode, RequestedSubject, RunContext},
};
use portcullis_types::{GuestPath, SandboxTier, ToolError, ToolErrorKind};

use super::allow::{self, AllowLines, RefusedCall};

#[derive(Debug)]
pub(super) struct RefusalDetails {
    /// The stable code.
    pub(super) code: String,
    /// The rule that refuses the call. `None` if the tool itself refused it.
    pub(super) rule: Option<String>,
    /// The refused subject.
    pub(super) subject: Option<String>,
    pub(super) remedy: Remedy,
}

/// A change that would allow the call.
#[derive(Debug)]
pub(super) enum Remedy {
    /// Lines to add, section by section, and the policy that they belong to.
    Lines { lines: Vec<AllowLines>, policy: String, is_file: bool },
    /// No lines would help, for this reason.
    Advice(String),
}

impl RefusalDetails {
    /// Explains the refusal of a denied call. Returns `None` for any other outcome.
    pub(super) fn from_outcome(
        registry: &ToolRegistry,
        files: &PolicyFiles,
        tier: SandboxTier,
        tool: &RegisteredTool,
        result: &ToolResult,
    ) -> Option<Self> {
        let error = result.outcome.error().filter(|error| error.kind() == ToolErrorKind::Denied)?;
        let row = last_end_row(registry, |row| *row.call_id == *result.call_id)?;
        let Some(code) = DenialCode::ALL.iter().find(|code| code.as_str() == error.code()) else {
            let request_refusal = Self::from_refused_request(registry, files, tier, tool, &result.call_id);
            return Some(request_refusal.unwrap_or_else(|| Self::from_tool_error(error)));
        };
        let subjects = subjects(tool, &row);
        let request =
            CallRequest { tool: tool.descriptor(), subjects: &subjects, run: &RunContext::default() };
        let (rule, subject) = match registry.policy().authorize(&request) {
            Err(denial) if denial.code == *code => (Some(denial.rule), Some(denial.subject)),
            // A later step refused the call, because of a path's real target or a missing approval.
            _ => {
                let rule = registry
                    .assignment(tool)
                    .ok()
                    .map(|assignment| registry.policy().approval_rule(tool.descriptor(), &assignment));
                let subject_values = row.subjects.iter().map(|subject| subject.value.as_ref());
                if concerns_approval(*code) {
                    (rule, Some(tool.decl().name.clone()))
                } else {
                    (row.rule.as_deref().map(str::to_owned), subject_values.map(str::to_owned).next())
                }
            }
        };
        let refused = RefusedCall { tool: tool.descriptor(), subjects: &subjects };
        let remedy = Remedy::find(files, tier, *code, tool, refused);
        Some(Self { code: error.code().to_owned(), rule, subject, remedy })
    }

    /// Explains the refusal of the tool's last request. It has its own audit row, because the tool reports
    /// the refusal as its own error.
    fn from_refused_request(
        registry: &ToolRegistry,
        files: &PolicyFiles,
        tier: SandboxTier,
        tool: &RegisteredTool,
        call_id: &str,
    ) -> Option<Self> {
        let row = last_end_row(registry, |row| {
            row.operation_id.as_deref() == Some(call_id) && row.confinement == Some(Confinement::Egress)
        })?;
        let code = DenialCode::ALL.into_iter().find(|code| Some(code.as_str()) == row.code.as_deref())?;
        let subjects: Vec<RequestedSubject> = row
            .subjects
            .iter()
            .map(|audited| RequestedSubject::Url {
                argument: audited.source.to_string(),
                url: audited.value.to_string(),
            })
            .collect();
        let refused = RefusedCall { tool: tool.descriptor(), subjects: &subjects };
        Some(Self {
            code: code.as_str().to_owned(),
            rule: row.rule.as_deref().map(str::to_owned),
            subject: row.subjects.first().map(|subject| subject.value.to_string()),
            remedy: Remedy::find(files, tier, code, tool, refused),
        })
    }

    /// Explains an error `denied` of the tool: the tool's own refusal, or the sandbox's for a path without a
    /// role.
    fn from_tool_error(error: &ToolError) -> Self {
        Self {
            code: error.code().to_owned(),
            rule: None,
            subject: None,
            remedy: Remedy::Advice(
                "the tool reported this itself. If the sandbox refused a file, mark the argument that names the file with `#[arg(path = \"read\")]`. The policy then decides before the call, and the error names its rule".to_owned(),
            ),
        }
    }
}

impl Remedy {
    /// Finds the lines that would allow the call, or the reason why none would.
    fn find(
        files: &PolicyFiles,
        tier: SandboxTier,
        code: DenialCode,
        tool: &RegisteredTool,
        refused: RefusedCall<'_>,
    ) -> Self {
        let lines = if entry_could_allow(code) {
            allow::lines(files, tier, refused).map(|lines| vec![lines])
        } else if matches!(code, DenialCode::EgressNotGranted | DenialCode::HostNotGranted) {
            allow::host_lines(files, tier, refused)
        } else {
            None
        };
        match lines {
            Some(lines) => Self::Lines {
                lines,
                policy: files.operator_name().to_owned(),
                is_file: files.operator_path().is_some(),
            },
            None => Self::Advice(advice(code, tool)),
        }
    }
}

/// Returns the last final row that `predicate` accepts. A call's row is recorded before its result is
/// returned.
fn last_end_row(registry: &ToolRegistry, predicate: impl Fn(&Row) -> bool) -> Option<Row> {
    let rows = audit::rows(registry.audit().path()).filter_map(Result::ok);
    rows.filter(|row| row.event == RowEvent::End && predicate(row)).last()
}

/// Reads the call's subjects from the call's row.
fn subjects(tool: &RegisteredTool, row: &Row) -> Vec<RequestedSubject> {
    let subject = |audited: &audit::Subject| {
        let argument = audited.source.to_string();
        Some(match audited.kind {
            SubjectKind::Path => {
                let role = tool.descriptor().roles.iter().find(|role| role.argument == argument)?.role;
                let access = role.path_access()?;
                RequestedSubject::Path { argument, path: GuestPath::parse(&audited.value).ok()?, access }
            }
            SubjectKind::Url => RequestedSubject::Url { argument, url: audited.value.to_string() },
            SubjectKind::Command => {
                RequestedSubject::Command { argument, command: audited.value.to_string() }
            }
        })
    };
    row.subjects.iter().filter_map(subject).collect()
}

fn concerns_approval(code: DenialCode) -> bool {
    matches!(
        code,
        DenialCode::ApprovalUnavailable
            | DenialCode::ApprovalRefused
            | DenialCode::ApprovalTimedOut
            | DenialCode::ApprovalDenied
    )
}

/// Returns whether an entry for the tool could change the decision.
fn entry_could_allow(code: DenialCode) -> bool {
    concerns_approval(code)
        || matches!(code, DenialCode::MountNotGranted | DenialCode::MountReadOnly | DenialCode::ToolDisabled)
}

/// Returns the reason why no line of the tool's entry would help.
fn advice(code: DenialCode, tool: &RegisteredTool) -> String {
    // No `_` arm below, so that a new code cannot lack advice.
    let name = &tool.decl().name;
    match code {
        DenialCode::PathEscapesMount | DenialCode::LinkEscapesMount => {
            "no policy allows a path that leads out of a mount".to_owned()
        }
        DenialCode::SpecialFile => "tools open only files and directories".to_owned(),
        DenialCode::HardLink => {
            "no policy allows it: replace the file whole, or remove its other names".to_owned()
        }
        DenialCode::LinksUnknown => {
            "no policy allows it: run `portcullis doctor` to see why private files cannot be recognized".to_owned()
        }
        DenialCode::UnknownMount => {
            "the policy has no such mount: paths begin with one that `[mounts]` names, such as `/shared`".to_owned()
        }
        DenialCode::ProtectedPath => {
            "no tool may write to the paths in `[protect] paths`, whatever its entry says".to_owned()
        }
        DenialCode::HiddenPath => {
            "no tool may see the names in `[hide] paths`, whatever its entry says".to_owned()
        }
        DenialCode::ModuleChanged => format!("approve it as it is now: portcullis tool approve {name}"),
        DenialCode::FlowDenied => {
            "no entry of a tool allows it: `[[flow]]` denies it after what the run has read".to_owned()
        }
        DenialCode::KindWithheld => {
            "give the argument that names the file a role (`#[arg(path = \"write\")]`), so that `[[flow]]` can ask about it".to_owned()
        }
        DenialCode::HookRefused => "no entry changes what the program's own hooks refuse".to_owned(),
        DenialCode::HostNotDeclared => {
            "no policy allows it: declare the host with `hosts` in `#[tool]`, then grant it".to_owned()
        }
        DenialCode::EgressNotGranted | DenialCode::HostNotGranted => {
            "write it in `hosts` of the tool's profile, in `[profiles]`".to_owned()
        }
        DenialCode::MethodNotGranted => {
            "write it in `methods` of the tool's profile, in `[profiles]`".to_owned()
        }
        DenialCode::UrlRefused => "no policy allows it: write a plain `https://` URL".to_owned(),
        DenialCode::AddressNotPublic => {
            "no entry of a tool allows it: `[egress] allow_private` names addresses that are not public".to_owned()
        }
        DenialCode::RedirectRefused => {
            "no policy leads from `https` to `http`; `[egress] max_redirects` bounds how many are followed".to_owned()
        }
        DenialCode::RobotsDisallowed | DenialCode::RobotsUnreadable => {
            "no entry of a tool allows it; `[egress] robots = \"ignore\"` skips robots.txt".to_owned()
        }
        DenialCode::CommandsNotGranted | DenialCode::ShellDisabled | DenialCode::CommandDenied => {
            "no module runs commands, whatever its entry says".to_owned()
        }
        DenialCode::MountNotGranted | DenialCode::MountReadOnly => {
            "no profile of the policy gives this access to it: write one in `[profiles]`".to_owned()
        }
        DenialCode::ToolDisabled | DenialCode::NativeNotEnabled => {
            "no entry of the operator's policy changes that: see the overlay in the workspace".to_owned()
        }
        DenialCode::ApprovalDenied
        | DenialCode::ApprovalRefused
        | DenialCode::ApprovalUnavailable
        | DenialCode::ApprovalTimedOut => {
            "the tool's tier or declaration requires approval, and no policy entry can change that; check the call, then run it with --approve".to_owned()
        }
    }
}
