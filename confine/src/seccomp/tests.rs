//! System calls of a confined thread, on the real kernel.

use std::{
    cell::Cell,
    process::{Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    Layer, SyscallOutcome, confine_current_thread,
    sys::{ProbeSyscall, TestCall, attempt, attempt_page},
    testing::{ConfineFixture, assert_no_socket_can_be_made, confined, kernel_has_layers},
};

const REFUSED: SyscallOutcome = SyscallOutcome::Failed(libc::EPERM);

#[test]
fn other_programs_processes_and_kernel_parts_are_out_of_reach() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&fixture.rules_with_only(Layer::Seccomp), |_| {
        for call in TestCall::REFUSED {
            assert_eq!(attempt(ProbeSyscall::Test(call)), REFUSED, "{call:?}");
        }
        assert_eq!(attempt(ProbeSyscall::Execve), REFUSED);
        assert_eq!(attempt(ProbeSyscall::Clone3), SyscallOutcome::Failed(libc::ENOSYS));
    });
}

/// The control of the test above, which would also pass on a machine where these calls never work.
#[test]
fn the_refused_calls_are_free_elsewhere() {
    for call in [TestCall::Clone, TestCall::Unshare, TestCall::Ptrace, TestCall::Prctl, TestCall::Kill] {
        assert_ne!(attempt(ProbeSyscall::Test(call)), REFUSED, "{call:?}");
    }
}

#[test]
fn no_socket_of_any_family() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&fixture.rules_with_only(Layer::Seccomp), |_| {
        assert_no_socket_can_be_made();
        let pair = std::os::unix::net::UnixStream::pair().unwrap_err();
        assert_eq!(pair.raw_os_error(), Some(libc::EPERM));
    });
}

#[test]
fn no_thread_and_no_program_can_be_started() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    for rules in [fixture.rules(), fixture.rules_with_only(Layer::Seccomp)] {
        confined(&rules, |_| {
            let thread = thread::Builder::new().spawn(|| ()).map(drop).unwrap_err();
            assert_eq!(thread.raw_os_error(), Some(libc::EPERM));
            #[expect(clippy::disallowed_methods, reason = "this is the attack")]
            let program = Command::new("/bin/true").stdout(Stdio::inherit()).spawn().map(drop).unwrap_err();
            assert_eq!(program.raw_os_error(), Some(libc::EPERM));
        });
    }
}

#[test]
fn no_page_becomes_executable() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    assert_eq!(attempt_page(read, Some(read | execute)), SyscallOutcome::Succeeded);
    confined(&fixture.rules_with_only(Layer::Seccomp), |_| {
        assert_eq!(attempt_page(read | execute, None), REFUSED);
        assert_eq!(attempt_page(read | write | execute, None), REFUSED);
        assert_eq!(attempt_page(read | write, Some(read | execute)), REFUSED);
        assert_eq!(attempt_page(libc::PROT_NONE, Some(read | write)), SyscallOutcome::Succeeded);
    });
}

/// The kernel gets as far as the arguments, which are an invalid descriptor and no regions.
#[test]
fn the_allocator_may_scan_and_give_back_its_pages() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    confined(&fixture.rules(), |_| {
        let outcome = attempt(ProbeSyscall::Test(TestCall::PagemapScan));
        assert_eq!(outcome, SyscallOutcome::Failed(libc::EBADF));
        assert_ne!(attempt(ProbeSyscall::Test(TestCall::MadviseSelf)), REFUSED);
    });
}

#[test]
fn ordinary_work_goes_on() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (to_worker, jobs) = mpsc::sync_channel::<u32>(1);
    let (to_caller, results) = mpsc::sync_channel::<u32>(1);
    let total = Arc::new(Mutex::new(0_u32));
    let rules = fixture.rules();
    thread::scope(|scope| {
        scope.spawn({
            let total = Arc::clone(&total);
            move || {
                let proven = confine_current_thread(&rules).unwrap();
                for job in jobs {
                    proven.reprove().unwrap();
                    // Large enough that the allocator maps and unmaps each block separately.
                    let mut block = vec![0_u8; 4 << 20];
                    block[job as usize] = 1;
                    block.resize(16 << 20, 1);
                    thread::sleep(Duration::from_micros(1));
                    *total.lock().unwrap() += job;
                    to_caller.send(job).unwrap();
                }
                thread::park_timeout(Duration::from_micros(1));
            }
        });
        for job in 0..10 {
            to_worker.send(job).unwrap();
            assert_eq!(results.recv().unwrap(), job);
        }
        drop(to_worker);
    });
    assert_eq!(*total.lock().unwrap(), (0..10).sum::<u32>());
}

thread_local! {
    static THREAD_END: Cell<Option<mpsc::SyncSender<()>>> = const { Cell::new(None) };
}

#[test]
fn a_panic_is_caught_and_a_thread_ends_as_usual() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let rules = fixture.rules();
    let (ended, has_ended) = mpsc::sync_channel(1);
    let result = thread::spawn(move || {
        let proven = confine_current_thread(&rules).unwrap();
        THREAD_END.set(Some(ended));
        let caught = std::panic::catch_unwind(|| panic!("a bug in a tool"));
        assert!(caught.is_err());
        proven.reprove().unwrap();
        panic!("a bug in the runner");
    })
    .join();
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"a bug in the runner"));
    // The end of the thread destroyed its local storage, and the sender with it.
    assert_eq!(has_ended.recv(), Err(mpsc::RecvError));
}

/// An abort of a confined thread must end the process. If the fault handlers could not restore the default
/// action, the thread would fault endlessly.
#[test]
fn an_abort_ends_the_process() {
    if !kernel_has_layers() {
        return;
    }
    if std::env::var_os(ABORT_VARIABLE).is_some() {
        let fixture = ConfineFixture::new();
        confined(&fixture.rules(), |_| std::process::abort());
    }
    #[expect(clippy::disallowed_methods, reason = "a process is needed that may die")]
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "seccomp::tests::an_abort_ends_the_process"])
        .env(ABORT_VARIABLE, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the process lives on");
        }
        thread::yield_now();
    };
    assert_eq!(status.code(), None, "ended by a signal, not in good order: {status}");
}

#[test]
fn the_program_is_small_and_compiled_once() {
    let programs = programs().unwrap();
    assert!(programs.allow_list.len() < 1024, "{}", programs.allow_list.len());
    assert!(std::ptr::eq(programs, super::programs().unwrap()));
}

const ABORT_VARIABLE: &str = "PORTCULLIS_TEST_ABORT_HERE";
