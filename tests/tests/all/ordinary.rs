//! The program run as an ordinary user, started by root.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use portcullis_testing::{Fixture, binary};

/// The user that root switches to.
pub(crate) const USER: u32 = 65534;

/// Creates a command that runs the program as an ordinary user who owns everything in the fixture. Only root
/// can switch to another user; any other user gets the program unchanged.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn program_of_ordinary_user(fixture: &Fixture) -> Command {
    if !is_root() {
        let mut command = Command::new(binary());
        command.args(fixture.options());
        return command;
    }
    let program_path = fixture.root().join("program");
    if !program_path.exists() && fs::hard_link(binary(), &program_path).is_err() {
        // `install` writes the copy in another process: if this process or a fork of it still had the file
        // open for writing, the exec would fail (`ETXTBSY`).
        let copied = Command::new("install").args(["-m", "755"]).arg(binary()).arg(&program_path).status();
        assert!(copied.expect("starts").success());
    }
    let options = fixture.options();
    give_to_user(fixture.root(), &program_path).expect("given");
    let mut command = Command::new(program_path);
    command.args(options).uid(USER).gid(USER).env("HOME", fixture.root());
    command
}

/// Returns whether a program of another user can be started here. If not, prints that the test is skipped.
#[expect(clippy::print_stderr, reason = "a test that skips says so")]
pub(crate) fn can_start_program_of_other_user() -> bool {
    if !is_root() {
        eprintln!("skipped: only root starts a program of another user's");
    }
    is_root()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives everything below a folder to the ordinary user, except the program.
fn give_to_user(path: &Path, program: &Path) -> io::Result<()> {
    if path == program {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, Some(USER), Some(USER))?;
    if path.symlink_metadata()?.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(path)? {
            give_to_user(&entry?.path(), program)?;
        }
    }
    Ok(())
}

#[test]
fn concealing_memory_works_for_an_ordinary_user() {
    if !can_start_program_of_other_user() || !portcullis_tools::HostWasmToolRunner::has_pagemap_scan() {
        return;
    }
    let fixture = Fixture::new();
    let output = program_of_ordinary_user(&fixture).args(["doctor", "--json"]).output().expect("starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["kernel"]["pagemap_scan"], true, "{report}");
}
