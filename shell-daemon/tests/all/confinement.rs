//! The confinement of whole sessions. The outcome of each system call is tested in `portcullis-confine`, and
//! each layer alone in `layers.rs`.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

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

use crate::world::{Session, World, request};

/// Commands that must fail and write nothing to standard output in a confined session.
fn attacks(world: &World) -> Vec<String> {
    let daemon = std::process::id();
    vec![
        format!("cat {}", world.path("vault/secret").display()),
        format!("ls {}", world.path("").display()),
        format!("cat {}", world.path("state/canary").display()),
        format!("ln -s {} link; cat link", world.path("vault/secret").display()),
        format!("ln {} hard", world.path("vault/secret").display()),
        format!("cat /proc/self/root{}", world.path("vault/secret").display()),
        format!("cat /proc/self/cwd/../vault/secret"),
        format!("cat /proc/{daemon}/cmdline"),
        format!("kill -0 {daemon}"),
        "echo x > ../read/new".to_owned(),
        "echo x > ../read/file".to_owned(),
        "unshare -U true".to_owned(),
        // The following are refused to every user without privileges, and must stay refused.
        format!("cat /proc/{daemon}/environ"),
        format!("cat /proc/{daemon}/mem"),
        format!("ls /proc/{daemon}/fd"),
        format!("cat /proc/{daemon}/root/etc/hostname"),
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

/// The first attacks, so many of them, succeed in a session without confinement.
const CONTROLS: usize = 12;

#[test]
fn files_outside_the_mounts_are_out_of_reach() {
    World::each_confined(|world| {
        let mut session = world.session();
        for attack in attacks(world) {
            let ran = session.run(&attack);
            assert_ne!(ran.end.ending, Ending::Code(0), "{attack}: {ran:?}");
            assert_eq!(ran.stdout, "", "{attack}: {ran:?}");
        }
        assert_eq!(session.output("cat $PORTCULLIS_READ/file"), "read/file", "the control");
        for untouched in ["read/file", "vault/secret"] {
            assert_eq!(std::fs::read_to_string(world.path(untouched)).unwrap(), untouched);
        }
    });
    let world = World::bare();
    let mut session = world.session();
    for attack in &attacks(&world)[..CONTROLS] {
        let ran = session.run(attack);
        assert_eq!(ran.end.ending, Ending::Code(0), "the control: {attack}: {ran:?}");
    }
}

/// A link that another party swaps all the time must not help either: the opened file is judged, not a path
/// that was checked before.
#[test]
fn a_link_that_is_swapped_leads_nowhere() {
    World::each_confined(|world| {
        let mut session = world.session();
        let (link, secret) = (world.path("shared/link"), world.path("vault/secret"));
        std::fs::write(world.path("shared/plain"), "plain").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for target in [Path::new("plain"), &secret] {
                        let next = world.path("shared/next");
                        std::os::unix::fs::symlink(target, &next).unwrap();
                        std::fs::rename(next, &link).unwrap();
                    }
                }
            });
            let ran = session.run("for ((i = 0; i < 2000; i++)); do read -r x < link && echo \"$x\"; echo y > link; done 2>/dev/null; :");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            ran
        });
        assert!(!ran.stdout.contains("vault"), "{ran:?}");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "vault/secret");
    });
}

#[test]
fn a_session_has_no_privileges_to_begin_with() {
    World::each(|world| {
        let mut session = world.session();
        // A file's owner without privileges can neither give it away nor read it without the mode for that.
        let ran = session.run("touch f; chown 12345 f");
        assert_eq!(ran.end.ending, Ending::Code(1), "{ran:?}");
        let ran = session.run("echo x > g; chmod 000 g; cat g");
        assert_eq!((ran.end.ending, ran.stdout.as_str()), (Ending::Code(1), ""), "{ran:?}");
    });
}

