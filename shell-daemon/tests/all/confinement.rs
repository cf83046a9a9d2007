//! The confinement of whole sessions. `portcullis-confine` tests the outcome of each system call, and `layers.rs` tests
//! each layer by itself.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    net::{TcpListener, UdpSocket},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::Path,
};

use portcullis_confine::{Layer, LayerReport};
use portcullis_shell_daemon::{Completion, Ending};

use crate::fixture::{Fixture, Session, request};

/// Commands that must fail and write nothing to standard output in a confined session.
fn attacks(fixture: &Fixture) -> Vec<String> {
    let sidecar = std::process::id();
    vec![
        format!("cat {}", fixture.path("vault/secret").display()),
        format!("ls {}", fixture.path("").display()),
        format!("cat {}", fixture.path("state/canary").display()),
        format!("ln -s {} link; cat link", fixture.path("vault/secret").display()),
        format!("ln {} hard", fixture.path("vault/secret").display()),
        format!("cat /proc/self/root{}", fixture.path("vault/secret").display()),
        format!("cat /proc/self/cwd/../vault/secret"),
        format!("cat /proc/{sidecar}/cmdline"),
        format!("kill -0 {sidecar}"),
        "echo x > ../read/new".to_owned(),
        "echo x > ../read/file".to_owned(),
        "unshare -U true".to_owned(),
        // The following are refused to every user without privileges, and must stay refused.
        format!("cat /proc/{sidecar}/environ"),
        format!("cat /proc/{sidecar}/mem"),
        format!("ls /proc/{sidecar}/fd"),
        format!("cat /proc/{sidecar}/root/etc/hostname"),
        "cat /proc/$PPID/environ".to_owned(),
        "cat /proc/1/environ".to_owned(),
        "head -c 1 /proc/1/mem".to_owned(),
        "readlink /proc/1/fd/0 /proc/1/root".to_owned(),
        "ls /run /home /root /sys /var /boot".to_owned(),
        "cat /etc/shadow".to_owned(),
        "touch /usr/new /new /etc/new /dev/new /proc/new".to_owned(),
        "mount -t tmpfs none tmp".to_owned(),
        "umount /proc".to_owned(),
        "echo 1 > /proc/sys/kernel/panic".to_owned(),
        "echo x > /proc/sysrq-trigger".to_owned(),
        "mknod device b 8 0 && cat device".to_owned(),
        "chroot . true".to_owned(),
    ]
}

/// The number of attacks, from the start of the list, that succeed in a session without confinement.
const CONTROLS: usize = 12;

#[test]
fn files_outside_the_mounts_are_out_of_reach() {
    Fixture::for_each_confined_posture(|fixture| {
        let mut session = fixture.session();
        for attack in attacks(fixture) {
            let result = session.run(&attack);
            assert_ne!(result.end.ending, Ending::Code(0), "{attack}: {result:?}");
            assert_eq!(result.stdout, "", "{attack}: {result:?}");
        }
        assert_eq!(session.output("cat $PORTCULLIS_READ/file"), "read/file", "the control");
        for untouched in ["read/file", "vault/secret"] {
            assert_eq!(std::fs::read_to_string(fixture.path(untouched)).unwrap(), untouched);
        }
    });
    let fixture = Fixture::minimal();
    let mut session = fixture.session();
    for attack in &attacks(&fixture)[..CONTROLS] {
        let result = session.run(attack);
        assert_eq!(result.end.ending, Ending::Code(0), "the control: {attack}: {result:?}");
    }
}

/// A link that is swapped all the time must not help an attacker: the check applies to the opened file, not
/// to a path that was checked before.
#[test]
fn a_link_that_is_swapped_leads_nowhere() {
    Fixture::for_each_confined_posture(|fixture| {
        let mut session = fixture.session();
        let (link, secret) = (fixture.path("shared/link"), fixture.path("vault/secret"));
        std::fs::write(fixture.path("shared/plain"), "plain").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for target in [Path::new("plain"), &secret] {
                        let next = fixture.path("shared/next");
                        std::os::unix::fs::symlink(target, &next).unwrap();
                        std::fs::rename(next, &link).unwrap();
                    }
                }
            });
            let result = session.run("for ((i = 0; i < 2000; i++)); do read -r x < link && echo \"$x\"; echo y > link; done 2>/dev/null; :");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            result
        });
        assert!(!result.stdout.contains("vault"), "{result:?}");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "vault/secret");
    });
}

