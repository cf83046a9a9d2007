//! The two streams: the answer on standard output, everything else on standard error.

use std::io::{self, IsTerminal, Write};

use super::text;
use crate::error::CliError;

/// Returns whether a person reads standard output.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether a person reads standard error.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// The width of a terminal that does not report one: the classic 80 columns.
const USUAL_COLUMNS: usize = 80;

/// Returns the width of standard output, if it is a terminal.
pub(crate) fn stdout_columns() -> Option<usize> {
    stdout_is_terminal().then(|| columns(&console::Term::stdout()))
}

/// Returns the width of standard error, if it is a terminal.
pub(crate) fn stderr_columns() -> Option<usize> {
    stderr_is_terminal().then(|| columns(&console::Term::stderr()))
}

fn columns(terminal: &console::Term) -> usize {
    // A serial line or a program's pseudo-terminal may report a size of 0 by 0.
    let reported_columns = terminal.size_checked().map(|(_, columns)| columns.into());
    reported_columns.filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// Writes the answer. A reader that stops early (`| head`) is not an error.
pub(crate) fn write_output(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| CliError::Output { source }),
    }
}

/// Writes to standard error. On a terminal, control characters are escaped, because the text may quote a
/// model, a tool or a file.
pub(crate) fn write_stderr(text: &str) {
    let mut stderr = io::stderr().lock();
    // Ignore write errors: there is no stream left to report them on.
    let _ = if stderr.is_terminal() {
        stderr.write_all(text::for_terminal(text).as_bytes())
    } else {
        stderr.write_all(text.as_bytes())
    };
}
