//! The outcome of a command: a text for the model, and separate details for people and programs.

use std::{borrow::Cow, time::Duration};

use portcullis_policy::{DenialCode, MemoryBytes, TunnelRule};
use portcullis_types::{ToolError, ToolErrorCode, ToolOutput};
use serde_json::{Map, Value, json};

use super::session::CollectedCommand;
use crate::pipeline::format_with_commas;
use portcullis_shell_protocol::{Exited, PostureReport, exited::Ending};

/// The outcome of a command.
pub(super) struct CommandReply {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// Text after the output. Truncation keeps it.
    pub(super) trailer: Option<String>,
    /// The output of background jobs. It was not streamed while the command ran.
    pub(super) jobs: Option<String>,
}

/// The context of a command that its outcome mentions.
#[derive(Debug)]
pub(super) struct CommandContext<'a> {
    pub(super) session: &'a str,
    pub(super) is_new: bool,
    pub(super) posture: &'a PostureReport,
    pub(super) unconfined: bool,
    pub(super) time_limit: Duration,
    pub(super) processes: u32,
    pub(super) memory: MemoryBytes,
}

/// Turns the end of a command into its outcome. A command that exited by itself gives a result, even if its
/// exit code is not 0. A command that was killed for exceeding its time, process or memory limit gives an
/// error with the last part of its output.
pub(super) fn outcome(command_result: CollectedCommand, context: &CommandContext<'_>) -> CommandReply {
    let CollectedCommand { merged, stderr_bytes, mut exited } = command_result;
    let background = std::mem::take(&mut exited.background);
    let text = String::from_utf8_lossy(&merged);
    // Killing a command does not undo its changes to protected paths, so report them in an error too.
    let protected = protected_paths_note(&exited);
    if let Some(error) = kill_error(&exited, context, protected.as_deref(), &text) {
        return CommandReply { result: Err(error), trailer: None, jobs: None };
    }
    let notes = notes(&exited, context, protected);
    let trailer = trailer(&exited, &notes);
    // `Owned` means that the lossy conversion replaced invalid bytes.
    let is_lossy = matches!(text, Cow::Owned(_)) || std::str::from_utf8(&background).is_err();
    // `stderr_bytes` includes bytes beyond the output limit, so it can exceed the length of the kept output.
    let mut details = details(
        &exited,
        context,
        is_lossy,
        merged.len() as u64 - stderr_bytes.min(merged.len() as u64),
        stderr_bytes,
    );
    details.insert("background_bytes".to_owned(), background.len().into());
    details.insert("background_dropped".to_owned(), exited.background_dropped.into());
    if !exited.background_killed.is_empty() {
        details.insert("background_killed".to_owned(), exited.background_killed.clone().into());
    }
    if !notes.is_empty() {
        details.insert("notes".to_owned(), notes.into());
    }
    let jobs = background_text(&background, exited.background_dropped);
    let text = append_background(text, jobs.as_deref());
    CommandReply { result: Ok(ToolOutput::text(text).with_details(details.into())), trailer, jobs }
}

/// Returns the error of a command that was killed. `None` if the command exited by itself.
fn kill_error(
    exited: &Exited,
    context: &CommandContext<'_>,
    protected: Option<&str>,
    output: &str,
) -> Option<ToolError> {
    let with_context = |cause: &str| {
        let message = killed_message(cause);
        let notes: Vec<&str> = [message.as_str()].into_iter().chain(protected).collect();
        append_last_output(&notes.join("; "), output)
    };
    let limit = |limit_text: &str| ToolError::resource_limit(with_context(limit_text));
    Some(match exited.interruption.as_str() {
        "timeout" => ToolError::timeout(with_context(&format!(
            "the command did not end within {:?}",
            context.time_limit
        ))),
        "processes" => limit(&format!("the command had more than {} processes", context.processes))
            .with_code(ToolErrorCode::TooManyProcesses),
        "memory" => limit(&format!("the command and its jobs had more than {} of memory", context.memory))
            .with_code(ToolErrorCode::TooMuchMemory),
        "hidden" => limit(
            "the command's memory could not be counted: a process hides it, or there were too many mappings",
        )
        .with_code(ToolErrorCode::MemoryUncountable),
        "cancelled" => ToolError::cancelled("the command was cancelled and killed"),
        _ => return None,
    })
}

/// Appends the output of background jobs since the last command. The same limits apply.
fn append_background<'a>(output: Cow<'a, str>, jobs: Option<&str>) -> Cow<'a, str> {
    let Some(jobs) = jobs else { return output };
    let mut text = output.into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += jobs;
    Cow::Owned(text)
}