#[test]
fn a_session_has_no_privileges_to_begin_with() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        // Without privileges, a file's owner cannot give the file away, and cannot read it if its mode forbids that.
        let result = session.run("touch f; chown 12345 f");
        assert_eq!(result.end.ending, Ending::Code(1), "{result:?}");
        let result = session.run("echo x > g; chmod 000 g; cat g");
        assert_eq!((result.end.ending, result.stdout.as_str()), (Ending::Code(1), ""), "{result:?}");
    });
}

#[test]
fn in_its_own_file_tree_a_session_sees_no_outside_names() {
    Fixture::strong().iter().for_each(|fixture| {
        let mut session = fixture.session();
        let vault = fixture.path("vault").display().to_string();
        for attempt in [format!("stat {vault}"), format!("cd {vault}"), format!("chmod 640 {vault}/secret")] {
            assert_ne!(session.run(&attempt).end.ending, Ending::Code(0), "{attempt}");
        }
        // Expected are the mounts, the tree's own folders and the system's folders. The machine's other folders differ.
        let own = ["dev", "proc", "read", "shared", "tmp"];
        let is_systems = |name: &&str| {
            (matches!(*name, "bin" | "etc" | "sbin" | "usr") || name.starts_with("lib"))
                && Path::new("/").join(name).exists()
        };
        let listed = session.output("ls -A /");
        let (of_the_system, others): (Vec<&str>, Vec<&str>) = listed.lines().partition(is_systems);
        assert_eq!(others, own);
        assert!(of_the_system.contains(&"usr") && of_the_system.contains(&"etc"), "{listed}");
        assert_eq!(session.output("ls -A /read"), "file\n");
        assert_eq!(
            session.output("id -un; cut -d: -f1 /etc/passwd /etc/group; echo ~session"),
            "session\nsession\nroot\nnobody\nsession\nroot\nnogroup\n/shared\n"
        );
        assert_eq!(session.output("grep -v ':/$' /proc/self/cgroup; :"), "", "no group has a name");
        let processes = session.output("cd /proc; echo [0-9]*");
        assert!(processes.split_ascii_whitespace().count() < 10, "its own: {processes}");
    });
}

/// Without a mount namespace these stay open, and the documentation must say so: Landlock restricts opening,
/// not names, metadata or the working directory.
#[test]
fn names_and_metadata_outside_stay_visible() {
    Fixture::new().iter().for_each(|fixture| {
        let mut session = fixture.session();
        let vault = fixture.path("vault").display().to_string();
        assert_eq!(
            session.output(&format!("stat -c %s {vault}/secret; cd {vault}; pwd")),
            format!("12\n{vault}\n")
        );
        assert_ne!(session.run("ls").end.ending, Ending::Code(0));
        assert_ne!(session.run("cat secret").end.ending, Ending::Code(0));
        // The user can even change the mode of such a file, but not its contents.
        assert_eq!(session.run(&format!("cd; chmod 640 {vault}/secret")).end.ending, Ending::Code(0));
        assert_eq!(std::fs::read_to_string(fixture.path("vault/secret")).unwrap(), "vault/secret");
    });
}

/// Gives the fixture to a user that no other process has. Only root can do that.
fn give_away(fixture: &Fixture) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    for folder in ["shared", "tmp"] {
        std::os::unix::fs::chown(fixture.path(folder), Some(12345), Some(12346)).unwrap();
    }
    std::fs::set_permissions(fixture.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    true
}

/// Asserts that a session of another user works, is confined, and can be killed.
fn assert_works_as_another(fixture: &Fixture, session: &mut Session) {
    let has_evidence = |report: &LayerReport| {
        let is_left_out = Layer::NAMESPACES.contains(&report.layer) && !fixture.has_tree();
        !report.evidence.is_empty() || is_left_out || report.layer == Layer::Cgroup
    };
    assert!(session.0.posture().layers().iter().all(has_evidence));
    let user = session.0.user().expect("another user");
    let script = "id -u; id -G; echo x > file; stat -c %u:%g file; echo named > /dev/stdout; cat < <(echo sub); \
                  echo x > $TMPDIR/file; v=1";
    let (uid, gid) = (user.uid, user.gid);
    assert_eq!(session.output(script), format!("{uid}\n{gid}\n{uid}:{gid}\nnamed\nsub\n"));
    let made = std::fs::metadata(fixture.path("shared/file")).unwrap();
    let folder = std::fs::metadata(fixture.path("shared")).unwrap();
    assert_eq!((made.uid(), made.gid()), (folder.uid(), folder.gid()), "outside, it is the owner's");
    let result = session.run(&format!(
        "cat {}; kill -0 {}",
        fixture.path("vault/secret").display(),
        std::process::id()
    ));
    assert_eq!((result.end.ending, result.stdout.as_str()), (Ending::Code(1), ""), "{result:?}");
    let (mut command_request, canceller) = request("(setsid sleep 30 &) ; sleep 30");
    command_request.timeout = std::time::Duration::from_millis(200);
    let result = session.attempt((command_request, canceller)).unwrap();
    assert_ne!(result.end.completion, Completion::Finished, "root can still kill it");
    assert_eq!(session.output("echo $v"), "1\n");
}

