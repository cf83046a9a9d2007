//! Whole programs that hold a session: as an ordinary user, in a stock container, and killed.
#![expect(clippy::disallowed_methods, reason = "the tests start the programs that they are about")]

use std::{
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output, Stdio},
};

use crate::{
    stock_container::enter_stock_container,
    world::{World, eventually, marker, processes_with},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_portcullis-shell-test");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_works(output: &Output) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), stdout.as_str()), (Some(7), "on\n"), "{stderr}");
    assert!(stderr.starts_with("limits=enforced,privileges=enforced,landlock="), "{stderr}");
    assert!(stderr.contains(",seccomp=enforced"), "{stderr}");
}

/// What must work, and three things that must not: each would change the output or the code.
fn script(world: &World) -> String {
    format!(
        "echo on; echo x > file; cat {} 2>&1 | grep -v denied; (echo x > /dev/tcp/127.0.0.1/1) 2>&1 | grep -i refused; \
         unshare -U echo free 2>/dev/null; exit 7",
        world.path("vault/secret").display()
    )
}

#[test]
fn an_ordinary_user_has_a_session() {
    let Some(world) = World::new() else { return };
    let ids = |who| format!("--{who}=65534");
    // Only root can become somebody else; whoever is not root is an ordinary user already.
    let is_root = rustix::process::geteuid().is_root();
    let mut program = if is_root { Command::new("setpriv") } else { Command::new(PROGRAM) };
    if is_root {
        for folder in ["state", "shared"] {
            std::os::unix::fs::chown(world.path(folder), Some(65534), Some(65534)).unwrap();
        }
        std::fs::set_permissions(world.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
        // Where everybody can start it.
        std::fs::copy(PROGRAM, world.path("program")).unwrap();
        program.args([ids("reuid"), ids("regid"), "--clear-groups".to_owned()]).arg(world.path("program"));
    }
    let output = program.arg(world.path("")).arg(script(&world)).output().unwrap();
    assert_works(&output);
}

#[test]
fn a_stock_container_has_a_session() {
    let Some(world) = World::new() else { return };
    let output = std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            enter_stock_container();
            let refused = Command::new("unshare").args(["-U", "true"]).output().unwrap();
            assert!(!refused.status.success(), "the container refuses namespaces");
            Command::new(PROGRAM).arg(world.path("")).arg(script(&world)).output().unwrap()
        });
        started.join().unwrap()
    });
    assert_works(&output);
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let marker = marker("daemon");
    let command = format!(
        "echo x >> counter; (setsid bash -c 'exec -a {marker} sleep 30' &) ; echo up; exec -a {marker} sleep 30"
    );
    let mut daemon = Command::new(PROGRAM)
        .arg(world.path(""))
        .arg(command)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    daemon.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let sleepers = || processes_with(&marker).iter().filter(|line| line.starts_with(&marker)).count();
    eventually("both run", || sleepers() == 2);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("nothing is left", || processes_with(&marker).is_empty());
    assert_eq!(std::fs::read_to_string(world.path("shared/counter")).unwrap(), "x\n", "it ran once");
}
