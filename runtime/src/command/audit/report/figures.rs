//! The numbers of a report, counted row by row. Only the figures that a page shows are stored.

use std::collections::VecDeque;

use jiff::Timestamp;
use portcullis_tools::audit::{Decision, Outcome, RecordedConnection, Row, RowEvent, SubjectKind};
use portcullis_types::ToolErrorKind;

use super::tally::{Tally, name, name_or_none};

/// The number of the newest changes of the policy, and of approved modules, that a report lists.
const MAX_CHANGES: usize = 50;

/// The ends of a connection that was not refused.
const USUAL_ENDS: [&str; 5] = ["closed", "idle", "cancelled", "broken", "open"];

/// Everything that is counted.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The number of rows that matched the filters.
    pub(super) rows: u64,
    /// The times of the first and the last of these rows.
    pub(super) period: Option<(Timestamp, Timestamp)>,
    pub(super) total: Calls,
    pub(super) tools: Tally<String, Calls>,
    pub(super) agents: Tally<String, Calls>,
    pub(super) denials: Tally<DenialKind, Denials>,
    pub(super) approvals: Tally<ApprovalKind, Occurrences>,
    pub(super) policies: Tally<String, Occurrences>,
    pub(super) hosts: Tally<String, Traffic>,
    /// By secret and tool.
    pub(super) secrets: Tally<(String, String), Occurrences>,
    pub(super) programs: Tally<Program, Occurrences>,
    /// By model.
    pub(super) models: Tally<String, ModelRequests>,
    pub(super) stops: u64,
    pub(super) changes: Newest,
    pub(super) pins: Newest,
}

/// Calls by their end. Each call has one row `end`.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) calls: u64,
    pub(super) ran: u64,
    /// Calls for which an approval was needed, whatever the answer.
    pub(super) asked: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    /// Calls whose process died.
    pub(super) unknown: u64,
    pub(super) timed: u64,
    pub(super) total_us: u64,
    pub(super) longest_us: u64,
    pub(super) last: Option<Timestamp>,
}

/// Requests to one model.
#[derive(Debug, Default)]
pub(super) struct ModelRequests {
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) last: Option<Timestamp>,
}

impl ModelRequests {
    fn add(&mut self, row: &Row) {
        self.requests += 1;
        self.failed += u64::from(row.outcome != Some(Outcome::Ok));
        self.input_tokens = self.input_tokens.saturating_add(row.input_tokens.unwrap_or_default());
        self.output_tokens = self.output_tokens.saturating_add(row.output_tokens.unwrap_or_default());
        self.last = Some(row.time);
    }
}

/// The reason of denials: code, rule and tool.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DenialKind {
    pub(super) code: String,
    pub(super) rule: String,
    pub(super) tool: String,
}

/// Denials of one kind.
#[derive(Debug, Default)]
pub(super) struct Denials {
    pub(super) calls: u64,
    pub(super) last: Option<Timestamp>,
    /// The path, URL or command that the newest denied call named.
    pub(super) subject: Option<String>,
    pub(super) seq: u64,
}

/// The way in which a call was approved or refused.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApprovalKind {
    pub(super) answer: String,
    pub(super) by: &'static str,
    pub(super) approver: String,
    pub(super) uid: Option<u32>,
    pub(super) tool: String,
    pub(super) rule: String,
}

/// A number of rows, with the times of the first and the last.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    pub(super) count: u64,
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
}

impl Occurrences {
    fn add(&mut self, time: Timestamp) {
        self.count += 1;
        self.first.get_or_insert(time);
        self.last = Some(time);
    }
}

/// Requests and connections to one host.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) last: Option<Timestamp>,
}

impl Traffic {
    pub(super) fn total(&self) -> u64 {
        self.requests + self.connections + self.refused
    }

    fn add(&mut self, connection: &RecordedConnection, time: Timestamp) {
        if USUAL_ENDS.contains(&&*connection.end) {
            self.connections = self.connections.saturating_add(connection.count);
        } else {
            self.refused = self.refused.saturating_add(connection.count);
        }
        self.sent = self.sent.saturating_add(connection.sent);
        self.received = self.received.saturating_add(connection.received);
        self.last = Some(time);
    }
}

/// A program that wrote rows.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) version: String,
    pub(super) binary: String,
    pub(super) host: String,
    pub(super) instance: Option<String>,
    pub(super) uid: Option<u32>,
}

/// The newest rows of a kind, ordered from old to new, and the number of all of them.
#[derive(Debug, Default)]
pub(super) struct Newest {
    pub(super) count: u64,
    pub(super) newest_changes: VecDeque<ReportedChange>,
}

impl Newest {
    fn add(&mut self, change: ReportedChange) {
        self.count += 1;
        if self.newest_changes.len() == MAX_CHANGES {
            self.newest_changes.pop_front();
        }
        self.newest_changes.push_back(change);
    }
}

/// A change of the policy, or of an approved module's tool.
#[derive(Debug)]
pub(super) struct ReportedChange {
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    /// A short description: the change, or the tool.
    pub(super) subject: String,
    pub(super) cause: String,
    pub(super) by: String,
    /// The reason, if the change was refused.
    pub(super) refused: Option<String>,
}

