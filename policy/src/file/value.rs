//! Parses single values, such as sizes, durations and counts. Each value is exact and bounded.

use std::{fmt::Display, str::FromStr, time::Duration};

use portcullis_types::{InvalidToolName, SafetyTier, ToolName};

use crate::{
    Approval, MemoryBytes, OutputBytes,
    limits::{self, GIB, KIB, LimitBounds, MIB, format_in_largest_unit},
};

use super::{
    Faults, LimitEntries, Located, did_you_mean,
    invalid::InvalidValue,
    keys,
    section::{Section, SectionEntry},
};

/// Reads `[limits]`, which a policy and a reduction share.
pub(super) fn read_limits(section: &Section<'_>, faults: &mut Faults<'_>) -> LimitEntries {
    section.refuse_unknown(keys::LIMITS, faults);
    let located = |name: &str| section.entry(name);
    LimitEntries {
        concurrency: located("concurrency").and_then(|entry| {
            let count = read_count(&entry, limits::CONCURRENCY_BOUNDS, faults)?;
            // Cannot fail: the bounds lie far below `usize::MAX`.
            Some(entry.located(usize::try_from(count).unwrap_or(usize::MAX)))
        }),
        calls_per_minute: located("calls_per_minute").and_then(|entry| {
            let count = read_count(&entry, limits::CALLS_PER_MINUTE_BOUNDS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.located(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        max_output_bytes: located("max_output_bytes").and_then(|entry| read_output_size(&entry, faults)),
        wasm_memory: located("wasm_memory").and_then(|entry| read_memory_size(&entry, faults)),
        max_timeout: located("max_timeout").and_then(|entry| read_timeout(&entry, faults)),
    }
}

/// Parses a text by the rules of its type.
pub(super) fn parse_text<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.parse()
}

/// Reads a whole number within the bounds.
pub(super) fn read_count(
    entry: &SectionEntry<'_>,
    bounds: LimitBounds<u64>,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let Some(number) = entry.as_integer() else {
        return entry.refuse_type("a whole number", faults);
    };
    check_bounds(entry, number, bounds, |number| number.to_string(), faults)
}

/// Reads the maximum size of an output that a model gets, as [`read_size`] does.
pub(super) fn read_output_size(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
) -> Option<Located<OutputBytes>> {
    Some(entry.located(OutputBytes(read_size(entry, limits::OUTPUT_BOUNDS, faults)?)))
}

/// Reads the maximum memory of a guest or a command, as [`read_size`] does.
pub(super) fn read_memory_size(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
) -> Option<Located<MemoryBytes>> {
    Some(entry.located(MemoryBytes(read_size(entry, limits::MEMORY_BOUNDS, faults)?)))
}

/// Reads a size: a text with a unit, or a number of bytes.
pub(super) fn read_size(
    entry: &SectionEntry<'_>,
    bounds: LimitBounds<u64>,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let bytes = match entry.as_integer() {
        Some(bytes) => bytes,
        None => entry.parsed(faults, parse_size)?,
    };
    check_bounds(entry, bytes, bounds, format_in_largest_unit, faults)
}

/// Reads the time limit of a call.
pub(super) fn read_timeout(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<Located<Duration>> {
    read_duration(entry, limits::TIMEOUT_BOUNDS, faults)
}

/// Reads a duration with its unit, such as `30s`, within the bounds.
pub(super) fn read_duration(
    entry: &SectionEntry<'_>,
    bounds: LimitBounds<Duration>,
    faults: &mut Faults<'_>,
) -> Option<Located<Duration>> {
    if let Some(number) = entry.as_integer() {
        entry.refuse(
            faults,
            format!("a duration has a unit: write \"{number}s\", \"{number}ms\" or \"{number}m\""),
        );
        return None;
    }
    let duration = entry.parsed(faults, parse_duration)?;
    let LimitBounds { min, max } = bounds;
    if duration < min || duration > max {
        let value_text = humantime::format_duration(duration);
        let (min, max) = (humantime::format_duration(min), humantime::format_duration(max));
        entry.refuse(faults, format!("{value_text} is out of bounds: {min} to {max} are allowed"));
        return None;
    }
    Some(entry.located(duration))
}

fn check_bounds(
    entry: &SectionEntry<'_>,
    number: i128,
    bounds: LimitBounds<u64>,
    show: impl Fn(u64) -> String,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let LimitBounds { min, max } = bounds;
    match u64::try_from(number) {
        Ok(number) if (min..=max).contains(&number) => Some(number),
        Ok(_) | Err(_) => {
            let value_text = u64::try_from(number).map_or_else(|_| number.to_string(), &show);
            let (min, max) = (show(min), show(max));
            entry.refuse(faults, format!("{value_text} is out of bounds: {min} to {max} are allowed"));
            None
        }
    }
}

/// Parses a whole number and a unit. Fractions are refused, because rounding would set a limit that the text
/// does not state.
fn parse_size(text: &str) -> Result<i128, InvalidValue> {
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start_matches(' ') {
        "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        "TiB" => 1024 * GIB,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(InvalidValue::Size(text.to_owned())),
    };
    let number =
        number.parse::<u64>().map_err(|source| InvalidValue::SizeNumber { text: text.to_owned(), source })?;
    // `i128` cannot overflow here.
    Ok(i128::from(number) * i128::from(factor))
}

/// Parses a duration of whole milliseconds.
fn parse_duration(text: &str) -> Result<Duration, InvalidValue> {
    let duration = humantime::parse_duration(text)
        .map_err(|source| InvalidValue::Duration { text: text.to_owned(), source })?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(InvalidValue::FineDuration(text.to_owned()));
    }
    Ok(duration)
}

/// Makes a parser for the names of an enum's values.
pub(super) fn choice_parser<T: Copy, const N: usize>(
    noun: &'static str,
    values: [T; N],
    name: fn(T) -> &'static str,
) -> impl Fn(&str) -> Result<T, InvalidValue> {
    move |text| {
        values.into_iter().find(|value| name(*value) == text).ok_or_else(|| {
            let suggestion = did_you_mean(text, values.into_iter().map(name));
            InvalidValue::UnknownWord { noun, text: text.to_owned(), suggestion }
        })
    }
}

/// Parses an approval.
pub(super) fn parse_approval(text: &str) -> Result<Approval, InvalidValue> {
    choice_parser("approval", Approval::ALL, Approval::as_str)(text)
}

/// Parses a tier's name.
pub(super) fn parse_tier(text: &str) -> Result<SafetyTier, InvalidValue> {
    choice_parser("tier", SafetyTier::ALL, SafetyTier::as_str)(text)
}

/// Parses a tool's name.
pub(super) fn parse_tool_name(text: &str) -> Result<ToolName, InvalidToolName> {
    ToolName::parse(text)
}

/// Returns the parsed elements of a list. Faulty elements are left out.
pub(super) fn read_elements<T, E: Display>(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Vec<Located<T>> {
    let elements = entry.list(faults).unwrap_or_default();
    if elements.len() > MAX_ELEMENTS {
        entry.refuse(faults, format!("{} elements; at most {MAX_ELEMENTS} are allowed", elements.len()));
        return Vec::new();
    }
    elements.iter().filter_map(|element| Some(element.located(element.parsed(faults, &parse)?))).collect()
}

/// The maximum number of elements of one list. Every program of every command, and every request, is compared with
/// every rule.
const MAX_ELEMENTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit() {
        for (text, bytes) in [("16KiB", 16_384), ("1 MiB", 1_048_576), ("7B", 7), ("1MB", 1_000_000)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for invalid in
            ["", "16", "KiB", "1.5MiB", "-1B", "16 XB", "1 MiB ", "16kib", "99999999999999999999GiB"]
        {
            assert!(parse_size(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_no_fractions_of_a_millisecond() {
        assert_eq!(parse_duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for invalid in ["", "20", "s", "20 parsecs", "1us", "-1s"] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
    }
}
