//! Reads a `[sandbox.TIER]` section or a workspace's overlay.

use crate::source::MAX_OVERLAY_BYTES;

use super::{
    Faults, ReducedAccess, ReducedProfile, ReducedTier, ReducedTool, Reduction, did_you_mean,
    flow::read_flow,
    keys,
    network::{read_network, read_reduced_egress},
    read::{check_version, is_optional, read_added_protection, read_document_root, read_hide, read_layers},
    search::read_reduced_search,
    secrets::read_reduced_secret,
    section::{Section, SectionEntry},
    shell::read_shell,
    value::{
        choice_parser, parse_approval, parse_tier, parse_tool_name, read_limits, read_memory_size,
        read_output_size, read_timeout,
    },
};

/// Reads a whole overlay. The result is valid only if there are no faults.
pub(crate) fn read_overlay(faults: &mut Faults<'_>) -> Reduction {
    let mut reduction = Reduction::default();
    read_document_root(faults, MAX_OVERLAY_BYTES, |root, faults| {
        for entry in root.entries() {
            if keys::OPERATORS_ALONE.contains(&entry.name) {
                let message =
                    "only the operator's policy may set this key; a workspace's policy may only reduce";
                faults.add(entry.key_offset, &entry.path, message);
            } else if !keys::OVERLAY.contains(&entry.name) {
                let suggestion = did_you_mean(entry.name, keys::OVERLAY.iter().copied());
                faults.add(entry.key_offset, &entry.path, format!("unknown key; {suggestion}"));
            }
        }
        if let Some(entry) = root.entry("version") {
            check_version(&entry, faults);
        }
        reduction = read_reduction(root, faults);
    });
    reduction
}

/// Reads the keys that `[sandbox.TIER]` and an overlay share. The caller refuses unknown keys.
pub(super) fn read_reduction(section: &Section<'_>, faults: &mut Faults<'_>) -> Reduction {
    Reduction {
        require: section.entry("require").map(|entry| read_layers(&entry, faults)).unwrap_or_default(),
        profiles: section
            .entries_of("profiles", faults)
            .iter()
            .filter_map(|entry| read_profile(entry, faults))
            .collect(),
        tiers: section
            .entries_of("tiers", faults)
            .iter()
            .filter_map(|entry| read_reduced_tier(entry, faults))
            .collect(),
        tools: section
            .entries_of("tools", faults)
            .iter()
            .filter_map(|entry| read_tool(entry, faults))
            .collect(),
        protect: section
            .section("protect", faults)
            .map(|section| read_added_protection(&section, faults))
            .unwrap_or_default(),
        hide: read_hide(section, faults),
        shell: section
            .section("shell", faults)
            .map(|section| read_shell(&section, ReducedAccess::ALL, ReducedAccess::as_str, faults)),
        egress: section
            .section("egress", faults)
            .map(|section| read_reduced_egress(&section, faults))
            .unwrap_or_default(),
        secrets: section
            .entries_of("secrets", faults)
            .iter()
            .filter_map(|entry| read_reduced_secret(entry, faults))
            .collect(),
        search: section.section("search", faults).and_then(|section| read_reduced_search(&section, faults)),
        limits: section
            .section("limits", faults)
            .map(|section| read_limits(&section, faults))
            .unwrap_or_default(),
        flow: read_flow(section, faults),
    }
}

fn read_profile(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<ReducedProfile> {
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::PROFILE, faults);
    let access = choice_parser("access", ReducedAccess::ALL, ReducedAccess::as_str);
    let mut mounts = Vec::new();
    for mount in section.entries_of("mounts", faults) {
        if let Some(access) = mount.parsed(faults, &access) {
            mounts.push((mount.located_at_key(mount.name.to_owned()), mount.located(access)));
        }
    }
    let network = read_network(&section, faults);
    Some(ReducedProfile { name: entry.located_at_key(entry.name.to_owned()), mounts, network })
}

fn read_reduced_tier(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<ReducedTier> {
    let tier = entry.parsed_name(faults, parse_tier);
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::REDUCED_TIER, faults);
    let approval = section.entry("approval")?;
    let value = approval.parsed(faults, parse_approval);
    Some(ReducedTier { tier: tier?, approval: approval.located(value?) })
}

fn read_tool(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<ReducedTool> {
    let name = entry.parsed_name(faults, parse_tool_name);
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::REDUCED_TOOL, faults);
    let approval = section.entry("approval");
    let approval = approval.and_then(|entry| Some(entry.located(entry.parsed(faults, parse_approval)?)));
    let enabled = section.entry("enabled");
    Some(ReducedTool {
        name: entry.located_at_key(name?),
        optional: is_optional(&section, faults),
        approval,
        timeout: section.entry("timeout").and_then(|entry| read_timeout(&entry, faults)),
        memory: section.entry("memory").and_then(|entry| read_memory_size(&entry, faults)),
        max_output_bytes: section
            .entry("max_output_bytes")
            .and_then(|entry| read_output_size(&entry, faults)),
        enabled: enabled.and_then(|entry| Some(entry.located(entry.boolean(faults)?))),
    })
}
