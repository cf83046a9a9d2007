//! Reads an operator's policy.

use portcullis_types::{Access, SandboxTier};
use toml::de::DeTable;

use crate::{
    AuditSettings, AuditSync, CheckpointDestination, FileBytes, KeyLocation, MountName, ProfileName,
    RequiredLayer,
    hidden::HiddenPattern,
    mount::{parse_folder, parse_host_folder, parse_project},
    path_rules::{FILE_TOOLS, PathPattern, PathRules},
    protect::Pattern,
    protected_kinds::KindPattern,
    source::MAX_POLICY_TEXT_BYTES,
};

use super::{
    Faults, MountEntry, PolicyFile, ProfileEntry, TierEntry, ToolEntry, did_you_mean,
    flow::read_flow,
    keys,
    model::{Located, ProtectEntries},
    network::{read_egress, read_network},
    notify::read_notify,
    reduction::read_reduction,
    search::read_search,
    secrets::read_secrets,
    section::{Section, SectionEntry},
    shell::read_shell,
    syntax,
    value::{
        choice_parser, parse_approval, parse_tier, parse_tool_name, read_duration, read_elements,
        read_limits, read_memory_size, read_output_size, read_size, read_timeout,
    },
};

/// The version of the policy format that this build reads.
pub(super) const VERSION: i128 = 1;

/// Reads the whole text. The result is valid only if there are no faults.
pub(crate) fn read_policy(faults: &mut Faults<'_>) -> PolicyFile {
    let mut file = PolicyFile::default();
    read_document_root(faults, MAX_POLICY_TEXT_BYTES, |root, faults| {
        // A misspelt section would otherwise have no effect, but its author would rely on it.
        root.refuse_unknown(keys::POLICY, faults);
        match root.entry("version") {
            Some(entry) => check_version(&entry, faults),
            None => faults.add(0, "version", "missing key; write `version = 1`"),
        }
        // Every section is read even after a fault, so that all faults are reported together.
        file = PolicyFile {
            require: root.entry("require").map(|entry| read_layers(&entry, faults)),
            home: root.entry("home").and_then(|entry| Some(entry.located(entry.text(faults)?.to_owned()))),
            project: root.section("project", faults).and_then(|section| read_project(&section, faults)),
            mounts: root
                .entries_of("mounts", faults)
                .iter()
                .filter_map(|entry| Some(entry.located(read_mount(entry, faults)?)))
                .collect(),
            profiles: root
                .entries_of("profiles", faults)
                .iter()
                .filter_map(|entry| Some(entry.located_at_key(read_profile(entry, faults)?)))
                .collect(),
            tiers: root
                .entries_of("tiers", faults)
                .iter()
                .filter_map(|entry| read_tier(entry, faults))
                .collect(),
            tools: root
                .entries_of("tools", faults)
                .iter()
                .filter_map(|entry| read_tool(entry, faults))
                .collect(),
            protect: root
                .section("protect", faults)
                .map(|section| read_protect(&section, faults))
                .unwrap_or_default(),
            hide: read_hide(root, faults),
            sandbox: read_sandbox(root, faults),
            audit: root
                .section("audit", faults)
                .map(|section| read_audit(&section, faults))
                .unwrap_or_default(),
            modules_dir: root.section("modules", faults).and_then(|section| read_modules(&section, faults)),
            shell: root
                .section("shell", faults)
                .map(|section| read_shell(&section, [Access::Read, Access::Write], Access::as_str, faults)),
            egress: root
                .section("egress", faults)
                .map(|section| read_egress(&section, faults))
                .unwrap_or_default(),
            search: root.section("search", faults).and_then(|section| read_search(&section, faults)),
            notify: root.section("notify", faults).and_then(|section| read_notify(&section, faults)),
            secrets: read_secrets(root, faults),
            limits: root
                .section("limits", faults)
                .map(|section| read_limits(&section, faults))
                .unwrap_or_default(),
            flow: read_flow(root, faults),
        };
    });
    file
}

