//! From command-line arguments to an exit code: parse, dispatch, report.

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;
use portcullis_shell_daemon::{Colours, LogLine, conceal_memory, log_filter};
use portcullis_tools::{
    HostWasmToolRunner,
    sandbox::{compile_from_stdin, is_compiler},
};
use portcullis_types::error_chain;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::{
    cli::{Cli, CliCommand},
    command,
    output::stream,
};

/// The variable with the log filter for standard error, in the syntax of `tracing_subscriber`.
const LOG_VARIABLE: &str = "PORTCULLIS_LOG";

/// Runs one command (`args` with the program name first) and returns the exit code.
///
/// 0: done. 1: failed. 2: wrong usage, or a policy that cannot be used. 3: denied. 4: timed out. 5: unavailable, or the
/// model gave no complete answer. 130: interrupted. README.md explains them.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // There is no command if the program started itself as a shell session or as the sidecar.
    let sidecar =
        portcullis_shell_daemon::enter_if_session().or_else(portcullis_shell_daemon::enter_if_embedded);
    if let Some(code) = sidecar {
        return code;
    }
    // `/proc/self/pagemap` makes clearing a guest's memory cheaper. Open it before the process is concealed,
    // because an ordinary user's process cannot open it afterwards. It is opened once and stays open.
    let _has_pagemap_scan = HostWasmToolRunner::has_pagemap_scan();
    if let Err(error) = conceal_memory() {
        stream::write_stderr(&format!(
            "error: this process's memory cannot be concealed: {}\n",
            error_chain(&error)
        ));
        return ExitCode::FAILURE;
    }
    let args: Vec<OsString> = args.into_iter().collect();
    // There is no command if the program started itself to compile a foreign module.
    if is_compiler(&args) {
        return compile_from_stdin(&args);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers. Everything else is an error. Clap chooses the stream. Ignore
            // write errors: there is no stream left to report them on.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    log_to_stderr(&cli.command);
    portcullis_shell_daemon::raise_descriptor_limit();
    match command::dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            stream::write_stderr(&error.report());
            error.exit_code()
        }
    }
}

/// A server's default log filter. It leaves out the protocol library's warnings, because a client decides how
/// often they occur.
const SERVER_LOG: &str = "warn,rmcp=error";

/// Starts the log. A second call in one process has no effect.
fn log_to_stderr(command: &CliCommand) {
    let colours = if stream::stderr_is_terminal() { Colours::Enabled } else { Colours::Disabled };
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .event_format(LogLine::text(colours));
    let init_result = match std::env::var(LOG_VARIABLE) {
        Ok(text) if !text.is_empty() => match log_filter(&text) {
            Ok(filter) => builder.with_env_filter(filter).try_init(),
            Err(error) => {
                stream::write_stderr(&format!("warning: {LOG_VARIABLE} is not used: {error}\n"));
                builder.with_max_level(LevelFilter::WARN).try_init()
            }
        },
        _ if matches!(command, CliCommand::Serve(_) | CliCommand::Gateway(_)) => {
            builder.with_env_filter(EnvFilter::new(SERVER_LOG)).try_init()
        }
        // The default level needs no filter, which would slow down every start.
        _ => builder.with_max_level(LevelFilter::WARN).try_init(),
    };
    // Ignore the result: this fails only if a program runs several commands in one process.
    let _ = init_result;
}
