//! The shell part of a grant, and the check of a command.

use std::sync::Arc;

use portcullis_types::{EscapedText, RoleKind, ShellPosture};
use serde::Serialize;

use crate::{
    CommandRefusal, CommandRules, Denial, DenialCode, FileBytes, MemoryBytes, OutputBytes, ShellAbsence,
    ShellNetwork, ShellPolicy, ToolAssignment, ToolDescriptor, TraceSink, TracedRule,
    WorkspaceSecurityPolicy,
};

/// The shell part of a [`crate::Grant`]: the limits of the command, in addition to the grant's mounts and time.
///
/// The JSON is stable, like the grant's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShellGrant {
    /// The minimum posture of the command's session.
    pub posture: ShellPosture,
    /// The maximum number of concurrent processes of the command.
    pub processes: u32,
    /// The memory of the command and its jobs together, in bytes. Equal to the memory in the grant's limits.
    #[serde(rename = "memory_bytes")]
    pub memory: MemoryBytes,
    /// The maximum size of each file that the command or its jobs write, in bytes.
    #[serde(rename = "file_size_bytes")]
    pub file_size: FileBytes,
    /// The maximum size of the command's output that is kept, in bytes.
    #[serde(rename = "output_bytes")]
    pub output: OutputBytes,
    /// The hosts that the command's tunnels may reach, in a session of the posture `strong`. `None` for a
    /// shell without hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Arc<ShellNetwork>>,
}

impl ShellGrant {
    /// Builds the grant of a policy's shell for a command with this much memory.
    pub(crate) fn new(shell: &ShellPolicy, memory: MemoryBytes, network: Option<Arc<ShellNetwork>>) -> Self {
        let ShellPolicy { posture, processes, file_size, output, .. } = *shell;
        Self { posture, processes, memory: memory.min(shell.memory), file_size, output, network }
    }
}

impl WorkspaceSecurityPolicy {
    /// Decides about one command of a call.
    pub(crate) fn check_command<T: TraceSink>(
        &self,
        tool: &ToolDescriptor,
        argument: &str,
        command: &str,
        assignment: &ToolAssignment,
        trace: &mut T,
    ) -> Result<(), Denial> {
        let deny =
            |code, rule: String, hint: String| Denial { code, rule, subject: command.to_owned(), hint };
        let declares_shell =
            tool.roles.iter().any(|role| role.argument == argument && role.role == RoleKind::Command);
        // Fail closed: the caller may name an argument that the tool does not declare as a command.
        if !declares_shell || !tool.may_run_commands() {
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
        shell.commands.judge_traced(command, trace).map_err(|refusal| {
            let (rule, hint) = rule_and_hint(&refusal, &shell.commands);
            deny(DenialCode::CommandDenied, rule, hint)
        })?;
        if shell.commands.is_empty() {
            trace.record(|| TracedRule::new("shell", "has no rules about commands, so each may run"));
        }
        Ok(())
    }
}

/// Returns the rule that refuses a command, and the hint for the model.
fn rule_and_hint(refusal: &CommandRefusal, rules: &CommandRules) -> (String, String) {
    match refusal {
        CommandRefusal::Denied { program, rule } => (
            format!("shell.deny[\"{rule}\"]"),
            format!("`{}` may not run, by the rule `{rule}`; do without it", EscapedText(program)),
        ),
        CommandRefusal::NotAllowed { program } => {
            // Each reduction can add a list, and a program needs a rule in every list.
            let lists: Vec<String> = rules.allowed().map(|list| quoted_list(&list)).collect();
            let hint = format!(
                "`{}` is not allowed; allowed: {}",
                EscapedText(program),
                lists.join("; and of these: ")
            );
            ("shell.allow".to_owned(), hint)
        }
        CommandRefusal::Operator(operator) => {
            let allowed_operators: Vec<String> =
                rules.operators().into_iter().flatten().map(ToString::to_string).collect();
            let rest = if allowed_operators.is_empty() {
                "run one plain command per call".to_owned()
            } else {
                format!("allowed: {}", quoted_list(&allowed_operators))
            };
            ("shell.operators".to_owned(), format!("`{operator}` is not allowed; {rest}"))
        }
        CommandRefusal::Unreadable(reason) => {
            // Without any rule, no command needs to be read, so one of these keys is the reason.
            let rule = if rules.denied().next().is_some() {
                "shell.deny"
            } else if rules.allowed().next().is_some() {
                "shell.allow"
            } else {
                "shell.operators"
            };
            let reason = reason.to_string();
            let reason = EscapedText(&reason);
            (
                rule.to_owned(),
                format!(
                    "commands are judged by the programs that they run, and those of this command are unknown: {reason}; name every program in plain words"
                ),
            )
        }
    }
}

/// Formats the first [`MAX_LISTED`] names.
fn quoted_list(names: &[String]) -> String {
    let quoted_names: Vec<String> = names.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let ellipsis = if names.len() > MAX_LISTED { ", …" } else { "" };
    format!("{}{ellipsis}", quoted_names.join(", "))
}

/// The maximum number of rules that a hint repeats.
const MAX_LISTED: usize = 20;
