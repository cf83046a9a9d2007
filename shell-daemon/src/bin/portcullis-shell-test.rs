//! A program that can become a session, for the tests of this crate. A test binary cannot, because it has more than one
//! thread.
//!
//! `portcullis-shell-test FOLDER COMMAND [[=]POSTURE]` is a whole sidecar for one command. It prints the session's
//! posture to standard error and the command's output to standard output, and exits with the command's code.

use std::{error::Error, io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use portcullis_confine::{CanaryFile, PathAccess};
use portcullis_policy::{HiddenNames, ProtectedPaths};
use portcullis_shell_daemon::{
    CancelReceiver, CommandRequest, Ending, PostureChoice, SessionConfig, SessionMount, SessionSpec,
    SessionToolchain, ShellSession, enter_if_session,
};
use portcullis_types::ShellPosture;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match enter_if_session() {
        Some(code) => Ok(code),
        None => run(),
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(command)) = (arguments.next(), arguments.next()) else {
        return Err("usage: portcullis-shell-test FOLDER COMMAND [[=]POSTURE]".into());
    };
    let folder = PathBuf::from(folder);
    let posture = match arguments.next() {
        None => PostureChoice::AtLeast(ShellPosture::Contained),
        Some(choice) => match choice.strip_prefix('=') {
            Some(exactly) => PostureChoice::Exactly(exactly.parse()?),
            None => PostureChoice::AtLeast(choice.parse()?),
        },
    };
    let mut session = ShellSession::start(&SessionSpec {
        launcher: "/proc/self/exe".into(),
        mounts: vec![SessionMount {
            name: "shared".to_owned(),
            path: folder.join("shared"),
            access: PathAccess::Write,
        }],
        home: "shared".to_owned(),
        toolchain: SessionToolchain::default(),
        environment: Vec::new(),
        limits: SessionConfig::default().process_limits(),
        group: None,
        canary: CanaryFile::create(&folder.join("state"))?,
        posture,
        waived: Vec::new(),
        watch_changes: false,
        network: None,
        protect: ProtectedPaths::parse([])?,
        hide: HiddenNames::default(),
    })?;
    writeln!(std::io::stderr(), "{}", session.posture())?;
    let (cancellation, _canceller) = CancelReceiver::new()?;
    let request = CommandRequest {
        command,
        workdir: None,
        stdin: Vec::new(),
        input: None,
        timeout: Duration::from_secs(60),
        max_processes: 100,
        max_output_bytes: 1 << 20,
        cancellation,
    };
    let mut written = Ok(());
    let end = session.run(&request, &mut |chunk| {
        if written.is_ok() {
            written = std::io::stdout().write_all(chunk.bytes).and_then(|()| std::io::stdout().flush());
        }
    })?;
    written?;
    session.end()?;
    Ok(match end.ending {
        Ending::Code(code) => ExitCode::from(u8::try_from(code)?),
        Ending::Signal(signal) => return Err(format!("killed by signal {signal}").into()),
    })
}
