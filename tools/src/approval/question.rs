//! The text of a question to an approver. Every front end shows the same text.

use std::{collections::BTreeSet, fmt};

use portcullis_policy::{Grant, RequestedSubject};
use portcullis_types::display::{
    framed::{Framed, LineLimit},
    text,
};

use super::{ApprovalRequest, origin};
use crate::audit::Confinement;

/// The maximum number of subjects (paths, URLs, commands) that a question lists. It gives only the count of
/// the rest.
const MAX_NAMES: usize = 32;

/// Formats the question, wrapped at `columns`: who calls which tool with which arguments, and what the call
/// may access. Text from a model or a tool is escaped, framed and truncated, and the question says how much
/// is left out. The text ends with a newline. The front end then prints how to answer.
#[must_use]
pub fn question(request: &ApprovalRequest, columns: usize) -> String {
    let mut framed = Framed::new("This call needs your approval.", columns);
    let mut line = |name: &str, value: &str, lines: LineLimit| framed.push_value(name, value, lines);
    line("tool", &request.tool, LineLimit::FEW);
    line("tier", request.tier.as_str(), LineLimit::FEW);
    line("agent", &request.agent_id, LineLimit::FEW);
    line("run", &request.run_id, LineLimit::FEW);
    line("call", &request.call_id, LineLimit::FEW);
    line("runs", &where_the_call_runs(request), LineLimit::FEW);
    if request.steps.is_empty() {
        add_grant_lines(&mut line, &request.grant);
    }
    for step in &request.steps {
        add_step_lines(&mut line, &step.step, &step.grant);
    }
    let limits = &request.grant.limits;
    let timeout = humantime::format_duration(limits.timeout);
    let output = text::bytes(limits.max_output.0);
    let limits = if request.unconfined {
        format!("{timeout}, {output} of output")
    } else {
        format!("{timeout}, {} of memory, {output} of output", text::bytes(limits.memory.0))
    };
    line("limits", &limits, LineLimit::FEW);
    line("arguments", &request.arguments, LineLimit::MANY);
    framed.finish()
}

/// Says where the call of a request runs, if it runs on this machine at all.
fn where_the_call_runs(request: &ApprovalRequest) -> String {
    match request.confinement {
        Confinement::External => "nowhere here: a person or another program submits the result".to_owned(),
        Confinement::Internal => "nowhere: the call returns its arguments".to_owned(),
        Confinement::Egress if request.steps.is_empty() => {
            "as a request that the host makes, on a confined thread".to_owned()
        }
        Confinement::Egress | Confinement::Wasm | Confinement::Shell | Confinement::Native => {
            where_it_runs(&request.grant, request.unconfined)
        }
    }
}

