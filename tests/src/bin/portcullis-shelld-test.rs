//! The sidecar as a test binary, because `cargo test` does not build the binaries of another package.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis_shell_daemon::enter_if_session().unwrap_or_else(portcullis_shell_daemon::shelld_main)
}
