//! What came of a command: a text for a model, everything apart for people and programs.

use std::{borrow::Cow, time::Duration};

use portcullis_policy::MemoryBytes;
use portcullis_types::{ToolError, ToolOutput};
use serde_json::{Map, Value, json};

use super::{
    protocol::{Exited, PostureReport, exited::Ending},
    session::Ran,
};
use crate::pipeline::with_commas;

/// What a command's end means.
pub(super) struct Outcome {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// What stands after the output whatever is cut from it.
    pub(super) trailer: Option<String>,
}

/// What is said beside the output.
#[derive(Debug)]
pub(super) struct About<'a> {
    pub(super) session: &'a str,
    pub(super) is_new: bool,
    pub(super) posture: &'a PostureReport,
    pub(super) unconfined: bool,
    pub(super) time_limit: Duration,
    pub(super) processes: u32,
    pub(super) memory: MemoryBytes,
}

/// A command that ended by itself is a result, whatever its exit code. One that was killed for its time, its
/// processes or its memory is an error, with the last of what it wrote.
pub(super) fn outcome(ran: Ran, about: &About<'_>) -> Outcome {
    let Ran { merged, stderr_bytes, mut exited } = ran;
    let background = std::mem::take(&mut exited.background);
    let text = String::from_utf8_lossy(&merged);
    let killed = match exited.interruption.as_str() {
        "timeout" => Some(ToolError::timeout(killed(
            &format!("the command did not end within {:?}", about.time_limit),
            &text,
        ))),
        "processes" => Some(
            ToolError::resource_limit(killed(
                &format!("the command had more than {} processes", about.processes),
                &text,
            ))
            .with_code("too_many_processes"),
        ),
        "memory" => Some(
            ToolError::resource_limit(killed(
                &format!("the command and its jobs had more than {} of memory", about.memory),
                &text,
            ))
            .with_code("too_much_memory"),
        ),
        "cancelled" => Some(ToolError::cancelled("the command was cancelled and killed")),
        _ => None,
    };
    if let Some(error) = killed {
        return Outcome { result: Err(error), trailer: None };
    }
    let trailer = trailer(&exited, about);
    let is_lossy = matches!(text, Cow::Owned(_));
    let mut details = details(
        &exited,
        about,
        is_lossy,
        merged.len() as u64 - stderr_bytes.min(merged.len() as u64),
        stderr_bytes,
    );
    details.insert("background_bytes".to_owned(), background.len().into());
    details.insert("background_dropped".to_owned(), exited.background_dropped.into());
    let text = with_background(text, &background, exited.background_dropped);
    Outcome { result: Ok(ToolOutput::text(text).with_details(details.into())), trailer }
}

/// The output, and after it what background jobs have written since the last command. It is under the same limits.
fn with_background<'a>(output: Cow<'a, str>, background: &[u8], dropped: u64) -> Cow<'a, str> {
    if background.is_empty() && dropped == 0 {
        return output;
    }
    let mut text = output.into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += "[background jobs wrote since the last command";
    if dropped > 0 {
        let dropped = usize::try_from(dropped).unwrap_or(usize::MAX);
        text += &format!(" — {} bytes before this were dropped", with_commas(dropped));
    }
    text += ":]\n";
    text += &String::from_utf8_lossy(background);
    Cow::Owned(text)
}

