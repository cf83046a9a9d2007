//! Single values: sizes, durations, counts. Each is exact and bounded.

use std::time::Duration;

use portcullis_types::{EscapedText, SafetyTier, ToolName};

use crate::{
    Approval, MemoryBytes, OutputBytes,
    limits::{self, GIB, KIB, LimitBounds, MIB, in_largest_unit},
};

use super::{
    Faults, LimitEntries, PlacedValue, did_you_mean, keys,
    section::{Section, SectionEntry},
};

/// Reads `[limits]`, which both shapes of a file share.
pub(super) fn limits(section: &Section<'_>, faults: &mut Faults<'_>) -> LimitEntries {
    section.refuse_unknown(keys::LIMITS, faults);
    let placed = |name: &str| section.entry(name);
    LimitEntries {
        concurrency: placed("concurrency").and_then(|entry| {
            let count = count(&entry, limits::CONCURRENCY_BOUNDS, faults)?;
            // Cannot fail: the bounds lie far below.
            Some(entry.placed(usize::try_from(count).unwrap_or(usize::MAX)))
        }),
        calls_per_minute: placed("calls_per_minute").and_then(|entry| {
            let count = count(&entry, limits::CALLS_PER_MINUTE_BOUNDS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.placed(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        max_output_bytes: placed("max_output_bytes").and_then(|entry| output(&entry, faults)),
        wasm_memory: placed("wasm_memory").and_then(|entry| memory(&entry, faults)),
        max_timeout: placed("max_timeout").and_then(|entry| timeout(&entry, faults)),
    }
}

/// Reads a count.
pub(super) fn count(
    entry: &SectionEntry<'_>,
    bounds: LimitBounds<u64>,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let Some(number) = entry.as_integer() else {
        return entry.refuse_type("a whole number", faults);
    };
    within(entry, number, bounds, |number| number.to_string(), faults)
}

/// Reads a length of output.
pub(super) fn output(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<PlacedValue<OutputBytes>> {
    Some(entry.placed(OutputBytes(size(entry, limits::OUTPUT_BOUNDS, faults)?)))
}

/// Reads an amount of memory.
pub(super) fn memory(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<PlacedValue<MemoryBytes>> {
    Some(entry.placed(MemoryBytes(size(entry, limits::MEMORY_BOUNDS, faults)?)))
}

/// Reads a size: a text with a unit, or a number of bytes.
pub(super) fn size(
    entry: &SectionEntry<'_>,
    bounds: LimitBounds<u64>,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let bytes = match entry.as_integer() {
        Some(bytes) => bytes,
        None => entry.parsed(faults, parse_size)?,
    };
    within(entry, bytes, bounds, in_largest_unit, faults)
}

/// Reads a time limit.
pub(super) fn timeout(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<PlacedValue<Duration>> {
    if let Some(number) = entry.as_integer() {
        entry.refuse(
            faults,
            format!("a duration has a unit: write \"{number}s\", \"{number}ms\" or \"{number}m\""),
        );
        return None;
    }
    let duration = entry.parsed(faults, parse_duration)?;
    let LimitBounds { least, most } = limits::TIMEOUT_BOUNDS;
    if duration < least || duration > most {
        let shown = humantime::format_duration(duration);
        let (least, most) = (humantime::format_duration(least), humantime::format_duration(most));
        entry.refuse(faults, format!("{shown} is out of bounds: {least} to {most} are allowed"));
        return None;
    }
    Some(entry.placed(duration))
}

fn within(
    entry: &SectionEntry<'_>,
    number: i128,
    bounds: LimitBounds<u64>,
    show: impl Fn(u64) -> String,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let LimitBounds { least, most } = bounds;
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Some(number),
        Ok(_) | Err(_) => {
            let found = u64::try_from(number).map_or_else(|_| number.to_string(), &show);
            let (least, most) = (show(least), show(most));
            entry.refuse(faults, format!("{found} is out of bounds: {least} to {most} are allowed"));
            None
        }
    }
}

/// Parses a whole number and a unit. Fractions are refused: rounding would set another limit than the written
/// one.
fn parse_size(text: &str) -> Result<i128, String> {
    let wrong = || {
        let text = EscapedText(text);
        format!("\"{text}\" is no size: write a whole number and B, KiB, MiB or GiB, such as \"16KiB\"")
    };
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
        _ => return Err(wrong()),
    };
    let number = number.parse::<u64>().map_err(|error| format!("{}: {error}", wrong()))?;
    // In `i128`, where no product overflows.
    Ok(i128::from(number) * i128::from(factor))
}

/// Parses a duration of whole milliseconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| {
        format!(
            "\"{}\" is no duration ({error}): write such as \"20s\", \"500ms\" or \"10m\"",
            EscapedText(text)
        )
    })?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("\"{}\" is finer than a millisecond", EscapedText(text)));
    }
    Ok(duration)
}

/// Makes a parser for the names of an enumeration.
pub(super) fn one_of<T: Copy, const N: usize>(
    what: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        all.into_iter().find(|one| name(*one) == text).ok_or_else(|| {
            let right = did_you_mean(text, all.into_iter().map(name));
            format!("unknown {what} `{}`; {right}", EscapedText(text))
        })
    }
}

/// Parses an approval.
pub(super) fn approval_of(text: &str) -> Result<Approval, String> {
    one_of("approval", Approval::ALL, Approval::as_str)(text)
}

/// Parses a tier's name.
pub(super) fn tier(text: &str) -> Result<SafetyTier, String> {
    one_of("tier", SafetyTier::ALL, SafetyTier::as_str)(text)
}

/// Parses a tool's name.
pub(super) fn tool_name(text: &str) -> Result<ToolName, String> {
    ToolName::parse(text).map_err(|error| error.to_string())
}

/// The parsed elements of a list.
pub(super) fn elements<T>(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Vec<PlacedValue<T>> {
    let elements = entry.list(faults).unwrap_or_default();
    if elements.len() > MAX_ELEMENTS {
        entry.refuse(faults, format!("{} elements; at most {MAX_ELEMENTS} are allowed", elements.len()));
        return Vec::new();
    }
    elements.iter().filter_map(|element| Some(element.placed(element.parsed(faults, &parse)?))).collect()
}

/// The most elements of one list: every program of every command, and every request, is compared with every
/// rule.
const MAX_ELEMENTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit() {
        for (text, bytes) in [("16KiB", 16_384), ("1 MiB", 1_048_576), ("7B", 7), ("1MB", 1_000_000)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "16", "KiB", "1.5MiB", "-1B", "16 XB", "1 MiB ", "16kib", "99999999999999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_no_fractions_of_a_millisecond() {
        assert_eq!(parse_duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "20", "s", "20 parsecs", "1us", "-1s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