/// Formats the output of background jobs since the last command, under a heading.
fn background_text(background: &[u8], dropped: u64) -> Option<String> {
    if background.is_empty() && dropped == 0 {
        return None;
    }
    let mut text = "[background jobs wrote since the last command".to_owned();
    if dropped > 0 {
        let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
        text += &format!(" — {} bytes before this were dropped", format_with_commas(dropped));
    }
    text += ":]\n";
    text += &String::from_utf8_lossy(background);
    Some(text)
}

/// Formats the lines after the output, each in brackets: how the command ended, and the notes.
fn trailer(exited: &Exited, notes: &[String]) -> Option<String> {
    let ending = match exited.ending {
        Some(Ending::Code(0)) => None,
        Some(Ending::Code(code)) => Some(format!("[exit code: {code}]")),
        Some(Ending::Signal(signal)) => {
            Some(format!("[killed by signal {signal} ({})]", signal_name(signal)))
        }
        None => Some("[it is not known how the command ended]".to_owned()),
    };
    let lines: Vec<String> = ending.into_iter().chain(notes.iter().map(|note| format!("[{note}]"))).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Collects the notes on a command, apart from its output and how it ended.
fn notes(exited: &Exited, context: &CommandContext<'_>, protected: Option<String>) -> Vec<String> {
    let mut notes = Vec::new();
    if exited.truncated {
        let bytes = usize::try_from(exited.output_bytes).unwrap_or(usize::MAX);
        notes.push(format!(
            "output dropped after the limit — the command wrote {} bytes",
            format_with_commas(bytes)
        ));
    }
    notes.extend(protected);
    if exited.jobs_left {
        notes.push(
            "background jobs are still running; their output comes with the next command of this session"
                .to_owned(),
        );
    }
    notes.extend(no_network_note(context));
    notes.extend(refused_connections(exited));
    if context.unconfined {
        notes.push("ran on the host, unconfined".to_owned());
    }
    notes
}

/// Says why a new session has no network although the policy grants hosts.
fn no_network_note(context: &CommandContext<'_>) -> Option<String> {
    let network = context.posture.network.as_ref().filter(|_| context.is_new)?;
    let absence = portcullis_types::escape_for_display(&network.absence).to_string();
    (!absence.is_empty()).then(|| format!("no network: {absence}"))
}

/// Lists the refused connections for the model, because most programs report little of a proxy's response.
fn refused_connections(exited: &Exited) -> Option<String> {
    let refused = exited.connections.iter().filter(|connection| !ENDS.contains(&connection.end.as_str()));
    let mut refused_hosts: Vec<String> = refused
        .map(|connection| {
            let host = match connection.host.as_str() {
                "" => "an unreadable request".to_owned(),
                host => format!("{}:{}", portcullis_types::escape_for_display(host), connection.port),
            };
            format!("{host} ({})", portcullis_types::escape_for_display(&connection.end))
        })
        .collect();
    let omitted_count = refused_hosts.len().saturating_sub(MAX_SHOWN_CONNECTIONS);
    refused_hosts.truncate(MAX_SHOWN_CONNECTIONS);
    let omitted_note = if omitted_count > 0 { format!(" and {omitted_count} more") } else { String::new() };
    let remedy = line_that_grants(exited).unwrap_or_default();
    (!refused_hosts.is_empty())
        .then(|| format!("no connection to {}{omitted_note}{remedy}", refused_hosts.join(", ")))
}

/// Returns the line of a policy that would grant the refused hosts. Hosts that are not valid rules are
/// omitted: the command chose their text.
fn line_that_grants(exited: &Exited) -> Option<String> {
    let refused =
        exited.connections.iter().filter(|connection| connection.end == DenialCode::HostNotGranted.as_str());
    let rules: Vec<String> = refused
        .filter(|connection| !connection.host.contains('*'))
        .filter_map(|connection| {
            format!("https://{}:{}", connection.host, connection.port).parse::<TunnelRule>().ok()
        })
        .map(|rule| format!("\"{rule}\""))
        .take(MAX_SHOWN_CONNECTIONS)
        .collect();
    (!rules.is_empty()).then(|| {
        format!("; an operator allows it with `hosts = [{}]` under `[shell]` in the policy", rules.join(", "))
    })
}

/// The values of `Connection::end` for established connections.
const ENDS: [&str; 5] = ["closed", "idle", "cancelled", "broken", "open"];

/// The maximum number of refused connections that a note lists.
const MAX_SHOWN_CONNECTIONS: usize = 5;

fn protected_paths_note(exited: &Exited) -> Option<String> {
    let escape = |path: &String| portcullis_types::escape_for_display(path).to_string();
    let paths: Vec<String> = exited.protected_paths.iter().map(escape).collect();
    (!paths.is_empty()).then(|| {
        format!("protected paths were created or changed, and the operator is informed: {}", paths.join(", "))
    })
}

fn details(
    exited: &Exited,
    context: &CommandContext<'_>,
    is_lossy: bool,
    stdout_bytes: u64,
    stderr_bytes: u64,
) -> Map<String, Value> {
    let mut details = Map::new();
    let mut put = |key: &str, value: Value| details.insert(key.to_owned(), value);
    match exited.ending {
        Some(Ending::Code(code)) => put("exit_code", code.into()),
        Some(Ending::Signal(signal)) => {
            put("signal", signal.into());
            put("signal_name", signal_name(signal).into())
        }
        None => None,
    };
    put("duration_us", exited.duration_us.into());
    put("cpu_us", exited.cpu_us.into());
    put("peak_memory_bytes", exited.peak_memory_bytes.into());
    put("output_bytes", exited.output_bytes.into());
    put("stdout_bytes", stdout_bytes.into());
    put("stderr_bytes", stderr_bytes.into());
    put("output_dropped", exited.truncated.into());
    put("invalid_utf8", is_lossy.into());
    put("state", exited.state.clone().into());
    put("jobs_left", exited.jobs_left.into());
    put("session", json!({"name": context.session, "new": context.is_new}));
    put("posture", context.posture.summary.clone().into());
    if let Some(uid) = context.posture.uid {
        put("uid", uid.into());
    }
    put("protected_complete", exited.protected_complete.into());
    if !exited.protected_paths.is_empty() {
        put("protected_paths", exited.protected_paths.clone().into());
    }
    details
}

/// Returns the first part of a killed command's error.
fn killed_message(what: &str) -> String {
    format!("{what}; the command and all its processes were killed; the session is still usable")
}

/// Builds the text of an error: what happened, and the last part of the output.
fn append_last_output(what: &str, output: &str) -> String {
    let output = output.trim_end();
    if output.is_empty() {
        return what.to_owned();
    }
    let start = output.ceil_char_boundary(output.len().saturating_sub(MAX_LAST_OUTPUT_BYTES));
    format!("{what}. The last of its output:\n{}", &output[start..])
}

/// Returns the name of a signal, as `kill -l` prints it (signal(7)).
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        16 => "SIGSTKFLT",
        17 => "SIGCHLD",
        18 => "SIGCONT",
        19 => "SIGSTOP",
        20 => "SIGTSTP",
        21 => "SIGTTIN",
        22 => "SIGTTOU",
        23 => "SIGURG",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        26 => "SIGVTALRM",
        27 => "SIGPROF",
        28 => "SIGWINCH",
        29 => "SIGIO",
        30 => "SIGPWR",
        31 => "SIGSYS",
        34..=64 => "real-time signal",
        _ => "unknown signal",
    }
}

