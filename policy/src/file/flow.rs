//! Reads `[[flow]]`, in a policy and in a reduction. Both may have flow rules, because such rules only take
//! permissions away.

use crate::Approval;

use super::{
    Faults,
    invalid::InvalidValue,
    keys,
    model::{FlowEntry, LabelWord, Located, SinkWord},
    section::{Section, SectionEntry},
    value::parse_approval,
};

/// The maximum number of flow rules of one text. Every call is compared with all of them.
const MAX_RULES: usize = 64;

/// Reads all rules; empty if there are none.
pub(super) fn read_flow(root: &Section<'_>, faults: &mut Faults<'_>) -> Vec<FlowEntry> {
    let Some(entry) = root.entry("flow") else { return Vec::new() };
    let rules = entry.list(faults).unwrap_or_default();
    if rules.len() > MAX_RULES {
        entry.refuse(faults, format!("{} rules; at most {MAX_RULES} are allowed", rules.len()));
        return Vec::new();
    }
    rules.iter().filter_map(|rule| read_flow_entry(rule, faults)).collect()
}

fn read_flow_entry(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<FlowEntry> {
    let section = entry.section(faults)?;
    section.refuse_unknown(keys::FLOW, faults);
    // Read all keys before the first `?`, because each missing key is a separate fault.
    let after = read_words(&section, "after", parse_label, faults);
    let then = read_words(&section, "then", parse_sink, faults);
    let approval = match section.entry("approval") {
        Some(entry) => entry.parsed(faults, parse_ask_or_deny),
        None => {
            let message = "missing key; write `approval = \"ask\"` or `approval = \"deny\"`";
            faults.add(section.offset, &section.path_of("approval"), message);
            None
        }
    };
    Some(FlowEntry { after: after?, then: then?, approval: approval?, location: entry.located(()) })
}

/// Reads a list that must not be empty.
fn read_words<T>(
    section: &Section<'_>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, InvalidValue>,
    faults: &mut Faults<'_>,
) -> Option<Vec<Located<T>>> {
    let Some(entry) = section.entry(key) else {
        faults.add(section.offset, &section.path_of(key), "missing key; write a list of words");
        return None;
    };
    let elements = entry.list(faults)?;
    if elements.is_empty() {
        entry.refuse(faults, "an empty list: the rule would do nothing");
    }
    Some(
        elements
            .iter()
            .filter_map(|element| Some(element.located(element.parsed(faults, &parse)?)))
            .collect(),
    )
}

fn parse_label(word: &str) -> Result<LabelWord, InvalidValue> {
    match (word, word.split_once(':')) {
        ("vault", _) => Ok(LabelWord::Vault),
        ("web", _) => Ok(LabelWord::Web),
        (_, Some(("mount", "vault"))) => Err(InvalidValue::VaultLabel),
        (_, Some(("mount", name))) => Ok(LabelWord::Mount(name.to_owned())),
        (_, Some(("secret", name))) => Ok(LabelWord::Secret(name.to_owned())),
        _ => Err(InvalidValue::Label),
    }
}

fn parse_sink(word: &str) -> Result<SinkWord, InvalidValue> {
    match (word, word.split_once(':')) {
        ("network", _) => Ok(SinkWord::Network),
        ("shell", _) => Ok(SinkWord::Shell),
        (_, Some(("write", "protected"))) => Ok(SinkWord::WriteKinds),
        (_, Some(("write", name))) => Ok(SinkWord::Write(name.to_owned())),
        _ => Err(InvalidValue::Sink),
    }
}

fn parse_ask_or_deny(word: &str) -> Result<Approval, InvalidValue> {
    match parse_approval(word)? {
        Approval::Allow => Err(InvalidValue::AllowingFlowRule),
        approval @ (Approval::Ask | Approval::Deny) => Ok(approval),
    }
}
