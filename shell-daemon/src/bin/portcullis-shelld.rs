//! The sidecar's program. All its code is in the library.

use std::process::ExitCode;

use portcullis_shell_daemon::{enter_if_embedded, enter_if_session, shelld_main};

fn main() -> ExitCode {
    enter_if_session().or_else(enter_if_embedded).unwrap_or_else(shelld_main)
}
