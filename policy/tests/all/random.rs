//! Random policies, overlays, tools and paths.

use std::{collections::BTreeMap, time::Duration};

use portcullis_policy::{ToolDescriptor, ToolOrigin};
use portcullis_types::{Access, SafetyTier, ToolPolicy};
use proptest::prelude::*;

use crate::support::tool;

/// Keys and values of a policy. A random policy has some of the keys, each with one of its values.
pub(crate) type Lines = BTreeMap<&'static str, &'static str>;

pub(crate) const MOUNTS: [&str; 3] = ["shared", "tmp", "vault"];
pub(crate) const PROFILES: [&str; 3] = ["A", "B", "C"];

pub(crate) const OPERATOR: &[(&str, &[&str])] = &[
    ("profiles.A.mounts.shared", &["'read'", "'write'"]),
    ("profiles.A.mounts.tmp", &["'read'", "'write'"]),
    ("profiles.A.mounts.vault", &["'read'"]),
    ("profiles.B.mounts.shared", &["'read'", "'write'"]),
    ("profiles.B.mounts.tmp", &["'read'", "'write'"]),
    ("profiles.C.mounts.vault", &["'read'", "'write'"]),
    ("profiles.C.mounts.tmp", &["'read'"]),
    ("profiles.A.hosts", &["['https://*']", "['https://*.example.com', 'http://*:8080']", "[]"]),
    ("profiles.A.methods", &["['GET', 'POST']", "['POST']"]),
    ("profiles.B.hosts", &["['https://api.example.com', 'http://127.0.0.1:8080']"]),
    ("egress.allow_private", &["['127.0.0.1:8080']", "[]"]),
    ("egress.ca", &["'ca.pem'"]),
    ("egress.proxy", &["'http://p.example:3128'"]),
    ("egress.max_response", &["'1MiB'", "'100MiB'"]),
    ("egress.max_redirects", &["0", "9"]),
    ("secrets.s", SECRET),
    ("search.provider", &["'brave'", "'duckduckgo'"]),
    ("notify.slack", &["'https://slack.example/post'", "'http://127.0.0.1:8080'"]),
    ("tiers.read_only", &["{profile='A',approval='allow'}", "{profile='B',approval='ask'}"]),
    ("tiers.side_effecting", &["{profile='B',approval='allow'}", "{profile='Nothing',approval='deny'}"]),
    ("tiers.privileged", &["{profile='B',approval='ask'}", "{profile='C',approval='allow'}"]),
    ("tools.t.profile", &["'A'", "'B'", "'C'", "'Nothing'"]),
    ("tools.t.approval", &["'allow'", "'ask'", "'deny'"]),
    ("tools.t.enabled", &["true", "false"]),
    ("tools.t.timeout", &["'5s'", "'1m'", "'1h'"]),
    ("tools.t.memory", &["'256KiB'", "'128MiB'"]),
    ("tools.t.max_output_bytes", &["'256B'", "'1MiB'"]),
    ("protect.paths", &["['.git/hooks']", "['a/b']", "[]"]),
    ("protect.except", &["['.bashrc']", "[]"]),
    ("limits.max_timeout", &["'20s'", "'2m'"]),
    ("limits.wasm_memory", &["'2MiB'"]),
    ("limits.concurrency", &["5"]),
    ("shell.enabled", &["true", "true", "true", "false"]),
    ("shell.posture", &["'minimal'", "'contained'", "'strong'"]),
    ("shell.mounts.shared", &["'read'", "'write'"]),
    ("shell.mounts.tmp", &["'read'", "'write'"]),
    ("shell.timeout", &["'10s'", "'5m'"]),
    ("shell.memory", &["'32MiB'", "'2GiB'"]),
    ("shell.processes", &["16", "512"]),
    ("shell.file_size", &["'2MiB'", "'2GiB'"]),
    ("shell.output", &["'2KiB'", "'32MiB'"]),
    ("shell.environment", &["['A']", "['A', 'B']"]),
    ("shell.allow", &["['ls', 'git']", "['git', 'ls -l']"]),
    ("shell.deny", &["['git push']", "['rm', 'curl']"]),
    ("shell.operators", &["['|', ';']", "[]"]),
    ("shell.unasked", &["['ls *', 'git status']", "['ls']", "[]"]),
    ("shell.read", &["['/opt/a', '~/b']", "['/opt']"]),
];

