//! The operator's toolchain in a session: its programs run, commands cannot write to it, and sessions see
//! nothing beside it.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use portcullis_shell_daemon::{SessionToolchain, ShellSession, TreeFeature};

use tempfile::TempDir;

use crate::fixture::{Fixture, Session};

/// A home with a program, and a key beside it. It is outside the fixture's folder, because a session has a mount
/// `/tmp`.
fn home() -> TempDir {
    let home = tempfile::tempdir_in("/var/tmp").expect("set up");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("set up");
    home
}

fn toolchain(home: &Path) -> SessionToolchain {
    let bin = home.join(".tool/bin");
    fs::create_dir_all(&bin).expect("set up");
    fs::create_dir_all(home.join(".keys")).expect("set up");
    fs::write(home.join(".keys/key"), "secret").expect("set up");
    let program = bin.join("greet");
    fs::write(&program, "#!/bin/sh\necho hello from $TOOL_HOME\n").expect("set up");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set up");
    // A program of the system's name: the operator's folders come first.
    fs::copy(&program, bin.join("ls")).expect("set up");
    SessionToolchain { read: vec![home.join(".tool")], path: vec![bin], ..SessionToolchain::default() }
}

/// `further_attempts` are attempts that only a strong session refuses.
fn check(fixture: &Fixture, further_attempts: &[&str]) {
    let folder = home();
    let mut spec = fixture.spec();
    spec.toolchain = toolchain(folder.path());
    spec.environment.push(("TOOL_HOME".to_owned(), "here".to_owned()));
    let mut session = Session(ShellSession::start(&spec).expect("set up"));
    let home = folder.path().display();
    assert_eq!(session.output("greet && ls"), "hello from here\nhello from here\n");
    assert_eq!(session.output(&format!("{home}/.tool/bin/greet")), "hello from here\n");
    for attempt in [
        format!("echo x > {home}/.tool/bin/greet"),
        format!("echo x >> {home}/.tool/bin/new"),
        format!("rm -f {home}/.tool/bin/greet"),
        format!("mv {home}/.tool/bin/greet {home}/.tool/bin/other"),
        format!("ln {home}/.tool/bin/greet $PORTCULLIS_SHARED/linked"),
        format!("touch {home}/.tool/new"),
        format!("cat {home}/.keys/key"),
        format!("cat {home}/.tool/../.keys/key"),
    ]
    .into_iter()
    .chain(further_attempts.iter().map(|attempt| attempt.replace("HOME", &home.to_string())))
    {
        let ran = session.run(&format!("{attempt} 2>&1"));
        assert_ne!(ran.end.ending, portcullis_shell_daemon::Ending::Code(0), "{attempt}: {ran:?}");
    }
    assert!(!session.run(&format!("cat {home}/.keys/* 2>&1")).stdout.contains("secret"));
    let kept = fs::read_to_string(folder.path().join(".tool/bin/greet")).expect("set up");
    assert_eq!(kept, "#!/bin/sh\necho hello from $TOOL_HOME\n");
    let mode = fs::metadata(folder.path().join(".tool/bin/greet")).expect("set up").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(fs::read_dir(folder.path().join(".tool")).expect("set up").count(), 1);
}

#[test]
fn a_strong_session_runs_the_toolchain_and_writes_nothing_of_it() {
    if let Some(fixture) = Fixture::strong() {
        check(
            &fixture,
            &["chmod 777 HOME/.tool/bin/greet", "touch HOME/.tool/bin/greet", "/bin/ls HOME/.keys"],
        );
    }
}

#[test]
fn a_contained_session_runs_but_cannot_write_the_toolchain() {
    if let Some(fixture) = Fixture::new() {
        check(&fixture, &[]);
    }
}

/// A session whose toolchain has one cache, and the folder of the cache.
fn session_with_cache(fixture: &Fixture, home: &Path) -> Session {
    let cache = home.join(".cache-of-tool");
    if !cache.exists() {
        fs::create_dir_all(cache.join("packages")).expect("set up");
        fs::write(cache.join("packages/one"), "one\n").expect("set up");
    }
    let mut spec = fixture.spec();
    spec.toolchain = SessionToolchain { caches: vec![cache], copies: home.join("copies"), ..toolchain(home) };
    Session(ShellSession::start(&spec).expect("set up"))
}