/// Says where a call runs, and what confines it there.
fn where_it_runs(grant: &Grant, unconfined: bool) -> String {
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

/// Adds the lines about one step's grant. No other step holds this grant at the same time.
fn add_step_lines(line: &mut impl FnMut(&str, &str, LineLimit), step: &str, grant: &Grant) {
    line("in a step", &format!("{step}, by itself"), LineLimit::FEW);
    add_grant_lines(line, grant);
}

/// Adds the lines about a grant: the mounts that it opens, and the subjects that the arguments name.
fn add_grant_lines(line: &mut impl FnMut(&str, &str, LineLimit), grant: &Grant) {
    let mounts: Vec<String> =
        grant.mounts.iter().map(|mount| format!("/{} ({})", mount.name, mount.access)).collect();
    let mounts = if mounts.is_empty() { "no folder".to_owned() } else { mounts.join(", ") };
    line("may touch", &format!("{mounts}; profile {}", grant.profile), LineLimit::FEW);
    if let Some(network) = &grant.network {
        let methods: Vec<&str> = network.methods.iter().map(|method| method.as_str()).collect();
        line("may request", &format!("{} by {}", rules(&network.hosts), methods.join(", ")), LineLimit::FEW);
    }
    // Only a session with the posture `strong` has a network.
    if let Some(network) = grant.shell.as_ref().and_then(|shell| shell.network.as_ref()) {
        line(
            "may reach",
            &format!("{} by TLS, with whatever it reads", rules(&network.hosts)),
            LineLimit::FEW,
        );
    }
    for subject in grant.subjects.iter().take(MAX_NAMES) {
        let (argument, content, value) = match subject {
            RequestedSubject::Path { argument, path, access } => (argument, access.as_str(), path.as_str()),
            RequestedSubject::Url { argument, url } => (argument, "fetch", url.as_str()),
            RequestedSubject::Command { argument, command } => (argument, "execute", command.as_str()),
        };
        // The value comes last. Any text of ours after it could be mistaken for a part of the value.
        line("names", &format!("{content}, `{argument}`: {value}"), LineLimit::MANY);
        if let Some(origin) = origin(subject) {
            line("which leads to", &origin, LineLimit::FEW);
        }
    }
    for secret in grant.secrets_of_subjects() {
        line("carries", &format!("the secret `{}`, which the host attaches", secret.name), LineLimit::FEW);
    }
    // These secrets are sent only on redirects, or with requests that the arguments do not name.
    for secret in grant.secrets_of_other_requests() {
        let hosts_text = rules(&secret.hosts);
        line("may carry", &format!("the secret `{}`, to {hosts_text}", secret.name), LineLimit::FEW);
    }
    if let Some(flow_match) = &grant.flow {
        let flow_text = format!(
            "call `{}` of this run has read `{}`; asked by `{}`",
            flow_match.call_id, flow_match.label, flow_match.rule
        );
        line("flow", &flow_text, LineLimit::FEW);
    }
    if let Some(hidden_count) = grant.subjects.len().checked_sub(MAX_NAMES).filter(|count| *count > 0) {
        line("names more", &format!("{hidden_count} that are not shown"), LineLimit::FEW);
    }
}

/// Formats host rules as a list of at most [`MAX_NAMES`] rules.
fn rules<R: fmt::Display>(hosts: &BTreeSet<R>) -> String {
    let host_texts: Vec<String> = hosts.iter().take(MAX_NAMES).map(ToString::to_string).collect();
    let more_mark = if hosts.len() > MAX_NAMES { ", and more" } else { "" };
    format!("{}{more_mark}", host_texts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use portcullis_policy::{
        CallRequest, DEFAULT_POLICY, LoadOptions, Operation, PinStatus, PolicySource, RunContext,
        ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy,
    };
    use portcullis_types::{SandboxTier, ToolName, ToolPolicy};

    use super::*;
    use crate::{
        Caller, ToolRegistry,
        approval::{ApprovalAnswer, Approver, AttributedAnswer},
        new_call,
    };

    /// Records the question, and denies the call.
    #[derive(Default)]
    struct RecordingApprover(Mutex<String>);

    #[async_trait]
    impl Approver for RecordingApprover {
        async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
            *self.0.lock().expect("not poisoned") = question(request, 80);
            ApprovalAnswer::Deny { reason: None }.into()
        }
    }

    fn load(text: &str) -> WorkspaceSecurityPolicy {
        WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads")
    }

    /// A tool that declares only its name.
    fn tool(name: &str, origin: ToolOrigin) -> ToolDescriptor {
        ToolDescriptor {
            name: ToolName::parse(name).expect("a name"),
            declared_tier: None,
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: Vec::new(),
            origin,
            pin_status: PinStatus::Unpinned,
        }
    }

    #[test]
    fn the_question_shows_everything_and_nothing_that_deceives() {
        let state = tempfile::tempdir().expect("a folder");
        let text =
            format!("{DEFAULT_POLICY}\n[tools.echo]\napproval = \"ask\"\nprofile = \"FileReadWrite\"\n");
        let policy = load(&text);
        let registry = ToolRegistry::builder().default_tools().policy(policy).state(state.path());
        let registry = registry.build().expect("builds");
        let approver = Arc::new(RecordingApprover::default());
        let mut caller = Caller::new("cli", "run\u{202e}1");
        caller.approver = Some(Arc::clone(&approver) as Arc<dyn Approver>);
        let mut call =
            new_call("echo", "{\"message\": \"a\u{1b}[2K\u{202e}b\"}".replace('\u{1b}', "\\u001b"));
        call.id = "call_1".into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let result = runtime.block_on(registry.execute_with_policy(call, &caller));
        result.into_result().expect_err("refused");
        insta::assert_snapshot!(approver.0.lock().expect("not poisoned").as_str());
    }

    #[test]
    fn the_question_shows_each_step_with_its_grant() {
        let operation = Operation::VAULT_COPYTO;
        let policy = load(DEFAULT_POLICY);
        let mut lines = String::new();
        for step in operation.steps {
            let descriptor = tool(step, ToolOrigin::ShippedOperation);
            let Ok(grant) = policy.authorize(&CallRequest {
                tool: &descriptor,
                subjects: &[],
                run: &RunContext::default(),
            }) else {
                panic!("the shipped policy allows it");
            };
            add_step_lines(&mut |name, value, _| lines += &format!("{name}: {value}\n"), step, &grant);
        }
        assert_eq!(
            lines,
            "in a step: vault_copyto_read, by itself\nmay touch: /vault (read); profile VaultRead\n\
             in a step: vault_copyto_write, by itself\nmay touch: /shared (write), /tmp (write); profile VaultWrite\n"
        );
    }

    #[test]
    fn the_question_names_the_secrets_that_a_call_carries() {
        let text = format!(
            "{DEFAULT_POLICY}\n[secrets.api]\nfrom = \"env:A\"\nhosts = [\"https://a.example\"]\nheader = \"X-A\"\ntools = [\"web_fetch\"]\n"
        );
        let policy = load(&text);
        let descriptor = tool("web_fetch_request", ToolOrigin::ShippedOperation);
        let lines_for = |url: &str| {
            let subjects = [RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            let request = CallRequest { tool: &descriptor, subjects: &subjects, run: &RunContext::default() };
            let Ok(grant) = policy.authorize(&request) else { panic!("the shipped policy allows it") };
            let mut lines = String::new();
            add_grant_lines(&mut |name, value, _| lines += &format!("{name}: {value}\n"), &grant);
            lines
        };
        let carries_line = "carries: the secret `api`, which the host attaches\n";
        let may_carry_line = "may carry: the secret `api`, to https://a.example\n";
        let (lines_of_argument, lines_of_other_host) =
            (lines_for("https://a.example/x"), lines_for("https://b.example/x"));
        assert!(
            lines_of_argument.contains(carries_line) && !lines_of_argument.contains(may_carry_line),
            "{lines_of_argument}"
        );
        assert!(
            lines_of_other_host.contains(may_carry_line) && !lines_of_other_host.contains("carries"),
            "{lines_of_other_host}"
        );
    }

    #[test]
    fn the_question_names_the_hosts_that_a_command_reaches() {
        let text = DEFAULT_POLICY
            .replace("posture     = \"contained\"", "posture = \"strong\"\nhosts = [\"https://github.com\"]");
        let policy = load(&text);
        let descriptor = ToolDescriptor {
            declared_tier: Some(portcullis_types::SafetyTier::Privileged),
            roles: vec![portcullis_types::ArgumentRole {
                argument: "command".to_owned(),
                role: portcullis_types::RoleKind::Command,
            }],
            ..tool("shell_exec", ToolOrigin::ShippedShell)
        };
        let request = CallRequest { tool: &descriptor, subjects: &[], run: &RunContext::default() };
        let Ok(grant) = policy.authorize(&request) else { panic!("the shipped policy asks") };
        let mut lines = String::new();
        add_grant_lines(&mut |name, value, _| lines += &format!("{name}: {value}\n"), &grant);
        assert!(lines.contains("may reach: https://github.com by TLS"), "{lines}");
    }

    #[test]
    fn the_question_says_where_an_address_really_leads() {
        let text =
            DEFAULT_POLICY.replace("hosts = [\"https://*\"]", "hosts = [\"https://*\", \"http://*:81\"]");
        let policy = load(&text);
        let Some(request) = Operation::WEB_FETCH.steps.first() else { panic!("it has a step") };
        let descriptor = tool(request, ToolOrigin::ShippedOperation);
        for (url, target) in [
            ("https://\u{430}pple.com/login", "https://xn--pple-43d.com"),
            ("https://example.com.:443/?https://other.test", "https://example.com"),
            ("http://0x8.010.8.8:81/", "http://8.8.8.8:81"),
        ] {
            let subjects = [RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            let run = RunContext::default();
            let Ok(grant) =
                policy.authorize(&CallRequest { tool: &descriptor, subjects: &subjects, run: &run })
            else {
                panic!("the policy allows it");
            };
            let mut lines = String::new();
            add_grant_lines(&mut |name, value, _| lines += &format!("{name}: {value}\n"), &grant);
            assert_eq!(
                lines,
                format!(
                    "may touch: no folder; profile Web\nmay request: http://*:81, https://* by GET, HEAD\n\
                     names: fetch, `url`: {url}\nwhich leads to: {target}\n"
                )
            );
        }
    }

    #[test]
    fn the_question_says_where_a_command_runs_and_what_holds_it() {
        let policy = load(DEFAULT_POLICY);
        let role = portcullis_types::ArgumentRole {
            argument: "command".to_owned(),
            role: portcullis_types::RoleKind::Command,
        };
        let descriptor = ToolDescriptor {
            declared_tier: Some(portcullis_types::SafetyTier::Privileged),
            roles: vec![role],
            ..tool("shell_exec", ToolOrigin::ShippedShell)
        };
        let command = "rm -rf /shared".to_owned();
        let subjects = [RequestedSubject::Command { argument: "command".to_owned(), command }];
        let Ok(grant) = policy.authorize(&CallRequest {
            tool: &descriptor,
            subjects: &subjects,
            run: &RunContext::default(),
        }) else {
            panic!("the shipped policy has a shell");
        };
        assert_eq!(
            where_it_runs(&grant, false),
            "in a shell session, confined at least as `contained`; 256 processes, files up to 1 GiB"
        );
        assert!(where_it_runs(&grant, true).contains("on the host, unconfined"));
        let mut lines = String::new();
        add_grant_lines(&mut |name, value, _| lines += &format!("{name}: {value}\n"), &grant);
        assert_eq!(
            lines,
            "may touch: /shared (write), /tmp (write); profile Shell\nnames: execute, `command`: rm -rf /shared\n"
        );
    }
}
