//! Tests each layer without the other layers that would refuse the same attempt. The control of a test is a
//! session without the layer under test.
#![expect(clippy::disallowed_methods, reason = "one of the tests needs a program that makes shared memory")]

use std::{
    net::{TcpListener, UdpSocket},
    os::unix::process::CommandExt as _,
    process::Command,
};

use portcullis_confine::Layer;
use portcullis_shell_daemon::Ending;

use crate::fixture::Fixture;

/// Runs `script` with one namespace and without that namespace. Landlock and the filter are left out in both cases.
#[track_caller]
fn check(layer: Layer, script: impl Fn(&Fixture) -> String, with_layer: Ending, without_layer: Ending) {
    let other_layers = [Layer::Landlock, Layer::Seccomp];
    for (waived, expected) in
        [(other_layers.to_vec(), with_layer), ([&other_layers[..], &[layer]].concat(), without_layer)]
    {
        let Some(fixture) = Fixture::without(&waived) else { return };
        let result = fixture.session().run(&script(&fixture));
        assert_eq!(result.end.ending, expected, "without {waived:?}: {result:?}");
    }
}

const SUCCESS: Ending = Ending::Code(0);
const FAILURE: Ending = Ending::Code(1);

#[test]
fn the_file_tree_alone_hides_what_is_outside() {
    check(
        Layer::MountNamespace,
        |fixture| format!("cat {}", fixture.path("vault/secret").display()),
        FAILURE,
        SUCCESS,
    );
    check(
        Layer::MountNamespace,
        |fixture| format!("stat {}", fixture.path("state/canary").display()),
        FAILURE,
        SUCCESS,
    );
    check(Layer::MountNamespace, |_| "echo x > $PORTCULLIS_READ/new".to_owned(), FAILURE, SUCCESS);
    check(Layer::MountNamespace, |_| "ls /home /run /sys".to_owned(), Ending::Code(2), SUCCESS);
}

#[test]
fn the_file_tree_alone_cannot_be_changed() {
    let Some(fixture) = Fixture::without(&[Layer::Landlock, Layer::Seccomp]) else { return };
    let mut session = fixture.session();
    // Without the tree, some of these would change the machine.
    assert!(session.0.has_own_tree());
    for attack in [
        "mkdir /new",
        "mkdir /etc/new",
        "mkdir /dev/new",
        "rm /etc/passwd",
        "echo x >> /etc/passwd",
        "echo x > /usr/new",
        "echo x > /read/new",
        "mknod /shared/device b 8 0",
        "head -c 1 /dev/vda",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sysrq-trigger",
        "mount -o remount,bind,rw /usr",
        "umount /proc",
    ] {
        let result = session.run(attack);
        assert_ne!(result.end.ending, SUCCESS, "{attack}: {result:?}");
    }
    for empty in ["/proc/keys", "/proc/timer_list", "/proc/kcore"] {
        assert_eq!(session.run(&format!("cat {empty}")).stdout, "", "{empty}");
    }
    // Only harmless devices, and only public files of the machine.
    assert_eq!(
        session.output("ls /dev | tr '\\n' ' '"),
        "fd full null random shm stderr stdin stdout urandom zero "
    );
    assert_eq!(
        session.output("ls -d /etc/shadow* /etc/ssh /etc/hostname /etc/machine-id 2>/dev/null; :"),
        ""
    );
}

/// A process that makes a user namespace has every privilege inside, but none over mounts from outside.
#[cfg(target_arch = "x86_64")]
#[test]
fn privileges_in_a_further_namespace_open_nothing() {
    let Some(fixture) = Fixture::without(&[Layer::Landlock, Layer::Seccomp]) else { return };
    let mut session = fixture.session();
    assert!(session.0.has_own_tree());
    // Use a single program: a user other than root loses all privileges at `exec`.
    let by_privilege = |call: &str| {
        format!(
            "perl -e 'my ($none, $kind, $place) = (\"none\", \"tmpfs\", shift); \
             syscall(272, 0x10020000) == 0 || exit 9; exit(syscall({call}) == 0 ? 0 : 1)'"
        )
    };
    const REMOUNT_BIND: u32 = 32 | 4096;
    let remount = format!("165, $none, $place, 0, {REMOUNT_BIND}, 0");
    for (call, target, expected) in [
        // The control: the process does have a privilege.
        ("165, $none, $place, $kind, 0, 0", "/dev/shm", SUCCESS),
        ("166, $place, 0", "/proc/keys", FAILURE),
        ("166, $place, 2", "/proc", FAILURE),
        (remount.as_str(), "/usr", FAILURE),
        (remount.as_str(), "/read", FAILURE),
        (remount.as_str(), "/shared", FAILURE),
    ] {
        let result = session.run(&format!("{} {target}", by_privilege(call)));
        assert_eq!(result.end.ending, expected, "{call} {target}: {result:?}");
    }
}

