//! The shell part of a grant, and the check of a command.

use std::sync::Arc;

use portcullis_types::{EscapedText, RoleKind, ShellPosture};
use serde::Serialize;

use crate::{
    CommandRefusal, CommandRules, Denial, DenialCode, FileBytes, MemoryBytes, OutputBytes, ShellAbsence,
    ShellNetwork, ShellPolicy, ToolAssignment, ToolFacts, WorkspaceSecurityPolicy,
};

/// The shell part of a [`crate::Grant`]: limits of the command beside the grant's mounts and time.
///
/// Its JSON is stable, like the grant's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShellGrant {
    /// The least confinement that the command requires.
    pub posture: ShellPosture,
    /// The number of concurrent processes of the command.
    pub processes: u32,
    /// The memory of the command and its jobs together, in bytes; the same as in the grant's limits.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// The size of each file that they write, in bytes.
    #[serde(rename = "file_size_bytes")]
    pub file_size: FileBytes,
    /// The part of the command's output that is kept, in bytes.
    #[serde(rename = "output_bytes")]
    pub output: OutputBytes,
    /// Where the command's tunnels may go, in a session of the posture `strong`; none for a shell without hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Arc<ShellNetwork>>,
}

impl ShellGrant {
    /// The grant of a policy's shell to a command with this much memory.
    pub(crate) fn of(shell: &ShellPolicy, memory: MemoryBytes, network: Option<Arc<ShellNetwork>>) -> Self {
        let ShellPolicy { posture, processes, file_size, output, .. } = *shell;
        Self { posture, processes, memory: memory.min(shell.memory), file_size, output, network }
    }
}

impl WorkspaceSecurityPolicy {
    /// Decides on one command of a call.
    pub(crate) fn check_command(
        &self,
        tool: &ToolFacts,
        argument: &str,
        command: &str,
        assignment: &ToolAssignment,
    ) -> Result<(), Denial> {
        let deny =
            |code, rule: String, hint: String| Denial { code, rule, subject: command.to_owned(), hint };
        let declared =
            tool.roles.iter().any(|role| role.argument == argument && role.role == RoleKind::Command);
        // Fail closed: the caller may name an argument that the tool does not declare as a command.
        if !declared || !tool.may_run_commands() {
            let rule = format!("profiles.{}", assignment.profile);
            let hint = "only tools that this host ships for it run commands";
            return Err(deny(DenialCode::CommandsNotGranted, rule, hint.to_owned()));
        }
        let shell = match &self.effective().shell {
            Ok(shell) => shell,
            Err(absence) => {
                let (code, rule) = match absence {
                    ShellAbsence::NotGranted => (DenialCode::CommandsNotGranted, "shell"),
                    ShellAbsence::DisabledByOperator | ShellAbsence::TakenAway => {
                        (DenialCode::ShellDisabled, "shell.enabled")
                    }
                };
                return Err(deny(code, rule.to_owned(), absence.remedy().to_owned()));
            }
        };
        if !assignment.profile.is_shell() {
            let name = &tool.name;
            let hint = format!(
                "a tool that runs commands has the mounts of `[shell]`; an operator allows it by leaving `profile` out of `[tools.{name}]`"
            );
            return Err(deny(DenialCode::CommandsNotGranted, format!("tools.{name}.profile"), hint));
        }
        shell.commands.judge(command).map_err(|refusal| {
            let (rule, hint) = rule_and_hint(&refusal, &shell.commands);
            deny(DenialCode::CommandDenied, rule, hint)
        })
    }
}

/// The rule that refuses a command, and the hint for the model.
fn rule_and_hint(refusal: &CommandRefusal, rules: &CommandRules) -> (String, String) {
    match refusal {
        CommandRefusal::Denied { program, rule } => (
            format!("shell.deny[\"{rule}\"]"),
            format!("`{}` may not run, by the rule `{rule}`; do without it", EscapedText(program)),
        ),
        CommandRefusal::NotAllowed { program } => {
            let lists: Vec<String> = rules.allowed().map(|list| listed(&list)).collect();
            let hint = format!(
                "`{}` is not allowed; allowed: {}",
                EscapedText(program),
                lists.join("; and of these: ")
            );
            ("shell.allow".to_owned(), hint)
        }
        CommandRefusal::Operator(operator) => {
            let all: Vec<String> = rules.operators().into_iter().flatten().map(ToString::to_string).collect();
            let rest = match all.is_empty() {
                true => "run one plain command per call".to_owned(),
                false => format!("allowed: {}", listed(&all)),
            };
            ("shell.operators".to_owned(), format!("`{operator}` is not allowed; {rest}"))
        }
        CommandRefusal::Unreadable(reason) => {
            let rule = if rules.denied().next().is_some() {
                "shell.deny"
            } else if rules.allowed().next().is_some() {
                "shell.allow"
            } else {
                "shell.operators"
            };
            let reason = EscapedText(reason);
            (
                rule.to_owned(),
                format!(
                    "commands are judged by the programs that they run, and those of this command are unknown: {reason}; name every program in plain words"
                ),
            )
        }
    }
}

/// The first few names, as text.
fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > MAX_LISTED { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The number of rules that a hint repeats.
const MAX_LISTED: usize = 20;
