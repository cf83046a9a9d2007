//! Tests with programs below a confined thread instead of a process, because the same layers bind both. Limits bind
//! whole processes, so the tests of sessions cover them.

use std::{
    net::{TcpListener, UdpSocket},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};

use super::*;
use crate::{
    PathAccess, PathRule, ProcessLimits,
    sys::{ProbeSyscall, TestCall, attempt},
    testing::{
        ConfineFixture, assert_no_socket_can_be_made, enter_stock_container, kernel_has_layers,
        run_on_new_thread,
    },
};

fn handle(path: &Path) -> Arc<OwnedFd> {
    Arc::new(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap())
}

fn rules(fixture: &ConfineFixture) -> ProcessConfinement {
    let mut paths = vec![
        PathRule { handle: handle(&fixture.path("read")), access: PathAccess::Read },
        PathRule { handle: handle(&fixture.path("write")), access: PathAccess::Write },
        PathRule { handle: handle(Path::new("/dev/null")), access: PathAccess::Device },
    ];
    for system in ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"] {
        if Path::new(system).exists() {
            paths.push(PathRule { handle: handle(Path::new(system)), access: PathAccess::Read });
        }
    }
    ProcessConfinement {
        network: None,
        watch_changes: false,
        landlock: Requirement::Required,
        seccomp: Requirement::Required,
        user: None,
        paths,
        limits: ProcessLimits {
            descriptors: 256,
            memory_bytes: 1 << 30,
            file_bytes: 1 << 30,
            processes: None,
            cpu: None,
        },
        canary: fixture.canary(),
    }
}

fn confined<T: Send>(rules: &ProcessConfinement, body: impl FnOnce(&[LayerReport]) -> T + Send) -> T {
    run_on_new_thread(|| body(&confine_privileges(rules, &probe_kernel()).expect("the layers hold").0))
}

#[expect(clippy::disallowed_methods, reason = "the test starts what the layers are to hold")]
fn bash(fixture: &ConfineFixture, script: &str) -> Output {
    Command::new("bash")
        .args(["--norc", "--noprofile", "-c", script])
        .current_dir(fixture.path("write"))
        .output()
        .expect("bash starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_layer_is_proven_by_what_worked_before() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&rules(&fixture), |layers| {
        assert_eq!(layers.iter().map(|report| report.layer).collect::<Vec<_>>(), Layer::PROCESS[1..]);
        for report in layers {
            assert!(!report.evidence.is_empty(), "{report:?}");
            assert!(!matches!(report.status, LayerStatus::Waived), "{report:?}");
            for evidence in &report.evidence {
                assert!(matches!(evidence.after, crate::SyscallOutcome::Failed(_)), "{evidence:?}");
            }
        }
        let posture = ProcessPosture::new(layers.to_vec());
        let text = serde_json::to_string(&posture).unwrap();
        assert_eq!(serde_json::from_str::<ProcessPosture>(&text).unwrap(), posture);
    });
}

#[test]
fn a_layer_that_is_taken_away_is_reported_and_refuses_nothing() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let mut without = rules(&fixture);
    without.landlock = Requirement::Waived;
    let secret = format!("cat {}", fixture.path("outside/secret").display());
    let (status, output) = confined(&without, |layers| (layers[1].status.clone(), bash(&fixture, &secret)));
    assert_eq!((status, text(&output.stdout).as_str()), (LayerStatus::Waived, "outside/secret"));

    let output = confined(&rules(&fixture), |_| bash(&fixture, &secret));
    assert!(text(&output.stderr).contains("Permission denied"), "{output:?}");
    assert_eq!(output.stdout, b"");

    let mut missing = probe_kernel();
    missing.landlock_reason = Some("taken away".to_owned());
    let refused = run_on_new_thread(|| confine_privileges(&rules(&fixture), &missing).map(drop));
    assert!(matches!(refused, Err(ConfineError::LayerMissing { layer: Layer::Landlock, .. })), "{refused:?}");
}

#[test]
fn ordinary_work_goes_on() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let script = "set -e; echo one > a; cp a b; mv b c; mkdir -p d/e; ln -s ../a d/l; chmod 755 a; mkfifo f; \
                  (echo x > f &) ; cat f; cat < <(sort c); printf '#!/bin/sh\\necho ran' > s; chmod +x s; ./s; \
                  rm -r d f; ls | wc -l; cat ../read/file; sleep 0.01; kill -0 $$; ulimit -n; umask";
    let output = confined(&rules(&fixture), |_| bash(&fixture, script));
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).starts_with("x\none\nran\n4\nread/file"), "{}", text(&output.stdout));
}

