//! Reads `[secrets.NAME]`, in an operator's policy and in a reduction.

use std::fmt::Display;

use portcullis_types::ToolName;

use crate::{HostRule, SecretName};

use super::{
    Faults, Located, ReducedSecret, SecretEntry, keys,
    section::{Section, SectionEntry},
    value::{parse_text, parse_tool_name, read_elements},
};

/// Reads the secrets of an operator's policy.
pub(super) fn read_secrets(root: &Section<'_>, faults: &mut Faults<'_>) -> Vec<SecretEntry> {
    let entries = root.entries_of("secrets", faults);
    if let Some(beyond) = entries.get(MAX_SECRETS) {
        let message = format!("{} secrets; at most {MAX_SECRETS} are allowed", entries.len());
        faults.add(beyond.key_offset, &beyond.path, message);
        return Vec::new();
    }
    entries.iter().filter_map(|entry| read_secret_or_excuse(entry, faults)).collect()
}

/// Reads one secret. If it is faulty, a reference to it is not reported as a second fault.
fn read_secret_or_excuse(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<SecretEntry> {
    let secret = read_secret(entry, faults);
    if secret.is_none() {
        faults.excuse(entry.name);
    }
    secret
}

fn read_secret(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<SecretEntry> {
    let name = entry.parsed_name(faults, SecretName::parse);
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::SECRET, faults);
    // Read all keys before the first `?`, because each missing key is a separate fault.
    let source = required(&section, "from", faults).and_then(|entry| entry.parsed(faults, parse_text));
    let hosts = required(&section, "hosts", faults).and_then(|entry| read_hosts(&entry, faults));
    let header = required(&section, "header", faults)
        .and_then(|entry| Some(entry.located(entry.parsed(faults, parse_text)?)));
    let tools = required(&section, "tools", faults).and_then(|entry| read_tools(&entry, faults));
    let enabled = section.entry("enabled").and_then(|entry| entry.boolean(faults));
    Some(SecretEntry {
        name: entry.located_at_key(name?),
        source: source?,
        hosts: hosts?.value,
        header: header?,
        tools: tools?.value,
        enabled,
    })
}

/// Reads `[secrets.NAME]` of a reduction, which can only take permissions away.
pub(super) fn read_reduced_secret(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
) -> Option<ReducedSecret> {
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::SECRET, faults);
    for key in keys::SECRET_OPERATORS_ALONE {
        if let Some(entry) = section.entry(key) {
            let message =
                "only the operator's policy may set this key; this section may only remove permissions";
            faults.add(entry.key_offset, &entry.path, message);
        }
    }
    let enabled = section.entry("enabled");
    Some(ReducedSecret {
        name: entry.located_at_key(entry.name.to_owned()),
        hosts: section.entry("hosts").and_then(|entry| read_hosts(&entry, faults)),
        tools: section.entry("tools").and_then(|entry| read_tools(&entry, faults)),
        enabled: enabled.and_then(|entry| Some(entry.located(entry.boolean(faults)?))),
    })
}

fn read_hosts(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<Located<Vec<Located<HostRule>>>> {
    read_list(entry, faults, parse_text)
}

fn read_tools(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<Located<Vec<Located<ToolName>>>> {
    read_list(entry, faults, parse_tool_name)
}

/// Reads a list that must not be empty, because its author may intend that the secret goes everywhere.
fn read_list<T, E: Display>(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<Located<Vec<Located<T>>>> {
    if entry.list(faults)?.is_empty() {
        entry.refuse(
            faults,
            "an empty list: the secret would never be sent; write `enabled = false` to switch it off",
        );
        return None;
    }
    Some(entry.located(read_elements(entry, faults, parse)))
}

fn required<'t>(section: &Section<'t>, name: &str, faults: &mut Faults<'_>) -> Option<SectionEntry<'t>> {
    let entry = section.entry(name);
    if entry.is_none() {
        let suggestion = match name {
            "from" => "write for example `from = \"file:/run/secrets/token\"`",
            "hosts" => "write for example `hosts = [\"https://api.example.com\"]`",
            "header" => "write for example `header = \"Authorization: Bearer {secret}\"`",
            _ => "write for example `tools = [\"web_fetch\"]`",
        };
        faults.add(section.offset, &section.path_of(name), format!("missing key; {suggestion}"));
    }
    entry
}

/// The maximum number of secrets of a policy. Every response is searched for all of them.
const MAX_SECRETS: usize = 64;
