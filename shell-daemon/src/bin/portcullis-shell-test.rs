//! A program that can become a session, for the tests of this crate: a test binary has threads of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis_shell_daemon::enter_if_session().unwrap_or(ExitCode::FAILURE)
}
