//! Compares the evaluator with a model, on random policies and calls, and checks that reductions only take away.
//!
//! The model works on texts where the evaluator works on parsed values: it searches path strings, and a policy is a
//! list of lines. The test misses an error only if both make it.

use std::collections::BTreeMap;

use portcullis_policy::{
    Approval, Denial, Grant, NetworkGrant, RequestedSubject, ShellPolicy, ToolDescriptor, ToolOrigin,
    WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, SafetyTier, ToolPolicy};
use proptest::prelude::*;

use crate::{
    random::{
        Lines, MOUNTS, OPERATOR, OVERLAY, PROFILES, lines, operator_text, plain_text, some_command,
        some_path, some_tool, some_url,
    },
    shell::shell_exec,
    support::{decide, path, try_load},
};

/// The model's verdict on one call: the mounts of the grant, or the code of the denial.
type Verdict = Result<BTreeMap<String, String>, &'static str>;

/// The mounts of a profile, read from the lines.
fn model_mounts(lines: &Lines, profile: &str) -> BTreeMap<String, String> {
    let prefix = format!("profiles.{profile}.mounts.");
    let mounts = lines.iter().filter_map(|(key, value)| {
        key.strip_prefix(&prefix).map(|mount| (mount.to_owned(), value.trim_matches('\'').to_owned()))
    });
    let always = PROFILES.contains(&profile).then(|| ("tmp2".to_owned(), "read".to_owned()));
    mounts.chain(always).collect()
}

/// Whether the policy obeys the rules about the vault, and therefore loads.
fn model_loads(lines: &Lines) -> bool {
    let profiles_hold = PROFILES.iter().all(|profile| {
        let mounts = model_mounts(lines, profile);
        let hosts = lines.get(format!("profiles.{profile}.hosts").as_str());
        let has_hosts = hosts.is_some_and(|hosts| *hosts != "[]");
        !mounts.contains_key("vault") || (mounts.values().all(|access| access == "read") && !has_hosts)
    });
    let tiers_hold = lines.iter().filter(|(key, _)| key.starts_with("tiers.")).all(|(_, value)| {
        PROFILES
            .iter()
            .filter(|profile| value.contains(&format!("'{profile}'")))
            .all(|profile| !model_mounts(lines, profile).contains_key("vault"))
    });
    // The first two values of `hosts`, and the only value of the other profile, cover the secret's host.
    let reached = |profile: &str| {
        lines
            .get(format!("profiles.{profile}.hosts").as_str())
            .is_some_and(|hosts| hosts.contains("https://"))
    };
    let secrets_hold = !lines.contains_key("secrets.s") || reached("A") || reached("B");
    profiles_hold && tiers_hold && secrets_hold
}

fn model_tier(lines: &Lines, tier: Option<SafetyTier>) -> (&str, u8) {
    let name = tier.map_or("side_effecting", SafetyTier::as_str);
    let value = *lines.get(format!("tiers.{name}").as_str()).unwrap_or(&"{profile='Nothing',approval='ask'}");
    let words: Vec<&str> = value.split('\'').collect();
    (words[1], strictness(words[3]))
}

fn strictness(approval: &str) -> u8 {
    match approval {
        "allow" => 0,
        "ask" => 1,
        _ => 2,
    }
}

