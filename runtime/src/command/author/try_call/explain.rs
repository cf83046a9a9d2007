//! The reason of a refused call, for the tool's author: the decision, and a remedy.

use portcullis_tools::{
    PolicyFiles, RegisteredTool, ToolRegistry, ToolResult,
    audit::{self, Event, Row, SubjectKind},
    policy::{CallRequest, DenialCode, RequestedSubject, RunFacts},
};
use portcullis_types::{GuestPath, SandboxTier, ToolError, ToolErrorKind};

use super::allow::{self, AllowLines, RefusedCall};

/// A refusal with its details.
#[derive(Debug)]
pub(super) struct RefusalDetails {
    /// The stable code.
    pub(super) code: String,
    /// The rule that refuses; none if the tool refused by itself.
    pub(super) rule: Option<String>,
    /// The refused subject.
    pub(super) subject: Option<String>,
    /// The remedy.
    pub(super) remedy: Remedy,
}

/// A change that would allow the call.
#[derive(Debug)]
pub(super) enum Remedy {
    /// Lines of the policy, and the place of the policy.
    Lines { lines: AllowLines, policy: String, is_file: bool },
    /// No lines would help; this is why.
    Advice(String),
}

impl RefusalDetails {
    /// The refusal of a denied call; none for any other outcome.
    pub(super) fn of(
        registry: &ToolRegistry,
        files: &PolicyFiles,
        tier: SandboxTier,
        tool: &RegisteredTool,
        result: &ToolResult,
    ) -> Option<Self> {
        let error = result.outcome.as_ref().err().filter(|error| error.kind() == ToolErrorKind::Denied)?;
        let row = row_of(registry, &result.call_id)?;
        let Some(code) = DenialCode::ALL.iter().find(|code| code.as_str() == error.code()) else {
            return Some(Self::by_the_tool(error));
        };
        let subjects = subjects(tool, &row);
        let request = CallRequest { tool: tool.facts(), subjects: &subjects, run: &RunFacts::default() };
        let (rule, subject) = match registry.policy().authorize(&request) {
            Err(denial) if denial.code == *code => (Some(denial.rule), Some(denial.subject)),
            // Refused in a later step: by a path's real target, or for want of an approval.
            _ => {
                let rule = registry
                    .assignment(tool)
                    .ok()
                    .map(|it| registry.policy().approval_rule(tool.facts(), &it));
                let named = row.subjects.iter().map(|subject| subject.value.as_ref());
                match concerns_approval(*code) {
                    true => (rule, Some(tool.decl().name.clone())),
                    false => (row.rule.as_deref().map(str::to_owned), named.map(str::to_owned).next()),
                }
            }
        };
        let refused = RefusedCall { tool: tool.facts(), subjects: &subjects };
        let lines = if entry_could_allow(*code) { allow::lines(files, tier, refused) } else { None };
        let remedy = match lines {
            Some(lines) => Remedy::Lines {
                lines,
                policy: files.operator_name().to_owned(),
                is_file: files.operator_path().is_some(),
            },
            None => Remedy::Advice(advice(*code, tool)),
        };
        Some(Self { code: error.code().to_owned(), rule, subject, remedy })
    }

    /// The refusal by the tool itself: its own error `denied`, or a path without a role that the sandbox
    /// refused.
    fn by_the_tool(error: &ToolError) -> Self {
        Self {
            code: error.code().to_owned(),
            rule: None,
            subject: None,
            remedy: Remedy::Advice(
                "the tool itself says so. Where the sandbox refused it a file: give the argument that names it a role (`#[arg(path = \"read\")]`), so that the policy decides before the call and names the rule".to_owned(),
            ),
        }
    }
}

/// The call's final row, which is recorded before the result is returned.
fn row_of(registry: &ToolRegistry, call_id: &str) -> Option<Row> {
    let rows = audit::rows(registry.audit().path()).filter_map(Result::ok);
    rows.filter(|row| row.event == Event::End && &*row.call_id == call_id).last()
}

/// The call's subjects, from its row.
fn subjects(tool: &RegisteredTool, row: &Row) -> Vec<RequestedSubject> {
    let subject = |it: &audit::Subject| {
        let argument = it.argument.to_string();
        Some(match it.kind {
            SubjectKind::Path => {
                let role = tool.facts().roles.iter().find(|role| role.argument == argument)?.role;
                let access = role.path_access()?;
                RequestedSubject::Path { argument, path: GuestPath::parse(&it.value).ok()?, access }
            }
            SubjectKind::Url => RequestedSubject::Url { argument, url: it.value.to_string() },
            SubjectKind::Command => RequestedSubject::Command { argument, command: it.value.to_string() },
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

/// Whether an entry of the tool could change the decision.
fn entry_could_allow(code: DenialCode) -> bool {
    concerns_approval(code)
        || matches!(code, DenialCode::MountNotGranted | DenialCode::MountReadOnly | DenialCode::ToolDisabled)
}

/// Why no line of the tool's entry would help.
fn advice(code: DenialCode, tool: &RegisteredTool) -> String {
    let name = &tool.decl().name;
    match code {
        DenialCode::PathEscapesMount | DenialCode::LinkEscapesMount => {
            "no policy allows a path that leads out of a mount".to_owned()
        }
        DenialCode::SpecialFile => "tools open files and folders only".to_owned(),
        DenialCode::HardLink => {
            "no policy allows it: replace the file whole, or remove its other names".to_owned()
        }
        DenialCode::LinksUnknown => {
            "no policy allows it: run `portcullis doctor` to see why private files cannot be recognised".to_owned()
        }
        DenialCode::UnknownMount => {
            "the policy has no such mount: paths begin with one that `[mounts]` names, such as `/shared`".to_owned()
        }
        DenialCode::ProtectedPath => {
            "no entry of a tool allows it: no tool writes to what `[protect] paths` names".to_owned()
        }
        DenialCode::ModuleChanged => format!("approve it as it is now: portcullis tool approve {name}"),
        DenialCode::FlowDenied => {
            "no entry of a tool allows it: `[[flow]]` denies it after what the run has read".to_owned()
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
            "its tier or its own declaration requires the approval, and no entry changes that: read the call and give --approve".to_owned()
        }
    }
}
