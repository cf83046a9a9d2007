//! The command line as a test binary: `cargo test` builds no binary of another package.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis::run(std::env::args_os())
}
