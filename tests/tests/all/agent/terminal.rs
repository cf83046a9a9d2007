//! `portcullis agent` on a pseudo terminal, where a person is asked.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command},
    time::{Duration, Instant},
};

use portcullis_tests::World;
use portcullis_tools::audit::{Event, Outcome, Row, Verdict};
use portcullis_types::ToolErrorKind;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::Value;

use super::model::{Model, calls, text};

/// How long a test waits for the program to go on, in seconds: what is missed then never comes.
const PATIENCE_S: i64 = 120;

/// How long a test looks for more on the terminal before it looks elsewhere.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// What the terminal makes an interrupt of, for all that runs in its foreground.
const CTRL_C: &str = "\x03";

/// What the question ends with, for a tool that is asked about each time.
const QUESTION_END: &str = "any other text is a no with that reason: ";

/// A person at a terminal, and the program that runs there.
struct Person {
    terminal: File,
    /// What the terminal has shown, with `\n` for the ends of lines.
    seen: String,
    /// How much of it the test has looked at.
    read: usize,
    program: Child,
}

impl Person {
    /// Starts `portcullis agent` on a terminal of its own, after these keys were pressed there.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    fn asks(world: &World, model: &Model, typed_before: &str) -> Self {
        let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("set up");
        let name = ptsname(&person, Vec::new()).expect("a name").into_string().expect("text");
        // Opened before a key is pressed: what nobody has open keeps nothing.
        let theirs = OpenOptions::new().read(true).write(true).open(name).expect("opens");
        let mut terminal = File::from(person);
        terminal.write_all(typed_before.as_bytes()).expect("typed");
        let program = {
            let stream = || theirs.try_clone().expect("cloned");
            // In a session of its own, whose terminal this is: `/dev/tty` of the program.
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait"]).arg(portcullis_tests::binary());
            command.arg("--workspace").arg(world.workspace());
            command.arg("--state").arg(world.state());
            command.arg("--policy").arg(world.policy_file());
            command.args(["agent", "Do it.", "--model", "m", "--base-url", model.address()]);
            command.env("NO_COLOR", "1").stdin(stream()).stdout(stream()).stderr(stream());
            command.spawn().expect("starts")
        };
        Self { terminal, seen: String::new(), read: 0, program }
    }

    /// What is shown up to these words, from where the last look ended.
    #[track_caller]
    fn sees(&mut self, words: &str) -> String {
        loop {
            if let Some(found) = self.seen[self.read..].find(words) {
                let from = self.read;
                self.read = from + found + words.len();
                return self.seen[from..self.read].to_owned();
            }
            assert!(self.looks(), "no `{words}` after\n{}", self.seen);
        }
    }

    fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    fn presses(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits until something is so, while the terminal shows what it shows.
    #[track_caller]
    fn waits_until(&mut self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(PATIENCE_S.unsigned_abs());
        while !is_so() {
            assert!(Instant::now() < deadline, "it does not come to be so after\n{}", self.seen);
            self.looks_for(&MOMENT);
        }
    }

    /// What is shown up to the end, and the code that the program exits with.
    #[track_caller]
    fn sees_the_end(&mut self) -> (String, Option<i32>) {
        while self.looks() {}
        let rest = self.seen[self.read..].to_owned();
        (rest, self.program.wait().expect("ends").code())
    }

    /// Waits for more; false when nobody has the terminal open any more.
    #[track_caller]
    fn looks(&mut self) -> bool {
        let more = self.looks_for(&Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 });
        let Some(is_open) = more else { panic!("nothing more comes after\n{}", self.seen) };
        is_open
    }

    /// Waits this long for more; none when nothing comes.
    #[track_caller]
    fn looks_for(&mut self, patience: &Timespec) -> Option<bool> {
        let mut awaited = [PollFd::new(&self.terminal, PollFlags::IN)];
        let ready = match poll(&mut awaited, Some(patience)) {
            Err(Errno::INTR) => return Some(true),
            ready => ready.expect("polls"),
        };
        if ready == 0 {
            return None;
        }
        let mut bytes = Vec::new();
        loop {
            let mut piece = [0; 4096];
            match self.terminal.read(&mut piece) {
                // The end of a terminal that nobody has open.
                Ok(0) => return Some(false),
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Some(false),
                read => bytes.extend_from_slice(&piece[..read.expect("readable")]),
            }
            // A piece may end within a character, and within the end of a line.
            if bytes.last() != Some(&b'\r')
                && let Ok(text) = std::str::from_utf8(&bytes)
            {
                self.seen.push_str(&text.replace("\r\n", "\n"));
                return Some(true);
            }
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // Only what failed still runs. The terminal goes as well, and with it the program behind `setsid`.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

const WRITE: &str = r#"{"command": "echo done >> made"}"#;

/// The text of the last message of a request: what the model reads of its call.
fn told(request: &Value) -> &str {
    let messages = request["messages"].as_array().expect("messages");
    let last = messages.last().expect("a message");
    assert_eq!(last["role"], "tool");
    last["content"].as_str().expect("text")
}

fn ends(world: &World) -> Vec<Row> {
    world.rows().into_iter().filter(|row| row.event == Event::End).collect()
}

/// Whether any process of this machine, wherever it is confined, has this very argument.
fn is_argument(argument: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("readable").flatten();
    let of_processes = entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // One may be gone by now.
    let mut lines = of_processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|found| found == argument.as_bytes()))
}

