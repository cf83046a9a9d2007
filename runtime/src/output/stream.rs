//! The two streams: the answer on standard output, everything said about it on standard error.

use std::io::{self, IsTerminal, Write};

use super::text;
use crate::error::CliError;

/// Whether a person reads standard output.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether a person reads standard error.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// How wide a terminal is taken to be that does not say so: as wide as the first ones were.
const USUAL_COLUMNS: usize = 80;

/// How wide standard output is, where it is a terminal.
pub(crate) fn stdout_columns() -> Option<usize> {
    stdout_is_terminal().then(|| columns(&console::Term::stdout()))
}

/// As [`stdout_columns`], of standard error.
pub(crate) fn stderr_columns() -> Option<usize> {
    stderr_is_terminal().then(|| columns(&console::Term::stderr()))
}

fn columns(terminal: &console::Term) -> usize {
    // A serial line, and a terminal that was made by a program, may say 0 by 0.
    let said = terminal.size_checked().map(|(_, columns)| columns.into());
    said.filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// Writes the answer. A reader that has seen enough (`| head`) is no error.
pub(crate) fn answer(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| CliError::Output { source }),
    }
}

/// Says something about the answer. On a terminal, characters that it would act on are shown escaped: the
/// text may quote a model, a tool or a file.
pub(crate) fn tell(text: &str) {
    let mut stderr = io::stderr().lock();
    // Nobody is left to be told that nobody can be told.
    let _ = if stderr.is_terminal() {
        stderr.write_all(text::for_terminal(text).as_bytes())
    } else {
        stderr.write_all(text.as_bytes())
    };
}
