//! What a session proves about itself, and what its commands cannot reach. What each call meets is tested in
//! `portcullis-confine`; here is that the session applies it.

use std::{
    net::{TcpListener, UdpSocket},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
};

use portcullis_confine::{Layer, LayerStatus, Outcome};
use portcullis_shell_daemon::{Completed, Ending};

use crate::world::{World, request};

#[test]
fn each_layer_was_seen_to_refuse() {
    let Some(world) = World::new() else { return };
    let session = world.session();
    let posture = session.0.posture();
    assert_eq!(posture.layers().iter().map(|report| report.layer).collect::<Vec<_>>(), Layer::PROCESS);
    for report in posture.layers() {
        assert!(matches!(report.status, LayerStatus::Enforced | LayerStatus::Partial { .. }), "{report:?}");
        assert!(!report.evidence.is_empty(), "{report:?}");
        assert!(report.evidence.iter().all(|seen| seen.after != Outcome::Succeeded), "{report:?}");
    }
    assert!(posture.summary().starts_with("limits=enforced,privileges=enforced,landlock="), "{posture}");
}

#[test]
fn files_outside_the_mounts_are_out_of_reach() {
    let Some(world) = World::new() else { return };
    let mut session = world.session();
    let daemon = std::process::id();
    for attempt in [
        format!("cat {}", world.path("vault/secret").display()),
        format!("ls {}", world.path("").display()),
        format!("cat {}", world.path("state/canary").display()),
        format!("ln -s {} link; cat link", world.path("vault/secret").display()),
        format!("cat /proc/{daemon}/environ"),
        format!("cat /proc/{daemon}/cmdline"),
        format!("cat /proc/{daemon}/mem"),
        format!("ls /proc/{daemon}/fd"),
        format!("cat /proc/{daemon}/root/etc/hostname"),
        "cat /proc/self/environ".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "cat /proc/1/environ".to_owned(),
        "ls /proc /run /home /root".to_owned(),
        "cat /etc/shadow".to_owned(),
        "touch ../read/new".to_owned(),
        "touch /usr/new /tmp/new".to_owned(),
        format!("kill -0 {daemon}"),
        "unshare -U true".to_owned(),
        "mount -t tmpfs none tmp".to_owned(),
    ] {
        let ran = session.run(&attempt);
        assert_ne!(ran.end.ending, Ending::Code(0), "{attempt}: {ran:?}");
        assert_eq!(ran.stdout, "", "{attempt}");
    }
    assert_eq!(session.output("cat $PORTCULLIS_READ/file"), "read/file", "the control");
}

#[test]
fn a_session_has_no_privileges_to_begin_with() {
    let Some(world) = World::new() else { return };
    let mut session = world.session();
    // An owner without privileges may neither give a file away nor read one that forbids it.
    let ran = session.run("touch f; chown 12345 f");
    assert_eq!(ran.end.ending, Ending::Code(1), "{ran:?}");
    let ran = session.run("echo x > g; chmod 000 g; cat g");
    assert_eq!((ran.end.ending, ran.stdout.as_str()), (Ending::Code(1), ""), "{ran:?}");
}

/// Without a mount namespace these stay open, and documentation has to say so: Landlock judges opening, not
/// names, metadata or the working directory.
#[test]
fn names_and_metadata_outside_stay_visible() {
    let Some(world) = World::new() else { return };
    let mut session = world.session();
    let vault = world.path("vault").display().to_string();
    assert_eq!(
        session.output(&format!("stat -c %s {vault}/secret; cd {vault}; pwd")),
        format!("12\n{vault}\n")
    );
    assert_ne!(session.run("ls").end.ending, Ending::Code(0));
    assert_ne!(session.run("cat secret").end.ending, Ending::Code(0));
    // By the same user also the mode: what is in the file stays as it is.
    assert_eq!(session.run(&format!("cd; chmod 640 {vault}/secret")).end.ending, Ending::Code(0));
    assert_eq!(std::fs::read_to_string(world.path("vault/secret")).unwrap(), "vault/secret");
}

#[test]
fn root_becomes_the_owner_of_the_workspace() {
    let Some(world) = World::new() else { return };
    if !rustix::process::geteuid().is_root() {
        // Nobody else can become anybody.
        return;
    }
    assert_eq!(world.session().0.user(), None, "root's own workspace");
    for folder in ["shared", "tmp"] {
        std::os::unix::fs::chown(world.path(folder), Some(12345), Some(12346)).unwrap();
    }
    std::fs::set_permissions(world.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut session = world.session();
    assert_eq!(session.0.user().map(|user| (user.uid, user.gid)), Some((12345, 12346)));
    assert!(session.0.posture().layers().iter().all(|report| !report.evidence.is_empty()));
    let script =
        "id -u; id -G; echo x > file; stat -c %u:%g file; echo named > /dev/stdout; cat < <(echo sub); v=1";
    assert_eq!(session.output(script), "12345\n12346\n12345:12346\nnamed\nsub\n");
    let ran = session.run(&format!(
        "cat {}; ls /; kill -0 {}",
        world.path("vault/secret").display(),
        std::process::id()
    ));
    assert_eq!((ran.end.ending, ran.stdout.as_str()), (Ending::Code(1), ""), "{ran:?}");
    let (mut one, canceller) = request("(setsid sleep 30 &) ; sleep 30");
    one.timeout = std::time::Duration::from_millis(200);
    let ran = session.attempt((one, canceller)).unwrap();
    assert_ne!(ran.end.completed, Completed::Yes, "root can still kill it");
    assert_eq!(session.output("echo $v"), "1\n");
    session.0.end().unwrap();
}

#[test]
fn no_packet_leaves_and_no_socket_is_reached() {
    let Some(world) = World::new() else { return };
    let mut session = world.session();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(world.path("shared/socket")).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    unix.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    for attempt in [
        format!("echo x > /dev/tcp/127.0.0.1/{tcp_port}"),
        format!("echo x > /dev/udp/127.0.0.1/{udp_port}"),
        "echo x > /dev/tcp/localhost/80".to_owned(),
        perl(
            "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un(\"socket\")) || exit 9",
        ),
        perl("use Socket; socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) || exit 9"),
    ] {
        let ran = session.run(&attempt);
        assert_ne!(ran.end.ending, Ending::Code(0), "{attempt}: {ran:?}");
    }
    assert!(tcp.accept().is_err() && unix.accept().is_err() && udp.recv(&mut [0; 8]).is_err());

    // The control: the listeners hear whoever is not confined.
    drop(std::net::TcpStream::connect(("127.0.0.1", tcp_port)).unwrap());
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", ("127.0.0.1", udp_port)).unwrap();
    drop(std::os::unix::net::UnixStream::connect(world.path("shared/socket")).unwrap());
    assert!(tcp.accept().is_ok() && unix.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok());
}

fn perl(program: &str) -> String {
    format!("perl -e '{program}'")
}

#[test]
fn a_command_has_no_descriptors_but_its_own() {
    let Some(world) = World::new() else { return };
    let mut session = world.session();
    session.output("v=1");
    let listing = perl("for (3..400) { print \"$_ \" if open(my $file, \"<&\", $_) }");
    // Its text, the last state and what it waited for were closed; the next state is still to come.
    assert_eq!(session.output(&listing), "200 ");
}