/// The profile of a tool, or the code that refuses the tool.
fn model_profile(lines: &Lines, tool: &ToolDescriptor) -> Result<String, &'static str> {
    let entry = |key: &str| {
        let line = lines.get(format!("tools.{}.{key}", tool.name).as_str());
        line.map(|value| value.trim_matches('\''))
    };
    let has_entry = lines.keys().any(|key| key.starts_with(&format!("tools.{}.", tool.name)));
    let is_shipped = matches!(
        tool.origin,
        ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedGateway
    );
    let foreign = tool.origin == ToolOrigin::ForeignModule;
    match entry("enabled") {
        Some("false") => return Err("tool_disabled"),
        None if tool.origin == ToolOrigin::Native => return Err("native_not_enabled"),
        _ => {}
    }
    let (tier_profile, mut tier_approval) = model_tier(lines, tool.declared_tier);
    let (_, default_approval) = model_tier(lines, None);
    if foreign && tool.declared_tier == Some(SafetyTier::ReadOnly) {
        let profile = entry("profile").unwrap_or("Nothing");
        let network = |key: &str, value: &str| {
            let line = lines.get(format!("profiles.{profile}.{key}").as_str());
            line.is_some_and(|line| line.contains(value))
        };
        let may_change = network("methods", "POST") && network("hosts", "//");
        if may_change || model_mounts(lines, profile).values().any(|access| access == "write") {
            tier_approval = default_approval;
        }
    }
    let mut demands = vec![u8::from(tool.declared_policy == ToolPolicy::RequiresApproval)];
    match entry("approval") {
        Some(approval) => demands.push(strictness(approval)),
        None => demands.push(tier_approval),
    }
    if !is_shipped {
        demands.push(tier_approval);
    }
    let external = matches!(tool.origin, ToolOrigin::External | ToolOrigin::Http);
    if (foreign || external) && entry("approval").is_none() {
        demands.push(if has_entry || external { default_approval } else { 1 });
    }
    if tool.origin == ToolOrigin::Mcp
        && entry("approval").is_none()
        && tool.declared_tier != Some(SafetyTier::ReadOnly)
    {
        demands.push(1);
    }
    if demands.contains(&2) {
        return Err("approval_denied");
    }
    let fallback = match tool.origin {
        ToolOrigin::ShippedModule | ToolOrigin::Native => tier_profile,
        ToolOrigin::ShippedNative
        | ToolOrigin::ShippedShell
        | ToolOrigin::ShippedOperation
        | ToolOrigin::ShippedGateway
        | ToolOrigin::External
        | ToolOrigin::Http
        | ToolOrigin::Mcp
        | ToolOrigin::Internal
        | ToolOrigin::ForeignModule => "Nothing",
    };
    Ok(entry("profile").unwrap_or(fallback).to_owned())
}

fn model_decides(lines: &Lines, tool: &ToolDescriptor, text: &str, access: Access) -> Verdict {
    let mounts = model_mounts(lines, &model_profile(lines, tool)?);
    // The path with a slash at both ends. A relative path starts in `/shared`.
    let mut path = if text.starts_with('/') { format!("{text}/") } else { format!("/shared/{text}/") };
    while path.contains("//") || path.contains("/./") {
        path = path.replace("//", "/").replace("/./", "/");
    }
    let (mount, below) = path[1..].split_once('/').unwrap_or_default();
    let mut resolved = String::from("/");
    if mount == ".." {
        return Err("path_escapes_mount");
    }
    for name in below.split_terminator('/') {
        if name != ".." {
            resolved = format!("{resolved}{name}/");
        } else if resolved == "/" {
            return Err("path_escapes_mount");
        } else {
            let cut = resolved[..resolved.len() - 1].rfind('/').expect("starts with one");
            resolved.truncate(cut + 1);
        }
    }
    if !MOUNTS.contains(&mount) && mount != "tmp2" {
        return Err("unknown_mount");
    }
    match (mounts.get(mount).map(String::as_str), access) {
        (None, _) => return Err("mount_not_granted"),
        (Some("read"), Access::Write) => return Err("mount_read_only"),
        (Some(_), _) => {}
    }
    let shipped = "'.git/hooks', '.git/config', '.bashrc'";
    let except = lines.get("protect.except").copied().unwrap_or_default();
    let added = lines.get("protect.paths").copied().unwrap_or_default();
    let shipped = shipped.split('\'').filter(|name| !except.contains(&format!("'{name}'")));
    let below = format!("/{below}").to_lowercase();
    let resolved = resolved.to_lowercase();
    for pattern in shipped.chain(added.split('\'')).filter(|word| word.contains(['.', '/'])) {
        let pattern = format!("/{pattern}/");
        if access == Access::Write && (below.contains(&pattern) || resolved.contains(&pattern)) {
            return Err("protected_path");
        }
    }
    Ok(mounts)
}

fn verdict(decision: &Result<Grant, Denial>) -> Verdict {
    match decision {
        Ok(grant) => {
            Ok(grant.mounts.iter().map(|mount| (mount.name.to_string(), mount.access.to_string())).collect())
        }
        Err(denial) => Err(denial.code.as_str()),
    }
}

/// Whether one grant has nothing that the other lacks.
fn is_within(grant: &Grant, wider: &Grant) -> bool {
    let mounts = grant.mounts.iter().all(|mount| wider.access_to(mount.name.as_str()) >= Some(mount.access));
    mounts
        && grant.approval >= wider.approval
        && grant.limits.timeout <= wider.limits.timeout
        && grant.limits.memory <= wider.limits.memory
        && grant.limits.max_output <= wider.limits.max_output
        && is_network_within(grant.network.as_deref(), wider.network.as_deref())
        && grant.secrets.iter().all(|secret| {
            let hosts_of =
                |name| wider.secrets.iter().find(|other| other.name == name).map(|other| &other.hosts);
            hosts_of(secret.name.clone()).is_some_and(|hosts| {
                secret.hosts.iter().all(|rule| hosts.iter().any(|wider| wider.covers_rule(rule)))
            })
        })
}

