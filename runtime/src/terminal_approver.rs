//! Asks the person at the terminal: shows the call in full with its grant, and approves only after a clear
//! yes.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, PipeReader, Read, Write},
};

use async_trait::async_trait;
use portcullis_tools::approval::{ApprovalAnswer, ApprovalRequest, Approver, SessionApprovals, question};
use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::{QueueSelector, tcflush, tcgetwinsize},
};
use tokio::sync::Mutex;

/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The width of a terminal that does not report one: narrow enough for any.
const UNKNOWN_COLUMNS: usize = 40;

/// The line after the question.
const HOW_TO_ANSWER: &str = "Approve? y = yes, n = no; any other text is a no with that reason: ";

/// The same, if an approval may hold for further calls.
const HOW_TO_ANSWER_ONCE_OR_FOR_ALL: &str = "Approve? y = yes, s = yes, for each call of this tool that may touch \
     the same, until this program ends, n = no; any other text is a no with that reason: ";

/// The approver at the terminal.
#[derive(Debug)]
pub(crate) struct TerminalApprover {
    /// One question at a time: concurrent calls may ask at once.
    terminal: Mutex<File>,
    approvals: SessionApprovals,
}

impl TerminalApprover {
    /// The terminal of this process, if standard input or standard error is one. A program whose streams all
    /// lead elsewhere has no person, even if it was started from a terminal.
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
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let terminal = self.terminal.lock().await;
        if self.approvals.covers(request) {
            return ApprovalAnswer::Approve;
        }
        let may_keep = SessionApprovals::may_keep(request);
        let how = if may_keep { HOW_TO_ANSWER_ONCE_OR_FOR_ALL } else { HOW_TO_ANSWER };
        let question = format!("\n{}{how}", question(request, columns(&terminal)));
        let (Ok(terminal), Ok((over, _asking))) = (terminal.try_clone(), io::pipe()) else {
            return no_answer();
        };
        // The thread ends with this future: dropping `_asking` closes the pipe that it polls.
        let answering = tokio::task::spawn_blocking(move || ask(terminal, &over, &question));
        match answering.await {
            Ok(Ok(Some(line))) if may_keep && is_for_all(&line) => {
                self.approvals.keep(request);
                ApprovalAnswer::Approve
            }
            Ok(Ok(Some(line))) => understand(&line),
            Ok(Ok(None) | Err(_)) | Err(_) => no_answer(),
        }
    }
}

/// The width of a terminal.
fn columns(terminal: &File) -> usize {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { UNKNOWN_COLUMNS } else { columns }
}

/// Asks, and returns the line of the answer. None if the question was dropped; then the next line that is
/// typed is left to the next question.
fn ask(mut terminal: File, over: &PipeReader, question: &str) -> io::Result<Option<String>> {
    // Discard input that was typed before the question.
    tcflush(&terminal, QueueSelector::IFlush)?;
    terminal.write_all(question.as_bytes())?;
    let mut awaited = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(over, PollFlags::IN)];
    while let Err(error) = poll(&mut awaited, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    if !awaited[1].revents().is_empty() {
        return Ok(None);
    }
    // A terminal becomes readable with a whole line.
    let mut line = String::new();
    BufReader::new(terminal.take(MAX_ANSWER_BYTES)).read_line(&mut line)?;
    Ok(Some(line))
}

/// Only a clear yes approves. Text that is neither yes nor no denies, with that reason.
fn understand(line: &str) -> ApprovalAnswer {
    let answer = line.trim();
    match answer.to_ascii_lowercase().as_str() {
        "y" | "yes" => ApprovalAnswer::Approve,
        "" | "n" | "no" => ApprovalAnswer::Deny { reason: None },
        _ => ApprovalAnswer::Deny { reason: Some(answer.to_owned()) },
    }
}

fn is_for_all(line: &str) -> bool {
    line.trim().eq_ignore_ascii_case("s")
}

fn no_answer() -> ApprovalAnswer {
    ApprovalAnswer::Deny { reason: Some("the terminal gave no answer".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::OwnedFd, time::Duration};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// A terminal, and the person's end of it.
    fn terminal() -> (TerminalApprover, File) {
        let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("set up");
        let name = ptsname(&person, Vec::new()).expect("a name").into_string().expect("text");
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
            // Reads both questions, then types the answer.
            while String::from_utf8_lossy(&seen).matches("any other text is a no").count() < 2 {
                let mut piece = [0; 1];
                screen.read_exact(&mut piece).expect("shown");
                seen.extend(piece);
            }
            person.write_all(b"y\n").expect("typed");
            // Keep it open until the answer is read.
            person
        });
        assert_eq!(runtime.block_on(approver.decide(&request)), ApprovalAnswer::Approve);
        answering.join().expect("answers");
    }

    #[test]
    fn a_yes_for_more_than_this_call_is_its_own_answer() {
        assert!(is_for_all(" S\n") && !is_for_all("yes") && !is_for_all("sure"));
        assert_eq!(understand("s\n"), ApprovalAnswer::Deny { reason: Some("s".to_owned()) });
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
            assert_eq!(understand(line), answer, "{line:?}");
        }
    }
}
