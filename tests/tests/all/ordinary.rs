//! The program as an ordinary user, started by another user.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use portcullis_testing::{World, binary};

/// The user that root switches to.
pub(crate) const USER: u32 = 65534;

/// The program as a command of an ordinary user who owns everything in the world. Only root can switch to
/// one; any other user gets the program as it is.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn program(world: &World) -> Command {
    if !is_root() {
        let mut command = Command::new(binary());
        command.args(world.options());
        return command;
    }
    let place = world.root().join("program");
    if !place.exists() && fs::hard_link(binary(), &place).is_err() {
        // `install` writes the copy: while this process or a child that it forks has the file open for
        // writing, it cannot be executed (`ETXTBSY`).
        let copied = Command::new("install").args(["-m", "755"]).arg(binary()).arg(&place).status();
        assert!(copied.expect("starts").success());
    }
    let options = world.options();
    give(world.root(), &place).expect("given");
    let mut command = Command::new(place);
    command.args(options).uid(USER).gid(USER).env("HOME", world.root());
    command
}

/// Whether another user's program can be started here; prints that the test skips where it cannot.
#[expect(clippy::print_stderr, reason = "a test that skips says so")]
pub(crate) fn can_start_anothers() -> bool {
    if !is_root() {
        eprintln!("skipped: only root starts a program of another user's");
    }
    is_root()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives everything below a folder to the ordinary user, except the program.
fn give(path: &Path, program: &Path) -> io::Result<()> {
    if path == program {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, Some(USER), Some(USER))?;
    if path.symlink_metadata()?.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), program)?;
        }
    }
    Ok(())
}

#[test]
fn concealing_memory_works_for_an_ordinary_user() {
    if !can_start_anothers() || !portcullis_tools::HostWasmToolRunner::has_pagemap_scan() {
        return;
    }
    let world = World::new();
    let output = program(&world).args(["doctor", "--json"]).output().expect("starts");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["kernel"]["pagemap_scan"], true, "{found}");
}