/// Parses the text and passes its root to `read`, unless the text is too long or not valid TOML.
pub(super) fn read_document_root<'s>(
    faults: &mut Faults<'s>,
    limit: usize,
    read_root: impl FnOnce(&Section<'_>, &mut Faults<'s>),
) {
    let text = faults.source().text;
    if text.len() > limit {
        faults.add(0, "", format!("the file has {} bytes; at most {limit} are allowed", text.len()));
        return;
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    match syntax::fault(text, &errors) {
        Some((offset, message)) => faults.add(offset, "", message),
        None => read_root(&Section::root(table.get_ref()), faults),
    }
}

pub(super) fn check_version(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) {
    match entry.as_integer() {
        Some(VERSION) => {}
        Some(unsupported) => {
            entry.refuse(faults, format!("version {unsupported}; this build reads version {VERSION}"));
        }
        None => {
            entry.refuse_type::<()>("a whole number", faults);
        }
    }
}

pub(super) fn read_layers(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Vec<Located<RequiredLayer>> {
    let elements = entry.list(faults).unwrap_or_default();
    elements
        .iter()
        .filter_map(|element| {
            let layer =
                element.parsed(faults, choice_parser("layer", RequiredLayer::ALL, RequiredLayer::as_str))?;
            Some(element.located(layer))
        })
        .collect()
}

/// Reads an operator's `[protect]`.
fn read_protect(section: &Section<'_>, faults: &mut Faults<'_>) -> ProtectEntries {
    section.refuse_unknown(keys::PROTECT, faults);
    let except = read_patterns(section, "except", KindPattern::parse, faults);
    let added = read_added_names(section, except.is_some(), faults);
    ProtectEntries { except: except.unwrap_or_default(), ..added }
}

/// Reads `[protect]` of a reduction, which can only add names.
pub(super) fn read_added_protection(section: &Section<'_>, faults: &mut Faults<'_>) -> ProtectEntries {
    for entry in section.entries().filter(|entry| !ADDED_NAMES.contains(&entry.name)) {
        let message = if keys::PROTECT.contains(&entry.name) {
            "only the operator's policy may take a shipped name away; this section only adds".to_owned()
        } else {
            format!("unknown key; {}", did_you_mean(entry.name, ADDED_NAMES.into_iter()))
        };
        faults.add(entry.key_offset, &entry.path, message);
    }
    read_added_names(section, false, faults)
}

/// Reads `[hide]`, which a policy and a reduction share.
pub(super) fn read_hide(root: &Section<'_>, faults: &mut Faults<'_>) -> Vec<Located<HiddenPattern>> {
    let Some(section) = root.section("hide", faults) else { return Vec::new() };
    section.refuse_unknown(keys::HIDE, faults);
    if section.entry("paths").is_none() {
        faults.add(section.offset, &section.path_of("paths"), "missing key; write a list of names");
    }
    read_patterns(&section, "paths", HiddenPattern::parse, faults).unwrap_or_default()
}

/// The keys of `[protect]` that add names.
const ADDED_NAMES: [&str; 2] = ["paths", "kinds"];

fn read_added_names(section: &Section<'_>, has_others: bool, faults: &mut Faults<'_>) -> ProtectEntries {
    let paths = read_patterns(section, "paths", Pattern::parse, faults);
    let kinds = read_patterns(section, "kinds", KindPattern::parse, faults);
    if paths.is_none() && kinds.is_none() && !has_others {
        faults.add(section.offset, &section.path_of("paths"), "missing key; write a list of names");
    }
    ProtectEntries { paths: paths.unwrap_or_default(), kinds: kinds.unwrap_or_default(), except: Vec::new() }
}

/// Reads a list of patterns. Returns `None` if the key is absent.
fn read_patterns<T, E: std::fmt::Display>(
    section: &Section<'_>,
    key: &str,
    parse: fn(&str) -> Result<T, E>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Located<T>>> {
    let entry = section.entry(key)?;
    let elements = entry.list(faults).unwrap_or_default();
    if elements.len() > MAX_PATTERNS {
        entry.refuse(faults, format!("{} paths; at most {MAX_PATTERNS} are allowed", elements.len()));
        return Some(Vec::new());
    }
    Some(
        elements.iter().filter_map(|element| Some(element.located(element.parsed(faults, parse)?))).collect(),
    )
}

/// Reads a line of `[mounts]`: a folder, or a table with the folder.
fn read_mount(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<MountEntry> {
    let name = entry.parsed_name(faults, MountName::parse);
    let table = if entry.is_table() { entry.section(faults) } else { None };
    let folder = match &table {
        Some(table) => required(table, "path", faults).and_then(|path| path.parsed(faults, parse_folder)),
        None => entry.parsed(faults, parse_folder),
    };
    let has_undo = table.is_some_and(|table| {
        table.refuse_unknown(keys::MOUNT, faults);
        let Some(undo) = table.entry("undo") else { return false };
        let has_undo = undo.boolean(faults) == Some(true);
        if has_undo && entry.name == MountName::VAULT {
            undo.refuse(faults, "no tool writes the vault, so no change of it can be undone; remove the key");
        }
        has_undo
    });
    if name.is_none() || folder.is_none() {
        faults.excuse(entry.name);
    }
    Some(MountEntry { name: name?, folder: folder?, has_undo })
}

/// Reads `[project]`.
fn read_project(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<String> {
    section.refuse_unknown(keys::PROJECT, faults);
    required(section, "path", faults)?.parsed(faults, parse_project)
}

fn read_profile(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<ProfileEntry> {
    let name = entry.parsed_name(faults, ProfileName::parse);
    let section = entry.section(faults);
    if name.is_none() || section.is_none() {
        faults.excuse(entry.name);
    }
    let section = section?;
    section.refuse_unknown(keys::PROFILE, faults);
    let access = choice_parser("access", [Access::Read, Access::Write], Access::as_str);
    let mounts = section
        .entries_of("mounts", faults)
        .iter()
        .filter_map(|mount| {
            Some((mount.located_at_key(mount.name.to_owned()), mount.parsed(faults, &access)?))
        })
        .collect();
    let network = read_network(&section, faults);
    Some(ProfileEntry { name: name?, mounts, network })
}

fn read_tier(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<TierEntry> {
    let tier = entry.parsed_name(faults, parse_tier);
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::TIER, faults);
    // Read both keys before the first `?`, because two missing keys are two faults.
    let profile = required(&section, "profile", faults);
    let approval = required(&section, "approval", faults);
    let profile = profile.and_then(|entry| Some(entry.located(entry.text(faults)?.to_owned())));
    let approval = approval.and_then(|entry| entry.parsed(faults, parse_approval));
    Some(TierEntry { tier: tier?, profile: profile?, approval: approval? })
}

fn required<'t>(section: &Section<'t>, name: &str, faults: &mut Faults<'_>) -> Option<SectionEntry<'t>> {
    let entry = section.entry(name);
    if entry.is_none() {
        faults.add(section.offset, &section.path_of(name), "missing key");
    }
    entry
}

fn read_tool(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<ToolEntry> {
    let name = entry.parsed_name(faults, parse_tool_name);
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::TOOL, faults);
    let profile = section.entry("profile");
    let approval = section.entry("approval").and_then(|entry| entry.parsed(faults, parse_approval));
    let timeout = section.entry("timeout").and_then(|entry| read_timeout(&entry, faults));
    let memory = section.entry("memory").and_then(|entry| read_memory_size(&entry, faults));
    let max_output = section.entry("max_output_bytes").and_then(|entry| read_output_size(&entry, faults));
    Some(ToolEntry {
        name: entry.located_at_key(name?),
        optional: is_optional(&section, faults),
        profile: profile.and_then(|entry| Some(entry.located(entry.text(faults)?.to_owned()))),
        approval,
        unasked: section
            .entry("unasked")
            .map(|unasked| read_path_rules(&unasked, entry.name, faults))
            .unwrap_or_default(),
        timeout: timeout.map(|located| located.value),
        memory: memory.map(|located| located.value),
        max_output_bytes: max_output.map(|located| located.value),
        enabled: section.entry("enabled").and_then(|entry| entry.boolean(faults)),
    })
}

/// Reads `[tools.NAME] unasked`: a table of arguments, each with a pattern or a list of patterns.
fn read_path_rules(entry: &SectionEntry<'_>, tool: &str, faults: &mut Faults<'_>) -> PathRules {
    if !FILE_TOOLS.contains(&tool) {
        entry.refuse(
            faults,
            format!("only {} can have paths that need no approval: other tools may touch what their arguments do not name", FILE_TOOLS.join(", ")),
        );
    }
    let Some(section) = entry.section(faults) else { return PathRules::default() };
    let mut rules = Vec::new();
    for argument in section.entries() {
        let elements =
            if argument.is_list() { argument.list(faults).unwrap_or_default() } else { vec![argument] };
        for element in &elements {
            if let Some(pattern) = element.parsed(faults, PathPattern::parse) {
                rules.push((element.name.to_owned(), pattern));
            }
        }
    }
    PathRules::new(rules)
}

/// Returns whether an entry allows its tool to be absent.
pub(super) fn is_optional(section: &Section<'_>, faults: &mut Faults<'_>) -> bool {
    section.entry("optional").and_then(|entry| entry.boolean(faults)).unwrap_or_default()
}

fn read_sandbox(root: &Section<'_>, faults: &mut Faults<'_>) -> Vec<(SandboxTier, super::Reduction)> {
    let mut sections = Vec::new();
    for entry in root.entries_of("sandbox", faults) {
        let parse = choice_parser("sandbox tier", SandboxTier::ALL, SandboxTier::as_str);
        let tier = entry.parsed_name(faults, parse);
        let Some(section) = entry.section(faults) else {
            continue;
        };
        section.refuse_unknown(keys::SANDBOX, faults);
        let reduction = read_reduction(&section, faults);
        if let Some(tier) = tier {
            sections.push((tier, reduction));
        }
    }
    sections
}

/// Reads `[audit]`. A key that is missing or wrong gets its default. A wrong one is also a fault.
fn read_audit(section: &Section<'_>, faults: &mut Faults<'_>) -> AuditSettings {
    section.refuse_unknown(keys::AUDIT, faults);
    let mut settings = AuditSettings::default();
    if let Some(entry) = section.entry("sync") {
        let sync = entry.parsed(faults, choice_parser("sync", AuditSync::ALL, AuditSync::as_str));
        settings.sync = sync.unwrap_or_default();
    }
    if let Some(entry) = section.entry("segment")
        && let Some(bytes) = read_size(&entry, AuditSettings::SEGMENT_BOUNDS, faults)
    {
        settings.segment_bytes = FileBytes(bytes);
    }
    let mut age = |key| {
        let entry = section.entry(key)?;
        Some(read_duration(&entry, AuditSettings::AGE_BOUNDS, faults)?.value)
    };
    settings.segment_age = age("segment_age").unwrap_or(settings.segment_age);
    settings.retention = age("keep");
    if let Some(entry) = section.entry("checkpoints") {
        let locations = read_elements(&entry, faults, CheckpointDestination::parse);
        settings.checkpoints = Some(locations.into_iter().map(|location| location.value).collect());
    }
    settings.key = section.entry("key").and_then(|entry| entry.parsed(faults, KeyLocation::parse));
    settings
}

/// Reads `[modules]`.
fn read_modules(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<String> {
    section.refuse_unknown(keys::MODULES, faults);
    required(section, "dir", faults)?.parsed(faults, parse_host_folder)
}

/// The maximum number of patterns of one list. Every opening of a file is matched against every pattern.
const MAX_PATTERNS: usize = 256;