#[test]
fn a_strong_session_writes_a_copy_of_a_cache() {
    let Some(fixture) = Fixture::strong() else { return };
    let folder = home();
    let cache = folder.path().join(".cache-of-tool");
    let write = format!(
        "cd {} && cat packages/one && echo two > packages/two && echo new > packages/one && mkdir more && \
         mv packages/two more/ && cat more/two",
        cache.display()
    );
    let read = format!("cat {0}/packages/one {0}/more/two && /bin/ls {0}", cache.display());
    let mut session = session_with_cache(&fixture, folder.path());
    assert_eq!(session.0.cache_copies(), TreeFeature::Active);
    assert_eq!(session.output(&write), "one\ntwo\n");
    // Another session beside it, and one after it, have the same copy.
    assert_eq!(session_with_cache(&fixture, folder.path()).output(&read), "new\ntwo\nmore\npackages\n");
    drop(session);
    assert_eq!(session_with_cache(&fixture, folder.path()).output(&read), "new\ntwo\nmore\npackages\n");
    assert_eq!(fs::read_to_string(cache.join("packages/one")).expect("read"), "one\n");
    assert_eq!(fs::read_dir(&cache).expect("read").count(), 1);
    assert_eq!(fs::read_dir(cache.join("packages")).expect("read").count(), 1);
}

#[test]
fn a_contained_session_reads_a_cache_and_says_so() {
    let Some(fixture) = Fixture::new() else { return };
    let folder = home();
    let cache = folder.path().join(".cache-of-tool");
    let mut session = session_with_cache(&fixture, folder.path());
    if session.0.has_own_tree() {
        assert_eq!(session.0.cache_copies(), TreeFeature::Active);
        return;
    }
    assert_eq!(session.0.cache_copies(), TreeFeature::Unavailable);
    assert_eq!(session.output(&format!("cat {}/packages/one", cache.display())), "one\n");
    let attempt = session.run(&format!("echo x > {}/packages/two 2>&1", cache.display()));
    assert_ne!(attempt.end.ending, portcullis_shell_daemon::Ending::Code(0), "{attempt:?}");
    assert!(!cache.join("packages/two").exists());
    assert!(!folder.path().join("copies").exists(), "nothing is copied for a session that cannot use it");
}

#[test]
fn a_toolchain_that_is_gone_starts_no_session() {
    let Some(fixture) = Fixture::new() else { return };
    let mut spec = fixture.spec();
    spec.toolchain.read.push(fixture.path("gone"));
    let error = ShellSession::start(&spec).unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
}

#[test]
fn a_strong_session_finds_its_home_by_the_machines_path() {
    let Some(fixture) = Fixture::strong() else { return };
    let folder = home();
    let on_machine = folder.path().display();
    fs::create_dir(folder.path().join("bin")).expect("set up");
    symlink("/bin/sh", folder.path().join("bin/python")).expect("set up");
    let program = folder.path().join("bin/greet");
    fs::write(&program, format!("#!{on_machine}/bin/python\necho hello > {on_machine}/said\n"))
        .expect("set up");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set up");
    let mut spec = fixture.spec();
    for mount in &mut spec.mounts {
        if mount.name == spec.home {
            mount.path = folder.path().to_owned();
        }
    }
    let mut session = Session(ShellSession::start(&spec).expect("set up"));
    assert_eq!(session.output("bin/greet && cat said"), "hello\n");
    assert_eq!(fs::read_to_string(folder.path().join("said")).expect("written"), "hello\n");
    // The folders above it hold nothing else, and nothing is made there.
    assert_eq!(session.output(&format!("ls -A $(dirname {on_machine}) | wc -l; pwd")), "1\n/shared\n");
    assert_ne!(
        session.run(&format!("mkdir {on_machine}-other 2>&1")).end.ending,
        portcullis_shell_daemon::Ending::Code(0)
    );
}