/// A complete secret. Some profile must reach its host.
const SECRET: &[&str] = &[
    "{from='env:S',hosts=['https://api.example.com'],header='X-A',tools=['t']}",
    "{from='env:S',hosts=['https://*.example.com'],header='X-A',tools=['t','u']}",
];

pub(crate) const OVERLAY: &[(&str, &[&str])] = &[
    ("require", &["['landlock']"]),
    ("profiles.A.mounts.shared", &["'none'", "'read'"]),
    ("profiles.A.mounts.vault", &["'none'", "'read'"]),
    ("profiles.B.mounts.tmp", &["'none'", "'read'", "'write'"]),
    ("profiles.C.mounts.vault", &["'none'"]),
    (
        "profiles.A.hosts",
        &["['https://api.example.com']", "['https://*.example.com', 'http://*:8080']", "[]"],
    ),
    ("profiles.A.methods", &["['GET']", "['POST', 'PUT']"]),
    ("profiles.B.hosts", &["[]", "['https://*']"]),
    ("egress.max_response", &["'512KiB'", "'10MiB'"]),
    ("egress.max_redirects", &["0", "5"]),
    ("secrets.s.enabled", &["false", "true"]),
    ("secrets.s.hosts", &["['https://api.example.com']", "['https://example.com']"]),
    ("secrets.s.tools", &["['t']", "['u']"]),
    ("search.provider", &["'none'", "'brave'"]),
    ("tiers.read_only.approval", &["'allow'", "'ask'", "'deny'"]),
    ("tiers.privileged.approval", &["'ask'", "'deny'"]),
    ("tools.t.approval", &["'ask'", "'deny'"]),
    ("tools.t.enabled", &["true", "false"]),
    ("tools.t.timeout", &["'4s'", "'15s'", "'50s'"]),
    ("tools.t.memory", &["'512KiB'", "'32MiB'"]),
    ("tools.t.max_output_bytes", &["'512B'", "'15KiB'"]),
    ("tools.u.approval", &["'ask'", "'deny'"]),
    ("tools.u.timeout", &["'3s'", "'15s'"]),
    ("tools.u.enabled", &["false"]),
    ("protect.paths", &["['.bashrc']", "['a/b']"]),
    ("limits.max_timeout", &["'3s'", "'18s'"]),
    ("limits.wasm_memory", &["'1MiB'"]),
    ("limits.max_output_bytes", &["'1KiB'"]),
    ("limits.concurrency", &["4"]),
    ("shell.enabled", &["true", "false"]),
    ("shell.posture", &["'minimal'", "'strong'"]),
    ("shell.mounts.shared", &["'none'", "'read'", "'write'"]),
    ("shell.mounts.vault", &["'none'", "'read'"]),
    ("shell.timeout", &["'9s'", "'1m'"]),
    ("shell.memory", &["'16MiB'", "'1GiB'"]),
    ("shell.processes", &["8", "256"]),
    ("shell.file_size", &["'1MiB'", "'1GiB'"]),
    ("shell.output", &["'1KiB'", "'16MiB'"]),
    ("shell.environment", &["[]", "['A']", "['B']"]),
    ("shell.allow", &["['ls']", "['git status', 'ls *']"]),
    ("shell.deny", &["['ls']", "['git push']"]),
    ("shell.operators", &["['|']", "[]", "['&&']"]),
    ("shell.unasked", &["['ls']", "['git status']", "[]"]),
    ("shell.read", &["['~/b']", "['/opt/a']", "[]"]),
];

pub(crate) fn lines(
    table: &'static [(&'static str, &'static [&'static str])],
    share: f64,
) -> impl Strategy<Value = Lines> {
    let choice = prop::option::weighted(share, any::<prop::sample::Index>());
    prop::collection::vec(choice, table.len()).prop_map(move |choices| {
        let chosen_lines = table.iter().zip(choices).filter_map(|((key, values), choice)| {
            choice.map(|index| (*key, values[index.index(values.len())]))
        });
        chosen_lines.collect()
    })
}

