//! A person at a terminal, and the program that runs there.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command},
    time::{Duration, Instant},
};

use portcullis_testing::World;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// How long a test waits for the program's next output, in seconds: output that is missing then never comes.
const PATIENCE_S: i64 = 120;

/// How long a test polls the terminal before it checks its condition again.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The terminal's width where the test sets none.
const COLUMNS: u16 = 120;

/// Key that the terminal turns into an interrupt of its foreground processes.
pub(crate) const CTRL_C: &str = "\x03";

/// Key that the terminal turns into the end of the input.
pub(crate) const CTRL_D: &str = "\x04";

/// A person at a terminal, and the program that runs there.
pub(crate) struct Person {
    terminal: File,
    /// Everything that the terminal has shown, with `\n` as line ends.
    pub(crate) seen: String,
    /// How many bytes of it the test has looked at.
    read: usize,
    program: Child,
}

impl Person {
    /// Starts the program on a new terminal, after typing these keys there.
    pub(crate) fn starts(world: &World, arguments: &[&str], typed_before: &str) -> Self {
        Self::starts_at(COLUMNS, world, arguments, typed_before)
    }

    /// The same, on a terminal with this many columns.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn starts_at(columns: u16, world: &World, arguments: &[&str], typed_before: &str) -> Self {
        let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("set up");
        let name = ptsname(&person, Vec::new()).expect("a name").into_string().expect("text");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&person, size).expect("set");
        // Opened before the keys are typed: a terminal that no process has open keeps no input.
        let theirs = OpenOptions::new().read(true).write(true).open(name).expect("opens");
        let mut terminal = File::from(person);
        terminal.write_all(typed_before.as_bytes()).expect("typed");
        let program = {
            let stream = || theirs.try_clone().expect("cloned");
            // In a new session with this terminal as the controlling one, `/dev/tty` of the program.
            let mut command = Command::new("setsid");
            command.args(["--ctty", "--wait"]).arg(portcullis_testing::binary());
            command.args(world.options());
            command.args(arguments);
            command.env("NO_COLOR", "1").stdin(stream()).stdout(stream()).stderr(stream());
            command.spawn().expect("starts")
        };
        Self { terminal, seen: String::new(), read: 0, program }
    }

    /// The output up to and including these words, from where the last look ended.
    #[track_caller]
    pub(crate) fn sees(&mut self, words: &str) -> String {
        loop {
            if let Some(found) = self.seen[self.read..].find(words) {
                let from = self.read;
                self.read = from + found + words.len();
                return self.seen[from..self.read].to_owned();
            }
            assert!(self.looks(), "no `{words}` after\n{}", self.seen);
        }
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    pub(crate) fn presses(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("typed");
    }

    /// Sends `SIGTERM` to the program. `setsid` has become the program.
    pub(crate) fn terminates(&self) {
        kill_process(Pid::from_child(&self.program), Signal::TERM).expect("sent");
    }

    /// Waits until a condition holds, and reads the terminal meanwhile.
    #[track_caller]
    pub(crate) fn waits_until(&mut self, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(PATIENCE_S.unsigned_abs());
        while !is_so() {
            assert!(Instant::now() < deadline, "it does not come to be so after\n{}", self.seen);
            self.looks_for(&MOMENT);
        }
    }

    /// The rest of the output, and the program's exit code.
    #[track_caller]
    pub(crate) fn sees_the_end(&mut self) -> (String, Option<i32>) {
        while self.looks() {}
        let rest = self.seen[self.read..].to_owned();
        (rest, self.program.wait().expect("ends").code())
    }

    /// Waits for more output; false when no process has the terminal open.
    #[track_caller]
    fn looks(&mut self) -> bool {
        let more = self.looks_for(&Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 });
        let Some(is_open) = more else { panic!("nothing more comes after\n{}", self.seen) };
        is_open
    }

    /// Waits this long for more output; `None` when there is none.
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
                // The end of a terminal that no process has open.
                Ok(0) => return Some(false),
                Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Some(false),
                read => bytes.extend_from_slice(&piece[..read.expect("readable")]),
            }
            // A piece may end within a character, or within a line end.
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
        // The program still runs only after a failure. The terminal is closed as well.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