#[test]
fn a_stock_container_is_enough() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (layers, output) = run_on_new_thread(|| {
        enter_stock_container();
        assert_eq!(
            attempt(ProbeSyscall::Test(TestCall::Unshare)),
            crate::SyscallOutcome::Failed(libc::EPERM),
            "the container refuses"
        );
        assert_eq!(attempt(ProbeSyscall::Clone3), crate::SyscallOutcome::Failed(libc::ENOSYS));
        let (layers, _) = confine_privileges(&rules(&fixture), &probe_kernel()).expect("the layers hold");
        (layers, bash(&fixture, "echo $(echo ran); cat ../outside/secret"))
    });
    assert_eq!(layers.len(), 3);
    assert_eq!(text(&output.stdout), "ran\n");
    assert!(!output.status.success());
}

#[test]
fn files_elsewhere_and_read_only_ones_are_out_of_reach() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let attempts = [
        "echo x > ../read/file",
        "echo x > ../read/new",
        "rm ../read/file",
        "cat ../outside/secret",
        "ls ..",
        "ls /proc",
        "cat /proc/self/environ",
        "cat /proc/1/environ",
        "cat /etc/passwd",
        "ls /home",
        "ls /run",
        "ln -s ../outside/secret link; cat link",
        "ln ../outside/secret hard",
        "mv ../outside/secret .",
        "mknod device c 1 3",
    ];
    for attempt in attempts {
        let free = ConfineFixture::new();
        // The control: without the layers each attempt works, except those that need root.
        let control = bash(&free, attempt);
        assert!(
            control.status.success() || attempt.starts_with("mknod") || attempt.contains("/1/"),
            "{control:?}"
        );
        let output = confined(&rules(&fixture), |_| bash(&fixture, attempt));
        assert!(!output.status.success(), "{attempt}: {output:?}");
    }
    assert_eq!(std::fs::read_to_string(fixture.path("read/file")).unwrap(), "read/file");
    assert_eq!(std::fs::read_to_string(fixture.path("outside/secret")).unwrap(), "outside/secret");
}

#[test]
fn nothing_leaves_through_the_network() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let script = format!(
        "echo out > /dev/udp/127.0.0.1/{}; exec 5<> /dev/tcp/127.0.0.1/{}",
        udp.local_addr().unwrap().port(),
        tcp.local_addr().unwrap().port()
    );
    let output = confined(&rules(&fixture), |_| bash(&fixture, &script));
    assert!(!output.status.success(), "{output:?}");
    assert!(tcp.accept().is_err(), "a connection came");
    assert!(udp.recv(&mut [0; 8]).is_err(), "a packet came");

    assert!(bash(&fixture, &script).status.success(), "the control");
    // A packet may still be in transit.
    udp.set_nonblocking(false).unwrap();
    assert!(tcp.accept().is_ok() && udp.recv(&mut [0; 8]).is_ok(), "the listeners hear");
}

#[test]
fn other_processes_and_kernel_interfaces_are_out_of_reach() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&rules(&fixture), |_| {
        for call in TestCall::REFUSED_TO_PROGRAMS {
            assert_eq!(
                attempt(ProbeSyscall::Test(call)),
                crate::SyscallOutcome::Failed(libc::EPERM),
                "{call:?}"
            );
        }
    });
    for call in [TestCall::Unshare, TestCall::Ptrace, TestCall::PrlimitOther, TestCall::ReniceOther] {
        let free = run_on_new_thread(|| attempt(ProbeSyscall::Test(call)));
        assert_ne!(free, crate::SyscallOutcome::Failed(libc::EPERM), "{call:?}");
    }
}

#[test]
fn signals_stay_within() {
    if !kernel_has_layers() || probe_kernel().landlock_abi < Some(6) {
        return;
    }
    let fixture = ConfineFixture::new();
    let script = format!("kill -0 {}", std::process::id());
    assert!(bash(&fixture, &script).status.success(), "the control");
    let output = confined(&rules(&fixture), |_| bash(&fixture, &script));
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn only_connected_pairs_of_sockets_can_be_made() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map(drop);
    assert_eq!(pair(SocketType::DGRAM), Ok(()), "the control");
    confined(&rules(&fixture), |_| {
        assert_eq!(pair(SocketType::STREAM), Ok(()));
        assert_eq!(pair(SocketType::SEQPACKET), Ok(()));
        assert_eq!(pair(SocketType::DGRAM), Err(rustix::io::Errno::PERM));
        assert_no_socket_can_be_made();
    });
}

