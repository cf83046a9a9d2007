//! A person at a terminal, and the program that runs there.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command},
    time::Instant,
};

use portcullis_testing::{Fixture, TEST_TIMEOUT};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// How long a test polls the terminal before it checks its condition again.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The default width of the terminal.
const COLUMNS: u16 = 120;

/// The key that the terminal turns into an interrupt of its foreground processes.
pub(crate) const CTRL_C: &str = "\x03";

/// The key that the terminal turns into the end of input.
pub(crate) const CTRL_D: &str = "\x04";

/// A person at a terminal, and the program that runs there.
pub(crate) struct Person {
    terminal: File,
    /// Everything that the terminal has shown, with `\n` as line ends.
    pub(crate) screen_text: String,
    /// The number of bytes of the shown text that the test has checked.
    checked_bytes: usize,
    program: Child,
}

impl Person {
    /// Starts the program on a new terminal, after typing these keys.
    pub(crate) fn start(fixture: &Fixture, arguments: &[&str], typed_before: &str) -> Self {
        Self::start_at_width(COLUMNS, fixture, arguments, typed_before)
    }

    /// Starts the program on a terminal with this many columns, after typing these keys.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn start_at_width(
        columns: u16,
        fixture: &Fixture,
        arguments: &[&str],
        typed_before: &str,
    ) -> Self {
        let person_end: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person_end).and_then(|()| unlockpt(&person_end)).expect("set up");
        let name =
            ptsname(&person_end, Vec::new()).expect("a name").into_string().expect("the name is UTF-8");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&person_end, size).expect("set");
        // Opened before the keys are typed: a terminal keeps no input while no process has it open.
        let program_end = OpenOptions::new().read(true).write(true).open(name).expect("opens");
        let mut terminal = File::from(person_end);
        terminal.write_all(typed_before.as_bytes()).expect("typed");
        let program = {
            let stream = || program_end.try_clone().expect("cloned");
            // The program starts in a new session with this terminal as the controlling one, so `/dev/tty` is this
            // terminal.
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait"]).arg(portcullis_testing::binary());
            command.args(fixture.options());
            command.args(arguments);
            // The line editor needs a terminal that can move its cursor.
            command
                .env("NO_COLOR", "1")
                .env("TERM", "xterm")
                .stdin(stream())
                .stdout(stream())
                .stderr(stream());
            command.spawn().expect("starts")
        };
        Self { terminal, screen_text: String::new(), checked_bytes: 0, program }
    }

    /// Waits for these words. Returns the output from the end of the last check up to and including them.
    #[track_caller]
    pub(crate) fn wait_for_text(&mut self, words: &str) -> String {
        loop {
            if let Some(offset) = self.screen_text[self.checked_bytes..].find(words) {
                let start = self.checked_bytes;
                self.checked_bytes = start + offset + words.len();
                return self.screen_text[start..self.checked_bytes].to_owned();
            }
            assert!(self.read_more(), "no `{words}` after\n{}", self.screen_text);
        }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.press_keys(&format!("{line}\n"));
    }

    pub(crate) fn press_keys(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("typed");
    }

    /// Sends `SIGTERM` to the program, which has replaced the process of `setsid`.
    pub(crate) fn send_sigterm(&self) {
        kill_process(Pid::from_child(&self.program), Signal::TERM).expect("sent");
    }

    /// Waits until a condition holds. Reads the terminal while it waits.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !condition() {
            assert!(
                Instant::now() < deadline,
                "the condition did not become true; the screen shows\n{}",
                self.screen_text
            );
            self.read_within(&POLL_INTERVAL);
        }
    }

    /// Returns whether the terminal is in canonical mode: it collects whole lines unless a program edits a
    /// line.
    pub(crate) fn is_terminal_canonical(&self) -> bool {
        let mode = tcgetattr(&self.terminal).expect("a mode");
        mode.local_modes.contains(LocalModes::ICANON)
    }

    /// Waits until the terminal is in canonical mode.
    #[track_caller]
    pub(crate) fn wait_until_canonical(&mut self) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.is_terminal_canonical() {
            assert!(Instant::now() < deadline, "a line is still edited after\n{}", self.screen_text);
            self.read_within(&POLL_INTERVAL);
        }
    }

    /// Waits for the program's end. Returns the rest of the output and the exit code.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> (String, Option<i32>) {
        while self.read_more() {}
        let rest = self.screen_text[self.checked_bytes..].to_owned();
        (rest, self.program.wait().expect("ends").code())
    }

    /// Waits for more output. Returns false if no process has the terminal open.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        let is_open_if_read =
            self.read_within(&Timespec::try_from(TEST_TIMEOUT).expect("a time of the kernel"));
        let Some(is_open) = is_open_if_read else { panic!("nothing more comes after\n{}", self.screen_text) };
        is_open
    }

    /// Waits this long for more output. Returns `None` if there is none.
    #[track_caller]
    fn read_within(&mut self, patience: &Timespec) -> Option<bool> {
        let mut poll_fds = [PollFd::new(&self.terminal, PollFlags::IN)];
        let ready = match poll(&mut poll_fds, Some(patience)) {
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
                // A read fails like this after the last process has closed the terminal.
                Ok(0) => return Some(false),
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Some(false),
                read => bytes.extend_from_slice(&piece[..read.expect("readable")]),
            }
            // A piece may end within a character or within a line end.
            if bytes.last() != Some(&b'\r')
                && let Ok(text) = std::str::from_utf8(&bytes)
            {
                self.screen_text.push_str(&text.replace("\r\n", "\n"));
                return Some(true);
            }
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // The program still runs only if the test has failed. The drop also closes the terminal.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
