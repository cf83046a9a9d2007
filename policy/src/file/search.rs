//! Reads `[search]`, in an operator's policy and in a reduction. A reduction can only turn the provider off.

use crate::search::{SearchProvider, SearchSettings, SearchUrl, parse_engine};

use super::{
    Faults, Located,
    invalid::InvalidValue,
    keys,
    section::Section,
    value::{choice_parser, parse_text},
};

/// Reads an operator's `[search]`.
pub(super) fn read_search(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<Located<SearchSettings>> {
    section.refuse_unknown(keys::SEARCH, faults);
    // Read all keys before the first `?`, because each mistake is a separate fault.
    let located = section.entry("provider");
    let url = section.entry("url").map(|entry| entry.parsed(faults, parse_text::<SearchUrl>));
    let engine = section.entry("engine").map(|entry| (entry.key_offset, entry.parsed(faults, parse_engine)));
    let Some(entry) = located else {
        let words: Vec<String> = SearchProvider::ALL.iter().map(|word| format!("\"{word}\"")).collect();
        let message = format!("missing key; write one of {}", words.join(", "));
        faults.add(section.offset, &section.path_of("provider"), message);
        return None;
    };
    let provider: SearchProvider =
        entry.parsed(faults, choice_parser("provider", SearchProvider::ALL, SearchProvider::as_str))?;
    if url.is_none() && provider.default_url().is_none() {
        let message = format!(
            "missing key; `{provider}` needs the address of an instance, such as \"http://127.0.0.1:8888/search\""
        );
        faults.add(section.offset, &section.path_of("url"), message);
    }
    match &engine {
        None if provider.has_engine() => {
            let message = format!("missing key; `{provider}` needs the ID of a search engine (`cx`)");
            faults.add(section.offset, &section.path_of("engine"), message);
        }
        Some((offset, _)) if !provider.has_engine() => {
            let message = format!("`{provider}` has no engines; take this line out");
            faults.add(*offset, &section.path_of("engine"), message);
        }
        Some(_) | None => {}
    }
    // A wrong value was reported above, and must not be replaced by a default.
    if matches!(url, Some(None)) || matches!(engine, Some((_, None))) {
        return None;
    }
    let engine = engine.and_then(|(_, engine)| engine);
    Some(entry.located(SearchSettings::new(provider, url.flatten(), engine)?))
}

/// Reads `[search]` of a reduction. Returns the position at which it turns the provider off.
pub(super) fn read_reduced_search(section: &Section<'_>, faults: &mut Faults<'_>) -> Option<Located<()>> {
    section.refuse_unknown(keys::SEARCH, faults);
    for key in keys::SEARCH_OPERATORS_ALONE {
        if let Some(entry) = section.entry(key) {
            let message =
                "only the operator's policy may set this key; this section may only remove the provider";
            faults.add(entry.key_offset, &entry.path, message);
        }
    }
    let Some(entry) = section.entry("provider") else {
        let message = "missing key; write `provider = \"none\"` to take the provider away";
        faults.add(section.offset, &section.path_of("provider"), message);
        return None;
    };
    entry.parsed(faults, |text| match text {
        NO_PROVIDER => Ok(()),
        _ => Err(InvalidValue::ReducedProvider(text.to_owned())),
    })?;
    Some(entry.located(()))
}

/// The word with which a reduction turns the provider off.
pub(super) const NO_PROVIDER: &str = "none";