#[test]
fn root_becomes_the_owner_of_the_workspace() {
    Fixture::new().iter().for_each(|fixture| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        assert_eq!(fixture.session().0.user(), None, "root's own workspace");
        if give_away(fixture) {
            let mut session = fixture.session();
            assert_eq!(session.0.user().map(|user| (user.uid, user.gid)), Some((12345, 12346)));
            assert_works_as_another(fixture, &mut session);
        }
    });
}

#[test]
fn a_session_of_root_runs_as_another_user() {
    Fixture::strong().iter().for_each(|fixture| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // First in root's own workspace, where all other files stay root's.
        std::fs::write(fixture.path("shared/mine"), "mine").unwrap();
        let (mut first_session, mut second_session) = (fixture.session(), fixture.session());
        assert_works_as_another(fixture, &mut first_session);
        assert_ne!(first_session.0.user(), second_session.0.user(), "each session is another");
        assert_eq!(
            second_session.output("cat mine file; echo more >> file; chmod 600 file; cat ../read/file"),
            "minex\nread/file"
        );
        assert_ne!(second_session.run("chown 0 file").end.ending, Ending::Code(0));
        assert_eq!(second_session.output("id -un; echo ~"), "session\n/shared\n");
        drop((first_session, second_session));
        if give_away(fixture) {
            std::fs::remove_file(fixture.path("shared/file")).unwrap();
            assert_works_as_another(fixture, &mut fixture.session());
        }
        // Files of neither user keep their owner.
        std::fs::write(fixture.path("shared/foreign"), "foreign").unwrap();
        std::fs::set_permissions(fixture.path("shared/foreign"), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        let mut session = fixture.session();
        assert_eq!(session.output("stat -c %u foreign"), "0\n");
        assert_ne!(session.run("cat foreign").end.ending, Ending::Code(0));
    });
}

#[test]
fn no_packet_leaves_and_no_socket_is_reached() {
    Fixture::for_each_confined_posture(|fixture| {
        let mut session = fixture.session();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(fixture.path("shared/socket")).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        for attempt in [
            format!("echo x > /dev/tcp/127.0.0.1/{tcp_port}"),
            format!("echo x > /dev/udp/127.0.0.1/{udp_port}"),
            "echo x > /dev/tcp/localhost/80".to_owned(),
            "echo x > /dev/udp/8.8.8.8/53".to_owned(),
            "getent hosts example.com".to_owned(),
            perl("use Socket; socket(S, AF_INET, SOCK_STREAM, 0) || exit 9"),
            perl("use Socket; socket(S, AF_INET6, SOCK_DGRAM, 0) || exit 9"),
            // Netlink, packet and virtual machine sockets, by number.
            perl("socket(S, 16, 3, 0) || exit 9"),
            perl("socket(S, 17, 3, 0) || exit 9"),
            perl("socket(S, 40, 1, 0) || exit 9"),
            perl(
                "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un(\"socket\")) || exit 9",
            ),
            perl("use Socket; socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) || exit 9"),
        ] {
            let result = session.run(&attempt);
            assert_ne!(result.end.ending, Ending::Code(0), "{attempt}: {result:?}");
        }
        assert!(tcp.accept().is_err() && unix.accept().is_err() && udp.recv(&mut [0; 8]).is_err());

        // The control: the listeners receive data from an unconfined client.
        drop(std::net::TcpStream::connect(("127.0.0.1", tcp_port)).unwrap());
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", ("127.0.0.1", udp_port)).unwrap();
        drop(std::os::unix::net::UnixStream::connect(fixture.path("shared/socket")).unwrap());
        assert!(tcp.accept().is_ok() && unix.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok());
    });
}

fn perl(program: &str) -> String {
    format!("perl -e '{program}'")
}

#[test]
fn a_command_has_no_descriptors_but_its_own() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        let listing = perl("for (3..400) { print \"$_ \" if open(my $file, \"<&\", $_) }");
        // Its text, the last state and the start pipe are closed; the descriptor of the next state stays
        // open.
        assert_eq!(session.output(&listing), "200 ");
    });
}
