//! The filters of `portcullis audit log`.

use std::time::Duration;

use jiff::{Timestamp, ToSpan as _, Zoned, civil, tz::TimeZone};
use portcullis_tools::{
    audit::{Decision, Row, RowEvent, SharedText, SubjectKind},
    policy::{InvalidPathPattern, PathPattern},
};
use portcullis_types::GuestPath;
use thiserror::Error;

use crate::{cli::FilterOptions, error::CliError};

/// The reason why the value of a filter cannot be read.
#[derive(Debug, Error)]
pub(crate) enum InvalidFilter {
    #[error("it is not a guest path; one starts with `/`, such as `/shared/src`")]
    NotAGuestPath,
    #[error(transparent)]
    Pattern(#[from] InvalidPathPattern),
    #[error(
        "it is not a time; write `2026-11-26`, `2026-11-26T14:00`, `yesterday`, or a time back from now, such as \
         `2h` or `30d` ({0})"
    )]
    NotATime(humantime::DurationError),
    #[error(transparent)]
    TimeOutOfRange(#[from] jiff::Error),
}

/// Decides which rows are shown. A row must match every given filter.
#[derive(Debug, Default)]
pub(crate) struct RowFilter {
    agents: Vec<String>,
    tools: Vec<String>,
    runs: Vec<String>,
    calls: Vec<String>,
    operations: Vec<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    mounts: Vec<String>,
    /// Each path yields two patterns: the path itself, and everything below it.
    paths: Vec<PathPattern>,
    decisions: Vec<Decision>,
    rules: Vec<String>,
    codes: Vec<String>,
    labels: Vec<String>,
    policies: Vec<String>,
    events: Vec<RowEvent>,
}

impl RowFilter {
    /// # Errors
    /// [`CliError::Filter`] for a time or a path that cannot be read.
    pub(crate) fn new(options: FilterOptions) -> Result<Self, CliError> {
        let now = Zoned::now();
        let time = |option: &'static str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) => parse_time(&text, &now).map(Some).map_err(|reason| CliError::Filter {
                option,
                text: text.clone(),
                reason,
            }),
        };
        let mut paths = Vec::new();
        for path in &options.path {
            paths.extend(path_patterns(path).map_err(|reason| CliError::Filter {
                option: "--path",
                text: path.clone(),
                reason,
            })?);
        }
        Ok(Self {
            since: time("--since", options.since)?,
            until: time("--until", options.until)?,
            paths,
            agents: options.agent,
            tools: options.tool,
            runs: options.run,
            calls: options.call,
            operations: options.operation,
            mounts: options.in_mount,
            decisions: options.decision,
            rules: options.rule,
            codes: options.code,
            labels: options.label,
            policies: options.policy_digest,
            events: options.event,
        })
    }

    /// Returns whether a row matches every filter.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        let digests = || [&row.policy_digest, &row.old_digest, &row.new_digest].into_iter().flatten();
        matches_any_or_empty(&self.agents, |agent| row.agent.as_deref() == Some(agent))
            && matches_any_or_empty(&self.tools, |tool| &*row.tool == tool)
            && matches_any_or_empty(&self.runs, |run| row.run_id.as_deref() == Some(run))
            && matches_any_or_empty(&self.calls, |call| &*row.call_id == call)
            && matches_any_or_empty(&self.operations, |operation| {
                row.operation_id.as_deref() == Some(operation)
            })
            && self.since.is_none_or(|since| row.time >= since)
            && self.until.is_none_or(|until| row.time < until)
            && matches_any_or_empty(&self.mounts, |mount| touches_mount(row, mount))
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| touches_path(row, pattern)))
            && (self.decisions.is_empty()
                || row.decision.is_some_and(|decision| self.decisions.contains(&decision)))
            && matches_any_or_empty(&self.rules, |rule| has_rule(row, rule))
            && matches_any_or_empty(&self.codes, |code| row.code.as_deref() == Some(code))
            && matches_any_or_empty(&self.labels, |label| row.labels.iter().any(|own| &**own == label))
            && matches_any_or_empty(&self.policies, |start| digests().any(|digest| digest.starts_with(start)))
            && (self.events.is_empty() || self.events.contains(&row.event))
    }
}