#[track_caller]
fn assert_whole(question: &str) {
    let mut rest = question;
    for words in [
        "This call needs your approval.\n",
        "  tool       shell_exec\n",
        "  tier       privileged\n",
        "  asked by   agent cli, run ",
        "  runs       in a shell session, confined at least as ",
        "  may touch  /shared (write), /tmp (write); profile Shell\n",
        "  names      echo done >> made (execute, `command`)\n",
        "  arguments  {\"command\": \"echo done >> made\"}\n",
        "Approve? y = yes, n = no; ",
    ] {
        let found = rest.find(words).unwrap_or_else(|| panic!("no `{words}` in the rest of\n{question}"));
        rest = &rest[found + words.len()..];
    }
}

#[test]
fn what_a_person_approves_of_at_the_terminal_happens_once_and_the_model_reads_it() {
    let world = World::new();
    let model = Model::saying(vec![calls(&[("shell_exec", WRITE)]), text("It is done.")]);
    let mut person = Person::asks(&world, &model, "");
    let question = person.sees(QUESTION_END);
    assert_whole(&question);
    assert!(!world.shared("made").exists(), "nothing happens before the answer");
    assert_eq!(model.heard().len(), 1, "the model waits as well");
    person.types("y");
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{rest}");
    for words in ["  approved\n", "  ✓ ", "It is done."] {
        assert!(rest.contains(words), "no `{words}` in\n{rest}");
    }
    assert!(!rest.contains("Approve?"), "asked once: {rest}");
    // Before the question or after it: it is not what is approved of.
    assert!(person.seen.contains("→ shell_exec {\"command\": \"echo done >> made\"}"), "{}", person.seen);
    assert_eq!(fs::read_to_string(world.shared("made")).expect("made"), "done\n", "once");
    let heard = model.heard();
    assert_eq!((heard.len(), told(&heard[1])), (2, ""), "what the command wrote: nothing");
    let ends = ends(&world);
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!((&*ends[0].tool, ends[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!((ends[0].decision, ends[0].code.as_deref()), (Some(Verdict::Allow), None));
}

#[test]
fn what_a_person_refuses_at_the_terminal_does_not_happen_and_the_model_reads_why() {
    let world = World::new();
    let call = || calls(&[("shell_exec", WRITE)]);
    let model = Model::saying(vec![call(), call(), text("Then not.")]);
    // What was typed before there was a question is no answer to it.
    let mut person = Person::asks(&world, &model, "y\ny\n");
    assert_whole(&person.sees(QUESTION_END));
    person.types("n");
    assert_whole(&person.sees(QUESTION_END));
    person.types("yes, but after lunch");
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("  not approved\n") && rest.contains("Then not."), "{rest}");
    assert!(rest.contains("(yes, but after lunch) [approval_refused]"), "{rest}");
    assert!(!world.shared("made").exists());
    let heard = model.heard();
    let refusals: Vec<&str> = heard[1..].iter().map(told).collect();
    let refusal = "Tool execution failed: the call of `shell_exec` was not approved";
    assert_eq!(refusals, [refusal.to_owned(), format!("{refusal} (yes, but after lunch)")]);
    let ends = ends(&world);
    assert_eq!(ends.len(), 2, "{ends:?}");
    for row in ends {
        assert_eq!((&*row.tool, row.approval.as_deref()), ("shell_exec", Some("approval_refused")));
        assert_eq!((row.decision, row.code.as_deref()), (Some(Verdict::Deny), Some("approval_refused")));
    }
}

#[test]
fn ctrl_c_at_the_terminal_ends_a_command_in_order_and_says_so() {
    let world = World::new();
    // No other process sleeps for just as long.
    let seconds = format!("600.{}", std::process::id());
    let command = format!(r#"{{"command": "echo started > started; sleep {seconds}"}}"#);
    let model = Model::saying(vec![calls(&[("shell_exec", command.as_str())])]);
    let mut person = Person::asks(&world, &model, "");
    person.sees(QUESTION_END);
    person.types("y");
    let started = world.shared("started");
    person.waits_until(|| started.exists() && is_argument(&seconds));
    person.presses(CTRL_C);
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert_eq!(fs::read_to_string(&started).expect("made"), "started\n", "once");
    let ends = ends(&world);
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!((&*ends[0].tool, ends[0].approval.as_deref()), ("shell_exec", Some("approved")));
    assert_eq!(ends[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{ends:?}");
    // The terminal's signal did not reach the sidecar: it has killed the command, and told what that took.
    assert!(ends[0].peak_memory.is_some_and(|bytes| bytes > 0), "{ends:?}");
    assert_eq!(model.heard().len(), 1, "the model is not asked again");
    person.waits_until(|| !is_argument(&seconds));
}

#[test]
fn ctrl_c_during_an_open_question_runs_nothing() {
    let world = World::new();
    let model = Model::saying(vec![calls(&[("shell_exec", WRITE)])]);
    let mut person = Person::asks(&world, &model, "");
    assert_whole(&person.sees(QUESTION_END));
    person.presses(CTRL_C);
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(130), "{rest}");
    assert!(rest.contains("given up"), "{rest}");
    assert!(!rest.contains("Approve?") && !rest.contains("  approved\n"), "{rest}");
    assert!(!world.shared("made").exists());
    let rows = world.rows();
    assert_eq!(rows.len(), 1, "it never began: {rows:?}");
    assert_eq!((&*rows[0].tool, rows[0].event), ("shell_exec", Event::End));
    assert_eq!(rows[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)), "{rows:?}");
    assert_eq!(rows[0].approval, None, "nobody has answered");
    assert_eq!(model.heard().len(), 1, "the model is not asked again");
}