#[test]
fn in_its_own_file_tree_a_session_sees_no_outside_names() {
    World::strong().iter().for_each(|world| {
        let mut session = world.session();
        let vault = world.path("vault").display().to_string();
        for attempt in [format!("stat {vault}"), format!("cd {vault}"), format!("chmod 640 {vault}/secret")] {
            assert_ne!(session.run(&attempt).end.ending, Ending::Code(0), "{attempt}");
        }
        // The mounts and the tree's folders; of the machine's, which differ, only the system's.
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
    World::new().iter().for_each(|world| {
        let mut session = world.session();
        let vault = world.path("vault").display().to_string();
        assert_eq!(
            session.output(&format!("stat -c %s {vault}/secret; cd {vault}; pwd")),
            format!("12\n{vault}\n")
        );
        assert_ne!(session.run("ls").end.ending, Ending::Code(0));
        assert_ne!(session.run("cat secret").end.ending, Ending::Code(0));
        // The same user can even change the mode, but not the contents.
        assert_eq!(session.run(&format!("cd; chmod 640 {vault}/secret")).end.ending, Ending::Code(0));
        assert_eq!(std::fs::read_to_string(world.path("vault/secret")).unwrap(), "vault/secret");
    });
}

/// Gives the world to a user that no other process has; only root can do that.
fn give_away(world: &World) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    for folder in ["shared", "tmp"] {
        std::os::unix::fs::chown(world.path(folder), Some(12345), Some(12346)).unwrap();
    }
    std::fs::set_permissions(world.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    true
}

/// Asserts that a session of another user works, is confined, and can be killed.
fn assert_works_as_another(world: &World, session: &mut Session) {
    let has_evidence = |report: &LayerReport| {
        let is_left_out = Layer::NAMESPACES.contains(&report.layer) && !world.has_tree();
        !report.evidence.is_empty() || is_left_out || report.layer == Layer::Cgroup
    };
    assert!(session.0.posture().layers().iter().all(has_evidence));
    let user = session.0.user().expect("another user");
    let script = "id -u; id -G; echo x > file; stat -c %u:%g file; echo named > /dev/stdout; cat < <(echo sub); \
                  echo x > $TMPDIR/file; v=1";
    let (uid, gid) = (user.uid, user.gid);
    assert_eq!(session.output(script), format!("{uid}\n{gid}\n{uid}:{gid}\nnamed\nsub\n"));
    let made = std::fs::metadata(world.path("shared/file")).unwrap();
    let folder = std::fs::metadata(world.path("shared")).unwrap();
    assert_eq!((made.uid(), made.gid()), (folder.uid(), folder.gid()), "outside, it is the owner's");
    let ran =
        session.run(&format!("cat {}; kill -0 {}", world.path("vault/secret").display(), std::process::id()));
    assert_eq!((ran.end.ending, ran.stdout.as_str()), (Ending::Code(1), ""), "{ran:?}");
    let (mut one, canceller) = request("(setsid sleep 30 &) ; sleep 30");
    one.timeout = std::time::Duration::from_millis(200);
    let ran = session.attempt((one, canceller)).unwrap();
    assert_ne!(ran.end.completion, Completion::Whole, "root can still kill it");
    assert_eq!(session.output("echo $v"), "1\n");
}

#[test]
fn root_becomes_the_owner_of_the_workspace() {
    World::new().iter().for_each(|world| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        assert_eq!(world.session().0.user(), None, "root's own workspace");
        if give_away(world) {
            let mut session = world.session();
            assert_eq!(session.0.user().map(|user| (user.uid, user.gid)), Some((12345, 12346)));
            assert_works_as_another(world, &mut session);
        }
    });
}

#[test]
fn roots_session_runs_as_its_own_user() {
    World::strong().iter().for_each(|world| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // First in root's own workspace, where all other files stay root's.
        std::fs::write(world.path("shared/mine"), "mine").unwrap();
        let (mut one, mut two) = (world.session(), world.session());
        assert_works_as_another(world, &mut one);
        assert_ne!(one.0.user(), two.0.user(), "each session is another");
        assert_eq!(
            two.output("cat mine file; echo more >> file; chmod 600 file; cat ../read/file"),
            "minex\nread/file"
        );
        assert_ne!(two.run("chown 0 file").end.ending, Ending::Code(0));
        assert_eq!(two.output("id -un; echo ~"), "session\n/shared\n");
        drop((one, two));
        if give_away(world) {
            std::fs::remove_file(world.path("shared/file")).unwrap();
            assert_works_as_another(world, &mut world.session());
        }
        // Files of neither user keep their owner.
        std::fs::write(world.path("shared/foreign"), "foreign").unwrap();
        std::fs::set_permissions(world.path("shared/foreign"), std::fs::Permissions::from_mode(0o600))
            .unwrap();
        let mut session = world.session();
        assert_eq!(session.output("stat -c %u foreign"), "0\n");
        assert_ne!(session.run("cat foreign").end.ending, Ending::Code(0));
    });
}

#[test]
fn no_packet_leaves_and_no_socket_is_reached() {
    World::each_confined(|world| {
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
            let ran = session.run(&attempt);
            assert_ne!(ran.end.ending, Ending::Code(0), "{attempt}: {ran:?}");
        }
        assert!(tcp.accept().is_err() && unix.accept().is_err() && udp.recv(&mut [0; 8]).is_err());

        // The control: the listeners hear an unconfined client.
        drop(std::net::TcpStream::connect(("127.0.0.1", tcp_port)).unwrap());
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", ("127.0.0.1", udp_port)).unwrap();
        drop(std::os::unix::net::UnixStream::connect(world.path("shared/socket")).unwrap());
        assert!(tcp.accept().is_ok() && unix.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok());
    });
}

fn perl(program: &str) -> String {
    format!("perl -e '{program}'")
}

#[test]
fn a_command_has_no_descriptors_but_its_own() {
    World::each(|world| {
        let mut session = world.session();
        session.output("v=1");
        let listing = perl("for (3..400) { print \"$_ \" if open(my $file, \"<&\", $_) }");
        // Its text, the last state and the start pipe are closed; the descriptor of the next state stays
        // open.
        assert_eq!(session.output(&listing), "200 ");
    });
}
