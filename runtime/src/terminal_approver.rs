//! Asks the person at the terminal for approvals. It shows the whole call with its grant, and approves only
//! after an explicit yes.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, PipeReader, Read, Write},
};

use async_trait::async_trait;
use portcullis_tools::approval::{
    ApprovalAnswer, ApprovalRequest, Approver, ApproverKind, AttributedAnswer, SessionApprovals,
    StandingOffer, question,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::{QueueSelector, tcflush, tcgetwinsize, ttyname},
};
use tokio::sync::Mutex;

use crate::output::text;

/// The maximum length of an answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The width of a terminal that does not report its width, narrow enough for any terminal.
const UNKNOWN_COLUMNS: usize = 40;

const HOW_TO_ANSWER: &str = "Approve? y = yes, n = no; any other text is a no with that reason: ";

/// The line after the question if an approval may also cover further calls.
const HOW_TO_ANSWER_ONCE_OR_FOR_ALL: &str = "Approve? y = yes, s = yes, also for later calls of this tool with \
     the same access, until this program ends, n = no; any other text is a no with that reason: ";

/// Formats the part of the line of answers that offers a standing approval.
fn how_to_approve_always(offer: &StandingOffer) -> String {
    let rules: Vec<String> = offer.rules.iter().map(|rule| format!("\"{rule}\"")).collect();
    let (rules, file) = (text::inline(&rules.join(", ")), text::inline(&offer.file));
    format!("w = yes, and write unasked = [{rules}] to {file}, so that this needs no approval again. ")
}

#[derive(Debug)]
pub(crate) struct TerminalApprover {
    /// The lock allows one question at a time, because concurrent calls may ask simultaneously.
    terminal: Mutex<File>,
    approvals: SessionApprovals,
}

impl TerminalApprover {
    /// Finds the terminal of this process, if standard input or standard error is a terminal. If neither is,
    /// no person uses this program, even if it was started from a terminal.
    pub(crate) fn find() -> Option<Self> {
        if !io::stdin().is_terminal() && !io::stderr().is_terminal() {
            return None;
        }
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        terminal
            .is_terminal()
            .then(|| Self { terminal: Mutex::new(terminal), approvals: SessionApprovals::default() })
    }
}

#[async_trait]
impl Approver for TerminalApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        let terminal = self.terminal.lock().await;
        // Check after waiting for the lock: the answer to another question may cover this call.
        if self.approvals.covers(request) {
            return AttributedAnswer::by(ApproverKind::Session, ApprovalAnswer::Approve);
        }
        let name = terminal_name();
        let answer = self.ask_person(request, &terminal).await;
        AttributedAnswer { answer, by: ApproverKind::Terminal, name }
    }
}

impl TerminalApprover {
    async fn ask_person(&self, request: &ApprovalRequest, terminal: &File) -> ApprovalAnswer {
        let may_keep = SessionApprovals::may_keep(request);
        let instructions = if may_keep { HOW_TO_ANSWER_ONCE_OR_FOR_ALL } else { HOW_TO_ANSWER };
        let always = request.standing.as_ref().map(how_to_approve_always).unwrap_or_default();
        let question = format!("\n{}{always}{instructions}", question(request, columns(terminal)));
        let (Ok(terminal), Ok((cancel_end, _asking))) = (terminal.try_clone(), io::pipe()) else {
            return deny_without_answer();
        };
        // The thread ends with this future: dropping `_asking` closes the pipe that the thread polls.
        let answering = tokio::task::spawn_blocking(move || ask(terminal, &cancel_end, &question));
        match answering.await {
            Ok(Ok(Some(line))) if may_keep && is_letter(&line, "s") => {
                self.approvals.keep(request);
                ApprovalAnswer::Approve
            }
            Ok(Ok(Some(line))) if request.standing.is_some() && is_letter(&line, "w") => {
                ApprovalAnswer::ApproveAlways
            }
            Ok(Ok(Some(line))) => parse_answer(&line),
            Ok(Ok(None) | Err(_)) | Err(_) => deny_without_answer(),
        }
    }
}