fn is_network_within(small: Option<&NetworkGrant>, large: Option<&NetworkGrant>) -> bool {
    let Some(small) = small else { return true };
    large.is_some_and(|large| {
        small.hosts.iter().all(|rule| large.hosts.iter().any(|wider| wider.covers_rule(rule)))
            && small.methods.is_subset(&large.methods)
            && small.allow_private == large.allow_private
            && small.max_response <= large.max_response
            && small.max_redirects <= large.max_redirects
    })
}

fn no_policy_wide_setting_grew(reduced: &WorkspaceSecurityPolicy, before: &WorkspaceSecurityPolicy) -> bool {
    let (small, large) = (reduced.limits(), before.limits());
    small.concurrency <= large.concurrency
        && small.calls_per_minute <= large.calls_per_minute
        && small.max_timeout <= large.max_timeout
        && before.required_layers().all(|layer| reduced.requires(layer))
        && before
            .protected()
            .patterns()
            .all(|pattern| reduced.protected().covers(pattern.split('/')).is_some())
        && reduced.mounts() == before.mounts()
        && reduced.network_ports().is_subset(&before.network_ports())
        && reduced.egress().allow_private == before.egress().allow_private
        && reduced.egress().ca == before.egress().ca
        && reduced.egress().proxy == before.egress().proxy
        && (reduced.search().is_none() || reduced.search() == before.search())
        && no_shell_grew(reduced.shell(), before.shell())
}