pub(crate) fn operator_text(lines: &Lines) -> String {
    let mut text = String::from("version = 1\n");
    for mount in MOUNTS {
        text += &format!("mounts.{mount} = '{mount}'\n");
    }
    for profile in PROFILES {
        // The profile must exist even if no line names one of its mounts.
        text += &format!("profiles.{profile}.mounts.tmp2 = 'read'\n");
    }
    text += "mounts.tmp2 = 'tmp2'\n";
    text + &plain_text(lines, "")
}

pub(crate) fn plain_text(lines: &Lines, prefix: &str) -> String {
    lines.iter().map(|(key, value)| format!("{prefix}{key} = {value}\n")).collect()
}

pub(crate) fn some_tool() -> impl Strategy<Value = ToolDescriptor> {
    let origins = [
        ToolOrigin::ShippedNative,
        ToolOrigin::ShippedShell,
        ToolOrigin::ShippedGateway,
        ToolOrigin::Native,
        ToolOrigin::External,
        ToolOrigin::Http,
        ToolOrigin::Mcp,
        ToolOrigin::Internal,
        ToolOrigin::ShippedModule,
        ToolOrigin::ShippedOperation,
        ToolOrigin::ForeignModule,
    ];
    let tiers =
        [None, Some(SafetyTier::ReadOnly), Some(SafetyTier::SideEffecting), Some(SafetyTier::Privileged)];
    let policies = [ToolPolicy::Auto, ToolPolicy::RequiresApproval];
    let timeouts = [None, Some(Duration::from_secs(2)), Some(Duration::from_secs(40))];
    (
        prop::sample::select(vec!["t", "u"]),
        prop::sample::select(origins.to_vec()),
        prop::sample::select(tiers.to_vec()),
        prop::sample::select(policies.to_vec()),
        prop::sample::select(timeouts.to_vec()),
    )
        .prop_map(|(name, origin, declared_tier, declared_policy, declared_timeout)| ToolDescriptor {
            origin,
            declared_tier,
            declared_policy,
            declared_timeout,
            ..tool(name, SafetyTier::ReadOnly)
        })
}

pub(crate) fn some_path() -> impl Strategy<Value = (String, Access)> {
    let tokens = vec![
        "shared", "tmp", "vault", "tmp2", "nope", "..", ".", "", "a", "b", ".git", "hooks", ".GIT", "Hooks",
        ".bashrc", ".BashRC", "x.git",
    ];
    let starts = vec!["/shared/", "/tmp/", "/vault/", "/", ""];
    (
        prop::sample::select(starts),
        prop::collection::vec(prop::sample::select(tokens), 1..7),
        prop::sample::select(vec![Access::Read, Access::Write]),
    )
        .prop_map(|(start, tokens, access)| {
            let text = format!("{start}{}", tokens.join("/"));
            (if text.is_empty() { ".".to_owned() } else { text }, access)
        })
}

pub(crate) fn some_url() -> impl Strategy<Value = String> {
    let schemes = ["https://", "http://", "ftp://"];
    let hosts = [
        "api.example.com",
        "a.b.example.com",
        "example.com",
        "other.example",
        "127.0.0.1",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "8.8.8.8",
        "169.254.169.254",
        "metadata",
        "u@api.example.com",
    ];
    let ports = ["", ":443", ":8080", ":0"];
    (
        prop::sample::select(schemes.to_vec()),
        prop::sample::select(hosts.to_vec()),
        prop::sample::select(ports.to_vec()),
    )
        .prop_map(|(scheme, host, port)| format!("{scheme}{host}{port}/"))
}

pub(crate) fn some_command() -> impl Strategy<Value = String> {
    let commands = ["ls", "ls -l", "git status", "git push", "rm x", "env ls", "$x", "sh -c ls"];
    let operators = [" | ", "; ", " && ", "\n"];
    (
        prop::collection::vec(prop::sample::select(commands.to_vec()), 1..4),
        prop::sample::select(operators.to_vec()),
    )
        .prop_map(|(commands, operator)| commands.join(operator))
}
