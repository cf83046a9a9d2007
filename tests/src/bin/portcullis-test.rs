//! The command line as a test binary, because `cargo test` does not build the binaries of another package.

use std::process::ExitCode;

/// Makes the process itself print after its command. A server must keep such output out of the protocol.
const PRINTS: &str = "PORTCULLIS_TEST_PRINTS";

#[expect(clippy::print_stdout, reason = "what a test asks for")]
fn main() -> ExitCode {
    let code = portcullis::run(std::env::args_os());
    if std::env::var_os(PRINTS).is_some() {
        println!("printed by the process");
    }
    code
}