impl Figures {
    pub(super) fn add(&mut self, row: &Row) {
        self.rows += 1;
        let (first, last) = self.period.unwrap_or((row.time, row.time));
        // The clock may have gone back, so compare all times.
        self.period = Some((first.min(row.time), last.max(row.time)));
        match row.event {
            RowEvent::End => self.add_external_call(row),
            RowEvent::Start => self.programs.of(program(row)).add(row.time),
            RowEvent::Stop => self.stops += 1,
            RowEvent::Policy => self.changes.add(policy_change(row)),
            RowEvent::Approve | RowEvent::Revoke => self.pins.add(pin_change(row)),
            RowEvent::Model => self.models.of(name_or_none(row.model.as_deref())).add(row),
            RowEvent::Begin | RowEvent::Result | RowEvent::Checkpoint | RowEvent::Other => {}
        }
    }

    fn add_external_call(&mut self, row: &Row) {
        for calls in [
            &mut self.total,
            self.tools.of(name(&row.tool)),
            self.agents.of(name_or_none(row.agent.as_deref())),
        ] {
            calls.add(row);
        }
        if let Some(digest) = &row.policy_digest {
            self.policies.of(name(digest)).add(row.time);
        }
        if row.outcome == Some(Outcome::Error(ToolErrorKind::Denied)) {
            let kind = DenialKind {
                code: name_or_none(row.code.as_deref()),
                rule: name_or_none(row.flow_rule.as_deref().or(row.rule.as_deref())),
                tool: name(&row.tool),
            };
            let denials = self.denials.of(kind);
            denials.calls += 1;
            (denials.last, denials.seq) = (Some(row.time), row.seq);
            denials.subject = row.subjects.first().map(|subject| name(&subject.value));
        }
        if was_asked(row) {
            self.approvals.of(approval(row)).add(row.time);
        }
        for secret in &row.secrets {
            self.secrets.of((name(secret), name(&row.tool))).add(row.time);
        }
        self.add_traffic(row);
    }

    fn add_traffic(&mut self, row: &Row) {
        for request in &row.requests {
            let traffic = self.hosts.of(name(host_of(&request.url)));
            traffic.requests += 1;
            traffic.last = Some(row.time);
        }
        // A refused request has no entry, so use the URL of an argument.
        let is_refused = row.decision == Some(Decision::Deny) && row.requests.is_empty();
        let urls = row.subjects.iter().filter(|subject| is_refused && subject.kind == SubjectKind::Url);
        for url in urls {
            let traffic = self.hosts.of(name(host_of(&url.value)));
            traffic.refused += 1;
            traffic.last = Some(row.time);
        }
        for connection in &row.connections {
            let host = match (&connection.host, connection.port) {
                (Some(host), Some(port)) => format!("{}:{port}", name(host)),
                (Some(host), None) => name(host),
                (None, _) => "–".to_owned(),
            };
            self.hosts.of(host).add(connection, row.time);
        }
    }
}

impl Calls {
    fn add(&mut self, row: &Row) {
        self.calls += 1;
        self.asked += u64::from(was_asked(row));
        match row.outcome {
            Some(Outcome::Ok | Outcome::Pending) => self.ran += 1,
            Some(Outcome::Error(ToolErrorKind::Denied)) => self.denied += 1,
            Some(Outcome::Error(_)) => self.failed += 1,
            Some(Outcome::Unknown) | None => self.unknown += 1,
        }
        if let Some(duration) = row.duration_us {
            self.timed += 1;
            self.total_us = self.total_us.saturating_add(duration);
            self.longest_us = self.longest_us.max(duration);
        }
        self.last = Some(row.time);
    }

    pub(super) fn mean_us(&self) -> Option<u64> {
        self.total_us.checked_div(self.timed)
    }
}

/// Returns whether the call needed an approval of its own. A step shares the approval of its operation.
fn was_asked(row: &Row) -> bool {
    let is_step =
        row.approver.is_none() && row.operation_id.is_some() && row.decision == Some(Decision::Allow);
    row.approval.as_deref().is_some_and(|approval| approval != "not_required") && !is_step
}

fn approval(row: &Row) -> ApprovalKind {
    let approver = row.approver.as_ref();
    ApprovalKind {
        answer: name_or_none(row.approval.as_deref()),
        by: approver.map_or("–", |approver| approver.by.as_str()),
        approver: name_or_none(approver.and_then(|approver| approver.name.as_deref())),
        uid: approver.and_then(|approver| approver.uid),
        tool: name(&row.tool),
        rule: name_or_none(approver.and_then(|approver| approver.rule.as_deref()).or(row.rule.as_deref())),
    }
}

fn program(row: &Row) -> Program {
    Program {
        version: name_or_none(row.version.as_deref()),
        binary: name_or_none(row.binary_sha256.as_deref()),
        host: name_or_none(row.host.as_deref()),
        instance: row.instance.as_deref().map(name),
        uid: row.uid,
    }
}

fn policy_change(row: &Row) -> ReportedChange {
    let digest = |digest: Option<&str>| name_or_none(digest.map(crate::output::html::short_digest));
    let (old, new) = (digest(row.old_digest.as_deref()), digest(row.new_digest.as_deref()));
    ReportedChange {
        seq: row.seq,
        time: row.time,
        subject: format!("{old} → {new}"),
        cause: name_or_none(row.cause.as_deref()),
        by: row.uid.map_or_else(|| "–".to_owned(), |uid| format!("user {uid}")),
        refused: row.refused.as_deref().map(name),
    }
}

fn pin_change(row: &Row) -> ReportedChange {
    ReportedChange {
        seq: row.seq,
        time: row.time,
        subject: name(&row.tool),
        cause: row.event.as_str().to_owned(),
        by: name_or_none(row.agent.as_deref()),
        refused: None,
    }
}

/// Returns the scheme, host and port of a URL from a row. A text without them is returned unchanged.
fn host_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |end| end + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |end| start + end);
    &url[..end]
}

#[cfg(test)]
mod tests;