/// The maximum number of bytes of a killed command's output that its error repeats. Errors also have a
/// limit of their own.
const MAX_LAST_OUTPUT_BYTES: usize = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    fn context(posture: &PostureReport) -> CommandContext<'_> {
        CommandContext {
            session: "default",
            is_new: false,
            posture,
            unconfined: false,
            time_limit: Duration::from_secs(3),
            processes: 8,
            memory: MemoryBytes(1 << 30),
        }
    }

    fn answer_to(output: &[u8], exited: Exited) -> CommandReply {
        let merged = output.to_vec();
        outcome(CollectedCommand { merged, stderr_bytes: 0, exited }, &context(&PostureReport::default()))
    }

    #[track_caller]
    fn check(output: &str, exited: Exited, trailer: Option<&str>) {
        let outcome = answer_to(output.as_bytes(), exited);
        assert_eq!(outcome.result.expect("a result").joined_text(), output);
        assert_eq!(outcome.trailer.as_deref(), trailer);
    }

    #[test]
    fn a_command_that_ended_is_a_result_with_any_exit_code() {
        let code = |code| Exited { ending: Some(Ending::Code(code)), ..Exited::default() };
        check("out\n", code(0), None);
        check("", code(127), Some("[exit code: 127]"));
        let signal = Exited { ending: Some(Ending::Signal(11)), ..Exited::default() };
        check("half", signal, Some("[killed by signal 11 (SIGSEGV)]"));
        let dropped = Exited { truncated: true, output_bytes: 1_234_567, ..code(1) };
        let text = "[exit code: 1]\n[output dropped after the limit — the command wrote 1,234,567 bytes]";
        check("x", dropped, Some(text));
    }

    #[test]
    fn a_killed_command_is_an_error_with_its_last_output() {
        let killed = |interruption: &str| Exited {
            ending: Some(Ending::Signal(9)),
            interruption: interruption.to_owned(),
            ..Exited::default()
        };
        let error = answer_to("first\nlast\n".as_bytes(), killed("timeout")).result.expect_err("killed");
        assert_eq!(error.kind(), portcullis_types::ToolErrorKind::Timeout);
        assert!(error.message().ends_with("last"), "{error}");
        let long_output = "ä".repeat(5000);
        let error = answer_to(long_output.as_bytes(), killed("processes")).result.expect_err("killed");
        assert_eq!(error.code(), "too_many_processes");
        assert!(error.message().len() < 3300);
        let error = answer_to(b"", killed("memory")).result.expect_err("killed");
        assert_eq!(error.code(), "too_much_memory");
        assert_eq!(error.kind(), portcullis_types::ToolErrorKind::ResourceLimit);
        assert!(error.message().contains("more than 1GiB of memory"), "{error}");
    }

    #[test]
    fn job_output_follows_the_output_of_the_command() {
        let background_exit = |background: &[u8], background_dropped| Exited {
            ending: Some(Ending::Code(0)),
            background: background.to_vec(),
            background_dropped,
            ..Exited::default()
        };
        check_text(
            b"out",
            background_exit(b"job\n", 0),
            "out\n[background jobs wrote since the last command:]\njob\n",
        );
        check_text(
            b"",
            background_exit(b"a\xffb", 0),
            "[background jobs wrote since the last command:]\na\u{fffd}b",
        );
        check_text(b"out\n", background_exit(b"", 0), "out\n");
        let dropped =
            "[background jobs wrote since the last command — 1,234 bytes before this were dropped:]\nx";
        check_text(b"", background_exit(b"x", 1234), dropped);
        let exited = Exited { jobs_left: true, ..background_exit(b"", 0) };
        let trailer =
            "[background jobs are still running; their output comes with the next command of this session]";
        check("", exited, Some(trailer));
    }

    #[track_caller]
    fn check_text(output: &[u8], exited: Exited, text: &str) {
        let (bytes, dropped) = (exited.background.len(), exited.background_dropped);
        let result = answer_to(output, exited).result.expect("a result");
        assert_eq!(result.joined_text(), text);
        assert_eq!(
            (&result.details["background_bytes"], &result.details["background_dropped"]),
            (&bytes.into(), &dropped.into())
        );
    }

    #[test]
    fn details_hold_notes_and_killed_jobs() {
        let exited = Exited {
            ending: Some(Ending::Code(3)),
            protected_paths: vec!["/shared/.bashrc".to_owned()],
            background_killed: vec!["memory".to_owned()],
            ..Exited::default()
        };
        let details = answer_to(b"", exited.clone()).result.expect("a result").details;
        let note = "protected paths were created or changed, and the operator is informed: /shared/.bashrc";
        assert_eq!((&details["notes"], &details["background_killed"]), (&json!([note]), &json!(["memory"])));
        let killed = Exited { interruption: "timeout".to_owned(), ..exited };
        let error = answer_to(b"last", killed).result.expect_err("killed");
        assert!(error.message().contains(note) && error.message().ends_with("last"), "{error}");
    }

    #[test]
    fn bytes_of_a_job_that_are_not_text_are_marked_too() {
        let exited =
            Exited { ending: Some(Ending::Code(0)), background: b"a\xff".to_vec(), ..Exited::default() };
        assert_eq!(answer_to(b"text", exited).result.expect("a result").details["invalid_utf8"], true);
    }

    #[test]
    fn bytes_that_are_not_text_are_marked() {
        let exited = Exited { ending: Some(Ending::Code(0)), ..Exited::default() };
        let outcome = answer_to(b"a\xffb", exited).result.expect("a result");
        assert_eq!(outcome.joined_text(), "a\u{fffd}b");
        assert_eq!(outcome.details["invalid_utf8"], true);
    }
}
