//! The binary `portcullis`. All code is in the library, so that tests can build the same program.

use std::process::ExitCode;

fn main() -> ExitCode {
    portcullis::run(std::env::args_os())
}