/// Returns whether one of the values matches, or no value was given.
fn matches_any_or_empty(values: &[String], is_met: impl Fn(&str) -> bool) -> bool {
    values.is_empty() || values.iter().any(|value| is_met(value))
}

fn touches_mount(row: &Row, mount: &str) -> bool {
    let is_in_mount =
        |path: &str| path.strip_prefix('/').is_some_and(|below| below.split('/').next() == Some(mount));
    row.mounts_used.iter().any(|used| &**used == mount) || paths_of(row).any(is_in_mount)
}

fn touches_path(row: &Row, pattern: &PathPattern) -> bool {
    paths_of(row).any(|path| GuestPath::parse(path).is_ok_and(|path| pattern.covers_absolute(&path)))
}

/// Returns the guest paths that a call named or touched.
fn paths_of(row: &Row) -> impl Iterator<Item = &str> {
    let named = row.subjects.iter().filter(|subject| subject.kind == SubjectKind::Path);
    named.map(|subject| &*subject.value).chain(row.touched_paths.iter().map(|path| &**path))
}

fn has_rule(row: &Row, rule: &str) -> bool {
    let asked_by = row.approver.as_ref().and_then(|approver| approver.rule.as_ref());
    let is_met = |own: &SharedText| {
        own.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ' ']))
    };
    [row.rule.as_ref(), row.flow_rule.as_ref(), asked_by].into_iter().flatten().any(is_met)
}

/// Returns the patterns of a path: the path or pattern itself, and everything below it.
fn path_patterns(path: &str) -> Result<[PathPattern; 2], InvalidFilter> {
    if !path.starts_with('/') {
        return Err(InvalidFilter::NotAGuestPath);
    }
    let path = path.trim_end_matches('/');
    Ok([PathPattern::parse(path)?, PathPattern::parse(&format!("{path}/**"))?])
}