#[test]
fn no_file_is_made_to_run_as_its_owner() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    for script in ["touch s; chmod 4755 s", "touch s; chmod g+s s", "mkdir -m 2755 s"] {
        let free = ConfineFixture::new();
        assert!(bash(&free, script).status.success(), "the control: {script}");
        let output = confined(&rules(&fixture), |_| bash(&fixture, script));
        assert!(!output.status.success(), "{script}: {output:?}");
    }
    confined(&rules(&fixture), |_| {
        let result = rustix::fs::open(
            fixture.path("write/made"),
            OFlags::CREATE | OFlags::WRONLY,
            Mode::RUSR | Mode::from_raw_mode(libc::S_ISUID),
        );
        assert_eq!(result.map(drop), Err(rustix::io::Errno::PERM));
    });
}

#[test]
fn a_process_with_other_threads_is_not_confined() {
    let refused = SingleThreaded::check();
    // The test harness has another thread.
    assert!(matches!(refused, Err(ConfineError::ThreadsRunning { threads }) if threads > 1), "{refused:?}");
}

/// A process in a user namespace of another user. Dropping the value ends the process.
struct ForeignProcess(std::process::Child);

impl ForeignProcess {
    /// `None` where ordinary users may not make namespaces.
    #[expect(clippy::disallowed_methods, reason = "the test needs a process to look at")]
    fn start(user: ProcessUser) -> Option<Self> {
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        let mut child = Command::new("setpriv")
            .args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "--"])
            .args(["unshare", "--user", "sh", "-c", "echo there; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("setpriv starts");
        let mut output = [0; 6];
        let is_there = io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut output).is_ok();
        let started = Self(child);
        is_there.then_some(started)
    }

    fn maps(&self) -> io::Result<String> {
        std::fs::read_to_string(format!("/proc/{}/maps", self.0.id()))
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

impl Drop for ForeignProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_in_a_container_looks_into_a_users_namespace_as_the_user() {
    let user = ProcessUser { uid: 54321, gid: 54322 };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this takes root");
        return;
    }
    let Some(mut foreign_process) = ForeignProcess::start(user) else {
        println!("skipped: ordinary users can have no namespaces here");
        return;
    };
    run_on_new_thread(|| {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        for set in [&mut sets.effective, &mut sets.permitted] {
            // Newer kernels also show mappings to holders of `CAP_PERFMON`.
            set.remove(CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_ADMIN | CapabilitySet::PERFMON);
        }
        rustix::thread::set_capabilities(None, sets).unwrap();
        assert!(foreign_process.maps().is_err(), "the control");
        set_thread_user(user).unwrap();
        let maps = foreign_process.maps().unwrap();
        assert!(maps.contains("[stack]"), "{maps}");
        assert_eq!(share_memory(foreign_process.pid(), foreign_process.pid()), Some(true));

        // The other operations that the watch over a command uses.
        rustix::process::setpriority_process(Some(foreign_process.pid()), 19).unwrap();
        rustix::process::setpriority_process(Some(foreign_process.pid()), 0).expect("back, as root may");
        rustix::process::kill_process(foreign_process.pid(), rustix::process::Signal::KILL).unwrap();
        // The rights of the user decide about files.
        let secret = std::fs::File::open("/proc/1/environ");
        assert!(secret.is_err(), "{secret:?}");
    });
    foreign_process.0.wait().unwrap();
    assert!(std::fs::read_dir("/root").is_ok(), "the other threads are root's as before");
}

#[test]
fn changes_wait_for_their_watcher() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let rules = ProcessConfinement { watch_changes: true, ..rules(&fixture) };
    let (sender, listeners) = std::sync::mpsc::channel::<crate::ChangeListener>();
    let watcher = std::thread::spawn(move || {
        let listener = listeners.recv().expect("a listener");
        let mut calls = Vec::new();
        while calls.len() < 4 {
            let Some(change) = listener.receive().expect("received") else { continue };
            assert!(listener.is_pending(&change));
            calls.push(change.operations());
            // The third change is refused.
            if calls.len() == 3 { listener.refuse(&change) } else { listener.allow(&change) }
        }
        calls
    });
    let write = fixture.path("write");
    run_on_new_thread(|| {
        let (_, listener) = confine_privileges(&rules, &probe_kernel()).expect("the layers hold");
        sender.send(listener.expect("a listener")).expect("the watcher waits");
        // Reading waits for nothing.
        assert!(std::fs::read_dir(fixture.path("read")).is_ok());
        std::fs::write(write.join("a"), "text").expect("let go on");
        std::fs::rename(write.join("a"), write.join("b")).expect("let go on");
        let refused = std::fs::remove_file(write.join("b")).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EIO));
        std::fs::create_dir(write.join("c")).expect("let go on");
    });
    assert_eq!(watcher.join().expect("ends").len(), 4);
    assert!(write.join("b").exists() && write.join("c").exists());
}
