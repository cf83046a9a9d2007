//! Measures how long a new session takes, in each posture: `cargo run --release --example new_session`.

use std::{
    error::Error,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use portcullis_confine::{CanaryFile, PathAccess};
use portcullis_policy::{HiddenNames, ProtectedPaths};
use portcullis_shell_daemon::{
    PostureChoice, SessionConfig, SessionMount, SessionSpec, SessionToolchain, ShellSession, enter_if_session,
};
use portcullis_types::ShellPosture;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if let Some(code) = enter_if_session() {
        return Ok(code);
    }
    let fixture = tempfile::tempdir()?;
    for folder in ["state", "shared", "tmp"] {
        std::fs::create_dir(fixture.path().join(folder))?;
    }
    let mount = |name: &str| SessionMount {
        name: name.to_owned(),
        path: fixture.path().join(name),
        access: PathAccess::Write,
    };
    for level in ShellPosture::ALL {
        let spec = SessionSpec {
            launcher: "/proc/self/exe".into(),
            mounts: vec![mount("shared"), mount("tmp")],
            home: "shared".to_owned(),
            toolchain: SessionToolchain::default(),
            environment: Vec::new(),
            limits: SessionConfig::default().process_limits(),
            group: None,
            canary: CanaryFile::create(&fixture.path().join("state"))?,
            posture: PostureChoice::Exactly(level),
            waived: Vec::new(),
            watch_changes: false,
            network: None,
            protect: ProtectedPaths::parse([".git/hooks", ".git/config", ".bashrc", ".envrc"])?,
            hide: HiddenNames::default(),
        };
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let session = ShellSession::start(&spec)?;
            starts.push(begun.elapsed());
            let begun = Instant::now();
            session.end()?;
            ends.push(begun.elapsed());
        }
        let mut out = std::io::stdout();
        writeln!(out, "{level:>9}: start {}, end {}", summary(&mut starts), summary(&mut ends))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(times: &mut [Duration]) -> String {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1000.0;
    format!("best {:.1} ms, p50 {:.1} ms, p95 {:.1} ms", at(0), at(50), at(95))
}

const ROUNDS: usize = 100;
