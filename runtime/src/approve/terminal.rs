//! Asks the person at the terminal: shows the call in full and what it may touch, and takes a clear yes
//! for a yes.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
};

use async_trait::async_trait;
use portcullis_tools::{
    approval::{ApprovalAnswer, ApprovalRequest, Approver},
    policy::{Grant, RequestedSubject},
};
use rustix::termios::{QueueSelector, tcflush};

use crate::output::text;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The person at the terminal.
#[derive(Debug)]
pub(crate) struct TerminalApprover {
    terminal: File,
}

impl TerminalApprover {
    /// The terminal of this process, where a person sits at it: standard input or standard error is one. A
    /// program whose streams all lead elsewhere is not a person, even if it was started from a terminal.
    pub(crate) fn find() -> Option<Self> {
        if !io::stdin().is_terminal() && !io::stderr().is_terminal() {
            return None;
        }
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        terminal.is_terminal().then_some(Self { terminal })
    }
}

#[async_trait]
impl Approver for TerminalApprover {
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let question = question(request);
        let Ok(terminal) = self.terminal.try_clone() else { return no_answer() };
        // The thread waits for a person, perhaps beyond the call's end; the process does not wait for it.
        let asked = tokio::task::spawn_blocking(move || ask(terminal, &question));
        match asked.await {
            Ok(Ok(line)) => understand(&line),
            Ok(Err(_)) | Err(_) => no_answer(),
        }
    }
}

fn ask(mut terminal: File, question: &str) -> io::Result<String> {
    // What was typed before the question was no answer to it.
    tcflush(&terminal, QueueSelector::IFlush)?;
    terminal.write_all(question.as_bytes())?;
    let mut line = String::new();
    BufReader::new(terminal.take(MAX_ANSWER_BYTES)).read_line(&mut line)?;
    Ok(line)
}

/// Only a clear yes is a yes; what is neither yes nor no is a no with a reason.
fn understand(line: &str) -> ApprovalAnswer {
    let answer = line.trim();
    match answer.to_ascii_lowercase().as_str() {
        "y" | "yes" => ApprovalAnswer::Approve,
        "" | "n" | "no" => ApprovalAnswer::Deny { reason: None },
        _ => ApprovalAnswer::Deny { reason: Some(answer.to_owned()) },
    }
}

fn no_answer() -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: Some("the terminal gave no answer".to_owned()) }
}

/// The question. Everything that a model or a tool chose is escaped.
pub(crate) fn question(request: &ApprovalRequest) -> String {
    let mut out = String::from("\nThis call needs your approval.\n");
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {name:<10} {}", text::inline(value));
    };
    line("tool", &request.tool);
    line("tier", request.tier.as_str());
    line(
        "asked by",
        &format!("agent {}, run {}, call {}", request.agent_id, request.run_id, request.call_id),
    );
    line("runs", &place(&request.grant, request.unconfined));
    if request.steps.is_empty() {
        touches(&mut line, &request.grant);
    }
    for step in &request.steps {
        step_touches(&mut line, &step.step, &step.grant);
    }
    let limits = &request.grant.limits;
    let timeout = humantime::format_duration(limits.timeout);
    let output = text::bytes(limits.max_output.0);
    if request.unconfined {
        line("limits", &format!("{timeout}, {output} of output"));
    } else {
        line("limits", &format!("{timeout}, {} of memory, {output} of output", text::bytes(limits.memory.0)));
    }
    line("arguments", &request.arguments);
    out.push_str("Approve? y = yes, n = no; any other text is a no with that reason: ");
    out
}

/// Where a call runs, and what holds it there.
fn place(grant: &Grant, unconfined: bool) -> String {
    match (&grant.shell, unconfined) {
        (None, false) => "in the WASM sandbox".to_owned(),
        (None, true) => "native, unconfined: no sandbox holds it".to_owned(),
        (Some(_), true) => "in a shell on the host, unconfined: no sandbox holds it".to_owned(),
        (Some(shell), false) => format!(
            "in a shell session, confined at least as `{}`; {} processes, files up to {}",
            shell.posture,
            shell.processes,
            text::bytes(shell.file_size.0)
        ),
    }
}

/// What a step of an operation may touch, while no other step may.
fn step_touches(line: &mut impl FnMut(&str, &str), step: &str, grant: &Grant) {
    line("in a step", &format!("{step}, by itself"));
    touches(line, grant);
}

