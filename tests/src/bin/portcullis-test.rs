//! The command line as a test binary: `cargo test` builds no binary of another package.

use std::process::ExitCode;

/// Has the process itself print when its command is over: no server may take that for its own words.
const PRINTS: &str = "PORTCULLIS_TEST_PRINTS";

#[expect(clippy::print_stdout, reason = "what a test asks for")]
fn main() -> ExitCode {
    let code = portcullis::run(std::env::args_os());
    if std::env::var_os(PRINTS).is_some() {
        println!("printed by the process");
    }
    code
}