/// Parses a time: a time with or without a zone, a date, `today`, `yesterday`, or a duration before now.
fn parse_time(text: &str, now: &Zoned) -> Result<Timestamp, InvalidFilter> {
    let midnight =
        |date: civil::Date| Ok(date.to_zoned(now.time_zone().clone()).map(|zoned| zoned.timestamp())?);
    match text {
        "today" => return midnight(now.date()),
        "yesterday" => return midnight(now.date().saturating_sub(1.day())),
        _ => {}
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(time) = text.parse::<civil::DateTime>() {
        let zone: TimeZone = now.time_zone().clone();
        return Ok(zone.to_timestamp(time)?);
    }
    let back: Duration = humantime::parse_duration(text).map_err(InvalidFilter::NotATime)?;
    Ok(now.timestamp().checked_sub(back)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-26T14:30:00+01:00[Europe/Berlin]".parse().expect("a time")
    }

    #[test]
    fn times_are_read_in_the_local_zone_unless_they_name_one() {
        for (text, expected) in [
            ("2026-11-26", "2026-11-25T23:00:00Z"),
            ("2026-11-26T14:00", "2026-11-26T13:00:00Z"),
            ("2026-11-26T14:00:00Z", "2026-11-26T14:00:00Z"),
            ("today", "2026-11-25T23:00:00Z"),
            ("yesterday", "2026-11-24T23:00:00Z"),
            ("2h", "2026-11-26T11:30:00Z"),
            ("30d", "2026-10-27T13:30:00Z"),
        ] {
            assert_eq!(parse_time(text, &now()).ok(), expected.parse().ok(), "{text}");
        }
        for text in ["", "soon", "2026-13-01", "-2h"] {
            assert!(parse_time(text, &now()).is_err(), "{text}");
        }
    }

    fn row(fields: &str) -> Row {
        let hash = "0".repeat(64);
        let head = r#""v":2,"seq":1,"time":"2026-11-26T12:00:00Z","event":"end","process":"1-1-1""#;
        let line = format!("{{{head},{fields},\"prev\":\"{hash}\",\"hash\":\"{hash}\"}}");
        serde_json::from_str(&line).expect("a row")
    }

    #[track_caller]
    fn matches(options: FilterOptions, fields: &str) -> bool {
        RowFilter::new(options).expect("a filter").matches(&row(fields))
    }

    #[test]
    fn a_row_matches_any_value_of_every_filter() {
        let fields = r#""agent":"a","tool":"file_read","run_id":"r","decision":"deny","code":"timeout","labels":["vault"]"#;
        let of = |agent: &[&str], tool: &[&str]| FilterOptions {
            agent: agent.iter().map(|&agent| agent.to_owned()).collect(),
            tool: tool.iter().map(|&tool| tool.to_owned()).collect(),
            ..FilterOptions::default()
        };
        assert!(matches(of(&[], &[]), fields));
        assert!(matches(of(&["b", "a"], &["file_read"]), fields));
        assert!(!matches(of(&["a"], &["file_write"]), fields));
        let with = |change: fn(&mut FilterOptions)| {
            let mut options = FilterOptions::default();
            change(&mut options);
            matches(options, fields)
        };
        assert!(with(|options| options.decision = vec![Decision::Deny]));
        assert!(!with(|options| options.decision = vec![Decision::Allow]));
        assert!(with(|options| options.code = vec!["timeout".to_owned()]));
        assert!(!with(|options| options.code = vec!["time".to_owned()]));
        assert!(with(|options| options.label = vec!["vault".to_owned()]));
        assert!(!with(|options| options.run = vec!["s".to_owned()]));
        assert!(with(|options| options.event = vec![RowEvent::End]));
        assert!(!with(|options| options.event = vec![RowEvent::Start]));
        assert!(with(|options| options.since = Some("2026-11-26T12:00:00Z".to_owned())));
        assert!(!with(|options| options.until = Some("2026-11-26T12:00:00Z".to_owned())));
    }

    #[test]
    fn a_path_means_itself_and_everything_below_it() {
        let fields = r#""subjects":[{"argument":"path","kind":"path","value":"/shared/src/a.rs"}],"touched_paths":["/tmp/x"],"mounts_used":["vault"]"#;
        for (path, expected) in [
            ("/shared/src/a.rs", true),
            ("/shared/src", true),
            ("/shared/", true),
            ("/shared/**/*.rs", true),
            ("/tmp", true),
            ("/shared/sr", false),
            ("/shared/*.rs", false),
            ("/vault", false),
        ] {
            let options = FilterOptions { path: vec![path.to_owned()], ..FilterOptions::default() };
            assert_eq!(matches(options, fields), expected, "{path}");
        }
        for (mount, expected) in [("shared", true), ("tmp", true), ("vault", true), ("share", false)] {
            let options = FilterOptions { in_mount: vec![mount.to_owned()], ..FilterOptions::default() };
            assert_eq!(matches(options, fields), expected, "{mount}");
        }
        let options = FilterOptions { path: vec!["src".to_owned()], ..FilterOptions::default() };
        assert!(matches!(RowFilter::new(options), Err(CliError::Filter { option: "--path", .. })));
    }

    #[test]
    fn a_rule_means_the_rules_below_it_too() {
        let fields =
            r#""rule":"tools.file_write.approval","approver":{"by":"flag","rule":"tiers.privileged"}"#;
        for (rule, expected) in [
            ("tools.file_write.approval", true),
            ("tools.file_write", true),
            ("tools.file", false),
            ("tiers.privileged", true),
            ("profiles", false),
        ] {
            let options = FilterOptions { rule: vec![rule.to_owned()], ..FilterOptions::default() };
            assert_eq!(matches(options, fields), expected, "{rule}");
        }
    }

    #[test]
    fn a_digest_may_be_shortened() {
        let fields = r#""policy_digest":"abcdef""#;
        for (digest, expected) in [("abc", true), ("bcd", false)] {
            let options =
                FilterOptions { policy_digest: vec![digest.to_owned()], ..FilterOptions::default() };
            assert_eq!(matches(options, fields), expected, "{digest}");
        }
    }
}
