//! The text of a question to an approver, the same for every way of asking.

use std::{collections::BTreeSet, fmt};

use portcullis_policy::{Grant, RequestedSubject};
use portcullis_types::display::{
    framed::{Framed, LineLimit},
    text,
};

use super::{ApprovalRequest, origin};

/// The number of subjects (paths, addresses, commands) that a question shows. A call with more says how many
/// more.
const MAX_NAMES: usize = 32;

/// The text of the question, wrapped at `columns`: who calls which tool with which arguments, and what the
/// call may touch. Text that a model or a tool chose is escaped, framed and bounded; the text says how much
/// was left out. It ends with a newline; the front end adds how to answer.
#[must_use]
pub fn question(request: &ApprovalRequest, columns: usize) -> String {
    let mut framed = Framed::new("This call needs your approval.", columns);
    let mut line = |name: &str, value: &str, lines: LineLimit| framed.line(name, value, lines);
    line("tool", &request.tool, LineLimit::FEW);
    line("tier", request.tier.as_str(), LineLimit::FEW);
    line("agent", &request.agent_id, LineLimit::FEW);
    line("run", &request.run_id, LineLimit::FEW);
    line("call", &request.call_id, LineLimit::FEW);
    line("runs", &place(&request.grant, request.unconfined), LineLimit::FEW);
    if request.steps.is_empty() {
        touches(&mut line, &request.grant);
    }
    for step in &request.steps {
        step_touches(&mut line, &step.step, &step.grant);
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

/// Where a call runs, and what confines it there.
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

/// Adds the lines on one step's grant; no other step holds this grant at the same time.
fn step_touches(line: &mut impl FnMut(&str, &str, LineLimit), step: &str, grant: &Grant) {
    line("in a step", &format!("{step}, by itself"), LineLimit::FEW);
    touches(line, grant);
}

/// Adds the lines on a grant: the mounts that it opens, and the subjects that the arguments name.
fn touches(line: &mut impl FnMut(&str, &str, LineLimit), grant: &Grant) {
    let mounts: Vec<String> =
        grant.mounts.iter().map(|mount| format!("/{} ({})", mount.name, mount.access)).collect();
    let mounts = if mounts.is_empty() { "no folder".to_owned() } else { mounts.join(", ") };
    line("may touch", &format!("{mounts}; profile {}", grant.profile), LineLimit::FEW);
    if let Some(network) = &grant.network {
        let methods: Vec<&str> = network.methods.iter().map(|method| method.as_str()).collect();
        line("may request", &format!("{} by {}", rules(&network.hosts), methods.join(", ")), LineLimit::FEW);
    }
    // Only in a session that is confined as `strong`; any other has no network.
    if let Some(network) = grant.shell.as_ref().and_then(|shell| shell.network.as_ref()) {
        line(
            "may reach",
            &format!("{} by TLS, with whatever it reads", rules(&network.hosts)),
            LineLimit::FEW,
        );
    }
    for subject in grant.subjects.iter().take(MAX_NAMES) {
        let (argument, what, value) = match subject {
            RequestedSubject::Path { argument, path, access } => (argument, access.as_str(), path.as_str()),
            RequestedSubject::Url { argument, url } => (argument, "fetch", url.as_str()),
            RequestedSubject::Command { argument, command } => (argument, "execute", command.as_str()),
        };
        // The value comes last: text of ours behind it could be taken for a part of it.
        line("names", &format!("{what}, `{argument}`: {value}"), LineLimit::MANY);
        if let Some(origin) = origin(subject) {
            line("which leads to", &origin, LineLimit::FEW);
        }
    }
    for secret in grant.secrets_of_subjects() {
        line("carries", &format!("the secret `{}`, which the host attaches", secret.name), LineLimit::FEW);
    }
    // A redirect, or a request that the arguments do not name.
    for secret in grant.secrets_beside_subjects() {
        let to = rules(&secret.hosts);
        line("may carry", &format!("the secret `{}`, to {to}", secret.name), LineLimit::FEW);
    }
    if let Some(matched) = &grant.flow {
        let read = format!(
            "call `{}` of this run has read `{}`; asked by `{}`",
            matched.call_id, matched.label, matched.rule
        );
        line("flow", &read, LineLimit::FEW);
    }
    if let Some(more) = grant.subjects.len().checked_sub(MAX_NAMES).filter(|more| *more > 0) {
        line("names more", &format!("{more} that are not shown"), LineLimit::FEW);
    }
}

/// Rules of hosts as a list; a long one is cut.
fn rules<R: fmt::Display>(hosts: &BTreeSet<R>) -> String {
    let shown: Vec<String> = hosts.iter().take(MAX_NAMES).map(ToString::to_string).collect();
    let more = if hosts.len() > MAX_NAMES { ", and more" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use portcullis_policy::{
        CallRequest, DEFAULT_POLICY, LoadOptions, Operation, PolicySource, RunFacts, Standing, ToolFacts,
        ToolOrigin, WorkspaceSecurityPolicy,
    };
    use portcullis_types::{SandboxTier, ToolName, ToolPolicy};

    use super::*;
    use crate::{
        Caller, ToolRegistry,
        approval::{ApprovalAnswer, Approver},
        new_call,
    };

    /// Keeps the question and denies.
    #[derive(Default)]
    struct Keeps(Mutex<String>);

    #[async_trait]
    impl Approver for Keeps {
        async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
            *self.0.lock().expect("not poisoned") = question(request, 80);
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
    fn the_question_shows_each_step_with_its_grant() {
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
            let Ok(grant) =
                policy.authorize(&CallRequest { tool: &facts, subjects: &[], run: &RunFacts::default() })
            else {
                panic!("the shipped policy allows it");
            };
            step_touches(&mut |name, value, _| shown += &format!("{name}: {value}\n"), step, &grant);
        }
        assert_eq!(
            shown,
            "in a step: vault_copyto_read, by itself\nmay touch: /vault (read); profile VaultRead\n\
             in a step: vault_copyto_write, by itself\nmay touch: /shared (write), /tmp (write); profile VaultWrite\n"
        );
    }

    #[test]
    fn the_question_names_the_secrets_that_a_call_carries() {
        let text = format!(
            "{DEFAULT_POLICY}\n[secrets.api]\nfrom = \"env:A\"\nhosts = [\"https://a.example\"]\nheader = \"X-A\"\ntools = [\"web_fetch\"]\n"
        );
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let facts = ToolFacts {
            name: ToolName::parse("web_fetch_request").expect("a name"),
            declared_tier: None,
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: Vec::new(),
            origin: ToolOrigin::ShippedOperation,
            standing: Standing::Unpinned,
        };
        let shown = |url: &str| {
            let subjects = [RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            let request = CallRequest { tool: &facts, subjects: &subjects, run: &RunFacts::default() };
            let Ok(grant) = policy.authorize(&request) else { panic!("the shipped policy allows it") };
            let mut shown = String::new();
            touches(&mut |name, value, _| shown += &format!("{name}: {value}\n"), &grant);
            shown
        };
        let carries = "carries: the secret `api`, which the host attaches\n";
        let may_carry = "may carry: the secret `api`, to https://a.example\n";
        let (own, other) = (shown("https://a.example/x"), shown("https://b.example/x"));
        assert!(own.contains(carries) && !own.contains(may_carry), "{own}");
        assert!(other.contains(may_carry) && !other.contains("carries"), "{other}");
    }

    #[test]
    fn the_question_names_the_hosts_that_a_command_reaches() {
        let text = DEFAULT_POLICY
            .replace("posture     = \"contained\"", "posture = \"strong\"\nhosts = [\"https://github.com\"]");
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let facts = ToolFacts {
            name: ToolName::parse("shell_exec").expect("a name"),
            declared_tier: Some(portcullis_types::SafetyTier::Privileged),
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: vec![portcullis_types::ArgumentRole {
                argument: "command".to_owned(),
                role: portcullis_types::RoleKind::Command,
            }],
            origin: ToolOrigin::ShippedShell,
            standing: Standing::Unpinned,
        };
        let request = CallRequest { tool: &facts, subjects: &[], run: &RunFacts::default() };
        let Ok(grant) = policy.authorize(&request) else { panic!("the shipped policy asks") };
        let mut shown = String::new();
        touches(&mut |name, value, _| shown += &format!("{name}: {value}\n"), &grant);
        assert!(shown.contains("may reach: https://github.com by TLS"), "{shown}");
    }

    #[test]
    fn the_question_says_where_an_address_really_leads() {
        let text =
            DEFAULT_POLICY.replace("hosts = [\"https://*\"]", "hosts = [\"https://*\", \"http://*:81\"]");
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        })
        .expect("loads");
        let Some(request) = Operation::WEB_FETCH.steps.first() else { panic!("it has a step") };
        let facts = ToolFacts {
            name: ToolName::parse(*request).expect("a name"),
            declared_tier: None,
            declared_policy: ToolPolicy::Auto,
            declared_timeout: None,
            declared_max_output: None,
            roles: Vec::new(),
            origin: ToolOrigin::ShippedOperation,
            standing: Standing::Unpinned,
        };
        for (url, leads_to) in [
            ("https://\u{430}pple.com/login", "https://xn--pple-43d.com"),
            ("https://example.com.:443/?https://other.test", "https://example.com"),
            ("http://0x8.010.8.8:81/", "http://8.8.8.8:81"),
        ] {
            let subjects = [RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            let run = RunFacts::default();
            let Ok(grant) = policy.authorize(&CallRequest { tool: &facts, subjects: &subjects, run: &run })
            else {
                panic!("the policy allows it");
            };
            let mut shown = String::new();
            touches(&mut |name, value, _| shown += &format!("{name}: {value}\n"), &grant);
            assert_eq!(
                shown,
                format!(
                    "may touch: no folder; profile Web\nmay request: http://*:81, https://* by GET, HEAD\n\
                     names: fetch, `url`: {url}\nwhich leads to: {leads_to}\n"
                )
            );
        }
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
            origin: ToolOrigin::ShippedShell,
            standing: Standing::Unpinned,
        };
        let command = "rm -rf /shared".to_owned();
        let subjects = [RequestedSubject::Command { argument: "command".to_owned(), command }];
        let Ok(grant) =
            policy.authorize(&CallRequest { tool: &facts, subjects: &subjects, run: &RunFacts::default() })
        else {
            panic!("the shipped policy has a shell");
        };
        assert_eq!(
            place(&grant, false),
            "in a shell session, confined at least as `contained`; 256 processes, files up to 1 GiB"
        );
        assert!(place(&grant, true).contains("on the host, unconfined"));
        let mut shown = String::new();
        touches(&mut |name, value, _| shown += &format!("{name}: {value}\n"), &grant);
        assert_eq!(
            shown,
            "may touch: /shared (write), /tmp (write); profile Shell\nnames: execute, `command`: rm -rf /shared\n"
        );
    }
}