#[test]
fn a_protected_path_alone_stays_read_only() {
    let attack = "echo x > .bashrc || mv .bashrc other || rm .bashrc || ln -f .bashrc other";
    for (layers, expected) in [(&[][..], FAILURE), (&[Layer::MountNamespace][..], SUCCESS)] {
        let Some(fixture) = Fixture::without(&[&[Layer::Landlock, Layer::Seccomp], layers].concat()) else {
            return;
        };
        std::fs::write(fixture.path("shared/.bashrc"), "old").unwrap();
        assert_eq!(fixture.session().run(attack).end.ending, expected, "without {layers:?}");
    }
}

#[test]
fn landlock_alone_keeps_files_shut() {
    let script = |fixture: &Fixture| format!("cat {}", fixture.path("vault/secret").display());
    for (waived, expected) in [
        (vec![Layer::Seccomp, Layer::MountNamespace], FAILURE),
        (vec![Layer::Seccomp, Layer::MountNamespace, Layer::Landlock], SUCCESS),
    ] {
        let Some(fixture) = Fixture::without(&waived) else { return };
        assert_eq!(fixture.session().run(&script(&fixture)).end.ending, expected, "{waived:?}");
    }
}

#[test]
fn processes_outside_have_no_number() {
    let sidecar = std::process::id();
    check(Layer::PidNamespace, |_| format!("kill -0 {sidecar}"), FAILURE, SUCCESS);
    check(Layer::PidNamespace, |_| format!("cat /proc/{sidecar}/cmdline"), FAILURE, SUCCESS);
}

#[test]
fn shared_memory_outside_cannot_be_reached() {
    let made = Command::new("ipcmk").args(["-M", "4096"]).output().unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let id: u32 = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
    // Remove the shared memory even if the test fails.
    struct RemoveMemory(u32);
    impl Drop for RemoveMemory {
        fn drop(&mut self) {
            let _ = Command::new("ipcrm").args(["-m", &self.0.to_string()]).status();
        }
    }
    let _remove = RemoveMemory(id);
    check(
        Layer::IpcNamespace,
        |_| format!("perl -e 'shmread({id}, $text, 0, 1) || exit 1'"),
        FAILURE,
        SUCCESS,
    );
}

#[test]
fn the_machines_name_is_hidden() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    check(Layer::UtsNamespace, |_| format!("[[ $(uname -n) == {} ]]", name.trim()), FAILURE, SUCCESS);
}

#[test]
fn no_packet_leaves_a_network_of_its_own() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (to_tcp, to_udp) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let other_layers = vec![Layer::Landlock, Layer::Seccomp];
    let script = format!("echo x > /dev/udp/127.0.0.1/{to_udp}; echo x > /dev/tcp/127.0.0.1/{to_tcp}");
    let Some(fixture) = Fixture::without(&other_layers) else { return };
    assert_eq!(fixture.session().run(&script).end.ending, FAILURE);
    assert!(tcp.accept().is_err() && udp.recv(&mut [0; 8]).is_err(), "something came");
    let Some(fixture) = Fixture::without(&[other_layers, vec![Layer::NetNamespace]].concat()) else { return };
    assert_eq!(fixture.session().run(&script).end.ending, SUCCESS);
    // A packet may still be in transit.
    udp.set_nonblocking(false).unwrap();
    assert!(tcp.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok(), "the control");
}

/// Landlock and the filter are left out, because they set `no_new_privs` themselves.
#[test]
fn no_new_privs_alone_keeps_a_setuid_program_from_its_rights() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::minimal();
    for folder in ["", "shared"] {
        std::os::unix::fs::chown(fixture.path(folder), Some(12345), Some(12345)).unwrap();
    }
    let program = fixture.path("shared/setuid");
    // Let another program write the file: while a process has it open for writing, no process can execute it.
    let made = Command::new("install").args(["-m", "4755", "/usr/bin/id"]).arg(&program).status().unwrap();
    assert!(made.success());
    assert_eq!(fixture.session().output("id -u; ./setuid -u"), "12345\n12345\n");
    let control = Command::new(&program).arg("-u").uid(12345).gid(12345).output().unwrap();
    assert_eq!(String::from_utf8(control.stdout).unwrap(), "0\n", "the control");
}