/// The lines after the output, each in brackets.
fn trailer(exited: &Exited, about: &About<'_>) -> Option<String> {
    let mut lines = Vec::new();
    if exited.truncated {
        let bytes = usize::try_from(exited.output_bytes).unwrap_or(usize::MAX);
        lines.push(format!(
            "[output dropped after the limit — the command wrote {} bytes]",
            with_commas(bytes)
        ));
    }
    match exited.ending {
        Some(Ending::Code(0)) => {}
        Some(Ending::Code(code)) => lines.push(format!("[exit code: {code}]")),
        Some(Ending::Signal(signal)) => {
            lines.push(format!("[killed by signal {signal} ({})]", signal_name(signal)));
        }
        None => lines.push("[it is not known how the command ended]".to_owned()),
    }
    if !exited.protected_paths.is_empty() {
        let shown = |path: &String| portcullis_policy::escape_for_display(path).to_string();
        let paths: Vec<String> = exited.protected_paths.iter().map(shown).collect();
        lines.push(format!(
            "[protected paths were made or changed, which the operator is told: {}]",
            paths.join(", ")
        ));
    }
    if exited.jobs_left {
        lines.push(
            "[background jobs run on; what they write comes with the next command of this session]"
                .to_owned(),
        );
    }
    if about.unconfined {
        lines.push("[ran on the host, unconfined]".to_owned());
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn details(
    exited: &Exited,
    about: &About<'_>,
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
    put("session", json!({"name": about.session, "new": about.is_new}));
    put("posture", about.posture.summary.clone().into());
    if let Some(uid) = about.posture.uid {
        put("uid", uid.into());
    }
    put("protected_complete", exited.protected_complete.into());
    if !exited.protected_paths.is_empty() {
        put("protected_paths", exited.protected_paths.clone().into());
    }
    details
}

/// The text of an error: what happened, and the end of what was written.
fn killed(what: &str, output: &str) -> String {
    let what = format!("{what}, so it was killed with all that it had started; its session lives on");
    let output = output.trim_end();
    if output.is_empty() {
        return what;
    }
    let from = output.ceil_char_boundary(output.len().saturating_sub(LAST_OUTPUT_BYTES));
    format!("{what}. The last of its output:\n{}", &output[from..])
}

/// The name of a signal, as `kill -l` has it (signal(7)).
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

/// How much of a killed command's output its error repeats; an error's text has a limit of its own.
const LAST_OUTPUT_BYTES: usize = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    fn about(posture: &PostureReport) -> About<'_> {
        About {
            session: "default",
            is_new: false,
            posture,
            unconfined: false,
            time_limit: Duration::from_secs(3),
            processes: 8,
            memory: MemoryBytes(1 << 30),
        }
    }

    fn ran(output: &[u8], exited: Exited) -> Outcome {
        let merged = output.to_vec();
        outcome(Ran { merged, stderr_bytes: 0, exited }, &about(&PostureReport::default()))
    }

    #[track_caller]
    fn check(output: &str, exited: Exited, trailer: Option<&str>) {
        let outcome = ran(output.as_bytes(), exited);
        assert_eq!(outcome.result.expect("a result").joined_text(), output);
        assert_eq!(outcome.trailer.as_deref(), trailer);
    }

    #[test]
    fn a_command_that_ended_by_itself_is_a_result_whatever_its_exit_code() {
        let code = |code| Exited { ending: Some(Ending::Code(code)), ..Exited::default() };
        check("out\n", code(0), None);
        check("", code(127), Some("[exit code: 127]"));
        let signal = Exited { ending: Some(Ending::Signal(11)), ..Exited::default() };
        check("half", signal, Some("[killed by signal 11 (SIGSEGV)]"));
        let dropped = Exited { truncated: true, output_bytes: 1_234_567, ..code(1) };
        let text = "[output dropped after the limit — the command wrote 1,234,567 bytes]\n[exit code: 1]";
        check("x", dropped, Some(text));
    }

    #[test]
    fn a_command_that_was_killed_is_an_error_with_the_last_of_its_output() {
        let killed = |why: &str| Exited {
            ending: Some(Ending::Signal(9)),
            interruption: why.to_owned(),
            ..Exited::default()
        };
        let error = ran("first\nlast\n".as_bytes(), killed("timeout")).result.expect_err("killed");
        assert_eq!(error.kind(), portcullis_types::ToolErrorKind::Timeout);
        assert!(error.message().ends_with("last"), "{error}");
        let long = "ä".repeat(5000);
        let error = ran(long.as_bytes(), killed("processes")).result.expect_err("killed");
        assert_eq!(error.code(), "too_many_processes");
        assert!(error.message().len() < 3300);
        let error = ran(b"", killed("memory")).result.expect_err("killed");
        assert_eq!(error.code(), "too_much_memory");
        assert_eq!(error.kind(), portcullis_types::ToolErrorKind::ResourceLimit);
        assert!(error.message().contains("more than 1GiB of memory"), "{error}");
    }

    #[test]
    fn what_background_jobs_wrote_stands_apart_after_the_output() {
        let of = |background: &[u8], background_dropped| Exited {
            ending: Some(Ending::Code(0)),
            background: background.to_vec(),
            background_dropped,
            ..Exited::default()
        };
        check_text(b"out", of(b"job\n", 0), "out\n[background jobs wrote since the last command:]\njob\n");
        check_text(b"", of(b"a\xffb", 0), "[background jobs wrote since the last command:]\na\u{fffd}b");
        check_text(b"out\n", of(b"", 0), "out\n");
        let dropped =
            "[background jobs wrote since the last command — 1,234 bytes before this were dropped:]\nx";
        check_text(b"", of(b"x", 1234), dropped);
        let left = Exited { jobs_left: true, ..of(b"", 0) };
        let told = "[background jobs run on; what they write comes with the next command of this session]";
        check("", left, Some(told));
    }

    #[track_caller]
    fn check_text(output: &[u8], exited: Exited, text: &str) {
        let (bytes, dropped) = (exited.background.len(), exited.background_dropped);
        let result = ran(output, exited).result.expect("a result");
        assert_eq!(result.joined_text(), text);
        assert_eq!(
            (&result.details["background_bytes"], &result.details["background_dropped"]),
            (&bytes.into(), &dropped.into())
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        let exited = Exited { ending: Some(Ending::Code(0)), ..Exited::default() };
        let outcome = ran(b"a\xffb", exited).result.expect("a result");
        assert_eq!(outcome.joined_text(), "a\u{fffd}b");
        assert_eq!(outcome.details["invalid_utf8"], true);
    }
}