/// What a grant opens, and what of it the arguments name.
fn touches(line: &mut impl FnMut(&str, &str), grant: &Grant) {
    let mounts: Vec<String> =
        grant.mounts.iter().map(|mount| format!("/{} ({})", mount.name, mount.access)).collect();
    let mounts = if mounts.is_empty() { "no folder".to_owned() } else { mounts.join(", ") };
    line("may touch", &format!("{mounts}; profile {}", grant.profile));
    for subject in &grant.subjects {
        let (argument, what, value) = match subject {
            RequestedSubject::Path { argument, path, access } => (argument, access.as_str(), path.as_str()),
            RequestedSubject::Url { argument, url } => (argument, "fetch", url.as_str()),
            RequestedSubject::Command { argument, command } => (argument, "execute", command.as_str()),
        };
        line("names", &format!("{value} ({what}, `{argument}`)"));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, sync::Mutex};

    use portcullis_tools::{
        Caller, ToolRegistry, new_call,
        policy::{
            CallRequest, DEFAULT_POLICY, Decision, LoadOptions, Operation, PolicySource, Standing, ToolFacts,
            ToolOrigin, WorkspaceSecurityPolicy,
        },
    };
    use portcullis_types::{SandboxTier, ToolName, ToolPolicy};

    use super::*;

    /// Keeps what it is asked and says no.
    #[derive(Default)]
    struct Keeps(Mutex<String>);

    #[async_trait]
    impl Approver for Keeps {
        async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
            *self.0.lock().expect("not poisoned") = question(request);
            ApprovalAnswer::Deny { reason: None }
        }
    }

    #[test]
    fn the_question_shows_everything_and_nothing_that_deceives() {
        let state = tempfile::tempdir().expect("a folder");
        let text =
            format!("{DEFAULT_POLICY}\n[tools.echo]\napproval = \"ask\"\nprofile = \"FileReadWrite\"\n");
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let registry = ToolRegistry::builder().default_tools().policy(policy).state(state.path());
        let registry = registry.build().expect("builds");
        let keeps = Arc::new(Keeps::default());
        let mut caller = Caller::new("cli", "run\u{202e}1");
        caller.approver = Some(Arc::clone(&keeps) as Arc<dyn Approver>);
        let mut call =
            new_call("echo", "{\"message\": \"a\u{1b}[2K\u{202e}b\"}".replace('\u{1b}', "\\u001b"));
        call.id = "call_1".into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let result = runtime.block_on(registry.execute_with_policy(call, &caller));
        result.outcome.expect_err("refused");
        insta::assert_snapshot!(keeps.0.lock().expect("not poisoned").as_str());
    }

    #[test]
    fn the_question_shows_each_step_of_an_operation_with_what_it_may_touch() {
        let operation = Operation::VAULT_COPYTO;
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: DEFAULT_POLICY },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let mut shown = String::new();
        for step in operation.steps {
            let facts = ToolFacts {
                name: ToolName::parse(*step).expect("a name"),
                declared_tier: None,
                declared_policy: ToolPolicy::Auto,
                declared_timeout: None,
                declared_max_output: None,
                roles: Vec::new(),
                origin: ToolOrigin::ShippedOperation,
                standing: Standing::Unpinned,
            };
            let Decision::Allow(grant) = policy.authorize(&CallRequest { tool: &facts, subjects: &[] })
            else {
                panic!("the shipped policy allows it");
            };
            step_touches(&mut |name, value| shown += &format!("{name}: {value}\n"), step, &grant);
        }
        assert_eq!(
            shown,
            "in a step: vault_copyto_read, by itself\nmay touch: /vault (read); profile VaultRead\n\
             in a step: vault_copyto_write, by itself\nmay touch: /shared (write), /tmp (write); profile VaultWrite\n"
        );
    }

    #[test]
    fn the_question_says_where_a_command_runs_and_what_holds_it() {
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: DEFAULT_POLICY },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let role = portcullis_types::ArgumentRole {
            argument: "command".to_owned(),
            role: portcullis_types::RoleKind::Command,
        };
        let facts = ToolFacts {
            name: ToolName::parse("shell_exec").expect("a name"),
            declared_tier: Some(portcullis_types::SafetyTier::Privileged),
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: vec![role],
            origin: ToolOrigin::ShippedNative,
            standing: Standing::Unpinned,
        };
        let command = "rm -rf /shared".to_owned();
        let subjects = [RequestedSubject::Command { argument: "command".to_owned(), command }];
        let Decision::Allow(grant) = policy.authorize(&CallRequest { tool: &facts, subjects: &subjects })
        else {
            panic!("the shipped policy has a shell");
        };
        assert_eq!(
            place(&grant, false),
            "in a shell session, confined at least as `contained`; 256 processes, files up to 1 GiB"
        );
        assert!(place(&grant, true).contains("on the host, unconfined"));
        let mut shown = String::new();
        touches(&mut |name, value| shown += &format!("{name}: {value}\n"), &grant);
        assert_eq!(
            shown,
            "may touch: /shared (write), /tmp (write); profile Shell\nnames: rm -rf /shared (execute, `command`)\n"
        );
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let no = |reason: Option<&str>| ApprovalAnswer::Deny { reason: reason.map(str::to_owned) };
        for (line, answer) in [
            ("y\n", ApprovalAnswer::Approve),
            (" YES \n", ApprovalAnswer::Approve),
            ("", no(None)),
            ("\n", no(None)),
            ("n\n", no(None)),
            ("yes, but not there\n", no(Some("yes, but not there"))),
        ] {
            assert_eq!(understand(line), answer, "{line:?}");
        }
    }
}