/// Whether a shell is absent, or has nothing that the other lacks.
fn no_shell_grew(reduced: Option<&ShellPolicy>, before: Option<&ShellPolicy>) -> bool {
    let (Some(small), Some(large)) = (reduced, before) else { return reduced.is_none() };
    small.mounts.iter().all(|mount| large.access_to(mount.name.as_str()) >= Some(mount.access))
        && small.access_to("vault").is_none()
        && small.posture >= large.posture
        && small.timeout <= large.timeout
        && small.memory <= large.memory
        && small.processes <= large.processes
        && small.file_size <= large.file_size
        && small.output <= large.output
        && small.environment.is_subset(&large.environment)
        && large.commands.denied().all(|rule| small.commands.denied().any(|other| other == rule))
        && large.commands.allowed().all(|list| small.commands.allowed().any(|other| other == list))
        && small.toolchain.read.is_subset(&large.toolchain.read)
        && small.toolchain.caches.is_subset(&large.toolchain.caches)
        && small.toolchain.variables == large.toolchain.variables
        && small
            .commands
            .allowed_commands()
            .all(|rule| large.commands.allowed_commands().any(|other| other == rule))
        && large.commands.operators().is_none_or(|operators| {
            small.commands.operators().is_some_and(|fewer| fewer.is_subset(operators))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_evaluator_decides_as_the_model(
        lines in lines(OPERATOR, 0.5),
        calls in prop::collection::vec((some_tool(), some_path()), 20),
    ) {
        let loaded = try_load(&operator_text(&lines), None);
        prop_assert_eq!(loaded.is_ok(), model_loads(&lines), "{:?}", loaded.err());
        if let Ok(policy) = loaded {
            for (tool, (text, access)) in calls {
                let decision = decide(&policy, &tool, &[path(&text, access)]);
                let expected = model_decides(&lines, &tool, &text, access);
                prop_assert_eq!(verdict(&decision), expected, "{:?} {} {}", tool, text, access);
            }
        }
    }

    #[test]
    fn a_reduction_takes_away_and_never_adds(
        operator in lines(OPERATOR, 0.4),
        overlay in lines(OVERLAY, 0.2),
        calls in prop::collection::vec((some_tool(), some_path()), 20),
    ) {
        let text = operator_text(&operator);
        let (before, reduced) = (try_load(&text, None), try_load(&text, Some(&plain_text(&overlay, ""))));
        if let (Ok(before), Ok(reduced)) = (before, reduced) {
            prop_assert!(no_policy_wide_setting_grew(&reduced, &before));
            for (tool, (text, access)) in calls {
                let subjects = [path(&text, access)];
                match (decide(&reduced, &tool, &subjects), decide(&before, &tool, &subjects)) {
                    (Ok(grant), Ok(wider)) => {
                        prop_assert!(is_within(&grant, &wider), "{:?}\n{:?}", grant, wider);
                    }
                    (Ok(grant), Err(denial)) => {
                        prop_assert!(false, "added {:?}, before: {}", grant, denial);
                    }
                    (Err(_), _) => {}
                }
            }
        }
    }

    #[test]
    fn a_command_that_is_denied_stays_denied_whatever_is_taken_away(
        operator in lines(OPERATOR, 0.3),
        overlay in lines(OVERLAY, 0.1),
        commands in prop::collection::vec(some_command(), 10),
    ) {
        let text = operator_text(&operator);
        let (before, reduced) = (try_load(&text, None), try_load(&text, Some(&plain_text(&overlay, ""))));
        if let (Ok(before), Ok(reduced)) = (before, reduced) {
            for command in commands {
                let subjects = [RequestedSubject::Command { argument: "command".into(), command }];
                match (decide(&reduced, &shell_exec(), &subjects), decide(&before, &shell_exec(), &subjects)) {
                    (Ok(grant), Ok(wider)) => {
                        prop_assert!(is_within(&grant, &wider), "{:?}\n{:?}", grant, wider);
                        prop_assert!(grant.shell.is_some() && grant.access_to("vault").is_none());
                    }
                    (Ok(grant), Err(denial)) => {
                        prop_assert!(false, "added {:?}, before: {}", grant, denial);
                    }
                    (Err(_), _) => {}
                }
            }
        }
    }

    #[test]
    fn a_request_that_is_denied_stays_denied_whatever_is_taken_away(
        operator in lines(OPERATOR, 0.4),
        overlay in lines(OVERLAY, 0.1),
        tool in some_tool(),
        requests in prop::collection::vec((some_url(), prop::sample::select(vec!["GET", "POST", "PUT"])), 20),
    ) {
        let text = operator_text(&operator);
        let (before, reduced) = (try_load(&text, None), try_load(&text, Some(&plain_text(&overlay, ""))));
        if let (Ok(before), Ok(reduced)) = (before, reduced) {
            let (wider, grant) = (decide(&before, &tool, &[]), decide(&reduced, &tool, &[]));
            for (url, method) in requests {
                let request = |grant: &Result<Grant, Denial>| grant.clone()?.judge_request(method, &url);
                if let Ok(judged) = request(&grant) {
                    prop_assert_eq!(Ok(judged), request(&wider), "{}", url);
                }
                // An argument is granted only if some request to its URL could be granted.
                let subject = [RequestedSubject::Url { argument: "url".into(), url: url.clone() }];
                let any_method = ["GET", "POST"].into_iter().any(|method| {
                    wider.clone().is_ok_and(|grant| grant.judge_request(method, &url).is_ok())
                });
                prop_assert_eq!(decide(&before, &tool, &subject).is_ok(), any_method, "{}", url);
            }
        }
    }

    #[test]
    fn an_overlay_and_a_sandbox_section_mean_the_same(
        operator in lines(OPERATOR, 0.3),
        reduction in lines(OVERLAY, 0.15),
    ) {
        let text = operator_text(&operator);
        let as_section = format!("{}{text}", plain_text(&reduction, "sandbox.process."));
        let by_overlay = try_load(&text, Some(&plain_text(&reduction, "")));
        let by_section = try_load(&as_section, None);
        prop_assert_eq!(
            by_overlay.map(|policy| policy.digest().clone()).ok(),
            by_section.map(|policy| policy.digest().clone()).ok()
        );
    }

    #[test]
    fn digests_differ_exactly_where_the_meaning_does(
        one in lines(OPERATOR, 0.15),
        other in lines(OPERATOR, 0.15),
        overlay in lines(OVERLAY, 0.05),
    ) {
        let load = |lines, overlay: &str| try_load(&operator_text(lines), Some(overlay)).ok();
        let overlay = plain_text(&overlay, "");
        if let (Some(one), Some(other)) = (load(&one, &overlay), load(&other, "")) {
            prop_assert_eq!(one.digest() == other.digest(), one.effective_toml() == other.effective_toml());
        }
    }

    #[test]
    fn no_text_makes_loading_panic(text in "(version = 1\n)?[\\[\\]{}a-z0-9=.,'\" \n\u{e4}-]{0,80}") {
        let _ = try_load(&text, Some(&text));
    }
}

#[test]
fn the_strictness_of_the_model_is_the_order_of_approvals() {
    for approval in Approval::ALL {
        assert_eq!(Approval::ALL[usize::from(strictness(approval.as_str()))], approval);
    }
}