/// Returns the device of the terminal that this process was started from.
fn terminal_name() -> Option<String> {
    let name = ttyname(io::stdin(), Vec::new()).or_else(|_| ttyname(io::stderr(), Vec::new())).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Returns the width of a terminal.
fn columns(terminal: &File) -> usize {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { UNKNOWN_COLUMNS } else { columns }
}

/// Asks, and returns the line of the answer. Returns `None` if the question was dropped, and then reads no
/// typed line.
fn ask(mut terminal: File, cancel_end: &PipeReader, question: &str) -> io::Result<Option<String>> {
    // Discard input that was typed before the question, so that it cannot approve the call.
    tcflush(&terminal, QueueSelector::IFlush)?;
    terminal.write_all(question.as_bytes())?;
    let mut poll_fds = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(cancel_end, PollFlags::IN)];
    while let Err(error) = poll(&mut poll_fds, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    if !poll_fds[1].revents().is_empty() {
        return Ok(None);
    }
    // A terminal in canonical mode becomes readable when a line is complete.
    let mut line = String::new();
    BufReader::new(terminal.take(MAX_ANSWER_BYTES)).read_line(&mut line)?;
    Ok(Some(line))
}

/// Parses an answer. Only an explicit yes approves. Text that is neither yes nor no denies, and is the reason
/// of the denial.
fn parse_answer(line: &str) -> ApprovalAnswer {
    let answer = line.trim();
    match answer.to_ascii_lowercase().as_str() {
        "y" | "yes" => ApprovalAnswer::Approve,
        "" | "n" | "no" => ApprovalAnswer::Deny { reason: None },
        _ => ApprovalAnswer::Deny { reason: Some(answer.to_owned()) },
    }
}

/// Returns whether an answer is only this letter.
fn is_letter(line: &str, letter: &str) -> bool {
    line.trim().eq_ignore_ascii_case(letter)
}

fn deny_without_answer() -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: Some("the terminal gave no answer".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::OwnedFd, time::Duration};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// Creates a terminal, and the end of it that plays the person.
    fn terminal() -> (TerminalApprover, File) {
        let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("set up");
        let name = ptsname(&person, Vec::new()).expect("a name").into_string().expect("the name is UTF-8");
        let terminal = OpenOptions::new().read(true).write(true).open(name).expect("opens");
        let approver =
            TerminalApprover { terminal: Mutex::new(terminal), approvals: SessionApprovals::default() };
        (approver, person.into())
    }

    #[test]
    fn an_answer_goes_to_the_open_question_not_to_an_expired_one() {
        let (approver, mut person) = terminal();
        let request = portcullis_testing::registries::approval_request();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let first = tokio::time::timeout(Duration::from_millis(50), approver.decide(&request));
            assert!(first.await.is_err(), "nobody has answered");
        });
        let answering = std::thread::spawn(move || {
            let mut screen = person.try_clone().expect("cloned");
            let mut seen = Vec::new();
            // Read both questions, then type the answer.
            while String::from_utf8_lossy(&seen).matches("any other text is a no").count() < 2 {
                let mut piece = [0; 1];
                screen.read_exact(&mut piece).expect("shown");
                seen.extend(piece);
            }
            person.write_all(b"y\n").expect("typed");
            // Keep the person's end open until the answer is read.
            person
        });
        let given = runtime.block_on(approver.decide(&request));
        assert_eq!((given.answer, given.by), (ApprovalAnswer::Approve, ApproverKind::Terminal));
        answering.join().expect("answers");
    }

    #[test]
    fn approval_beyond_one_call_has_a_separate_answer() {
        assert!(is_letter(" S\n", "s") && !is_letter("yes", "s") && !is_letter("sure", "s"));
        assert_eq!(parse_answer("s\n"), ApprovalAnswer::Deny { reason: Some("s".to_owned()) });
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let no = |reason: Option<&str>| ApprovalAnswer::Deny { reason: reason.map(str::to_owned) };
        for (line, answer) in [
            ("y\n", ApprovalAnswer::Approve),
            (" YES \n", ApprovalAnswer::Approve),
            ("", no(None)),
            ("\n", no(None)),
            ("n\n", no(None)),
            ("yes, but not there\n", no(Some("yes, but not there"))),
        ] {
            assert_eq!(parse_answer(line), answer, "{line:?}");
        }
    }
}
