//! The reason of a refused call, for the tool's author: the decision, and a remedy.

use portcullis_tools::{
    PolicyFiles, RegisteredTool, ToolRegistry, ToolResult,
    audit::{self, Confinement, Event, Row, SubjectKind},
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
    /// Lines of the policy, section by section, and the place of the policy.
    Lines { lines: Vec<AllowLines>, policy: String, is_file: bool },
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
        let row = row_of(registry, |row| *row.call_id == *result.call_id)?;
        let Some(code) = DenialCode::ALL.iter().find(|code| code.as_str() == error.code()) else {
            let of_request = Self::of_request(registry, files, tier, tool, &result.call_id);
            return Some(of_request.unwrap_or_else(|| Self::by_the_tool(error)));
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
        let remedy = Remedy::of(files, tier, *code, tool, refused);
        Some(Self { code: error.code().to_owned(), rule, subject, remedy })
    }

    /// The refusal of the tool's last request, which has a row of its own: the tool reports it as its own error.
    fn of_request(
        registry: &ToolRegistry,
        files: &PolicyFiles,
        tier: SandboxTier,
        tool: &RegisteredTool,
        call_id: &str,
    ) -> Option<Self> {
        let row = row_of(registry, |row| {
            row.operation_id.as_deref() == Some(call_id) && row.confinement == Some(Confinement::Egress)
        })?;
        let code = DenialCode::ALL.into_iter().find(|code| Some(code.as_str()) == row.code.as_deref())?;
        let subjects: Vec<RequestedSubject> = row
            .subjects
            .iter()
            .map(|it| RequestedSubject::Url { argument: it.argument.to_string(), url: it.value.to_string() })
            .collect();
        let refused = RefusedCall { tool: tool.facts(), subjects: &subjects };
        Some(Self {
            code: code.as_str().to_owned(),
            rule: row.rule.as_deref().map(str::to_owned),
            subject: row.subjects.first().map(|subject| subject.value.to_string()),
            remedy: Remedy::of(files, tier, code, tool, refused),
        })
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

impl Remedy {
    /// The lines that would allow the call, else why none would.
    fn of(
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

/// The last final row of these; the row of a call is recorded before its result is returned.
fn row_of(registry: &ToolRegistry, is_it: impl Fn(&Row) -> bool) -> Option<Row> {
    let rows = audit::rows(registry.audit().path()).filter_map(Result::ok);
    rows.filter(|row| row.event == Event::End && is_it(row)).last()
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
            "no entry of a tool allows it: `[egress] robots = \"ignore\"` asks no robots.txt".to_owned()
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
