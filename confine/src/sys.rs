//! The system calls that safe libraries lack, each behind a safe function.
//!
//! Besides one function in `sandbox`, this file has the only `unsafe` code of the host's crates. It makes no
//! decisions.
#![expect(unsafe_code, reason = "raw system calls; every other module of the project is free of it")]

use std::{
    ffi::{CStr, CString},
    io, mem,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use crate::{SingleThreaded, SyscallOutcome};

/// A system call that does no harm even if it is not refused: its arguments are null pointers, sizes of zero, or
/// invalid numbers. Only the `errno` matters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeSyscall {
    /// The program is a null pointer. If not refused, the call gives `EFAULT`, or the error of an empty name on newer
    /// kernels.
    Execve,
    /// The description has size 0. If not refused, the call gives `EINVAL`.
    Clone3,
    /// The capability has a number that no kernel knows. If not refused, the call gives `EINVAL`, or `EPERM`
    /// for a process that may not drop any capability.
    DropUnknownCapability,
    #[cfg(test)]
    Test(TestCall),
}

/// Further calls, which only the tests make. An outer sandbox may kill the process for them, so the shipped
/// proof leaves them out.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum TestCall {
    /// Flags that no kernel accepts together (`CLONE_SIGHAND` without `CLONE_VM`): `EINVAL`.
    Clone,
    Execveat,
    Ptrace,
    ProcessVmReadv,
    PidfdOpen,
    IoUringSetup,
    Unshare,
    Setns,
    Mount,
    Bpf,
    Keyctl,
    MemfdCreate,
    PerfEventOpen,
    Userfaultfd,
    OpenByHandleAt,
    Kill,
    Tgkill,
    Prctl,
    Prlimit,
    Fchmod,
    Fsetxattr,
    TiocstiIoctl,
    SetOwnFcntl,
    IgnoreInterrupt,
    Personality,
    /// Gives advice on another process's memory.
    MadviseOther,
    /// Change the limits and priority of another process.
    PrlimitOther,
    ReniceOther,
    PidfdGetfd,
    ShmGet,
    CloneNamespace,
    /// Allowed calls, unlike those above: `PAGEMAP_SCAN`, and `madvise` on the process's own memory.
    PagemapScan,
    MadviseSelf,
}

#[cfg(test)]
impl TestCall {
    /// All calls that a filtered thread must be refused.
    pub(crate) const REFUSED: [Self; 26] = [
        Self::Clone,
        Self::Execveat,
        Self::Ptrace,
        Self::ProcessVmReadv,
        Self::PidfdOpen,
        Self::IoUringSetup,
        Self::Unshare,
        Self::Setns,
        Self::Mount,
        Self::Bpf,
        Self::Keyctl,
        Self::MemfdCreate,
        Self::PerfEventOpen,
        Self::Userfaultfd,
        Self::OpenByHandleAt,
        Self::Kill,
        Self::Tgkill,
        Self::Prctl,
        Self::Prlimit,
        Self::Fchmod,
        Self::Fsetxattr,
        Self::TiocstiIoctl,
        Self::SetOwnFcntl,
        Self::IgnoreInterrupt,
        Self::Personality,
        Self::MadviseOther,
    ];

    /// All calls that a program below a confined process must be refused.
    pub(crate) const REFUSED_TO_PROGRAMS: [Self; 18] = [
        Self::Ptrace,
        Self::ProcessVmReadv,
        Self::PidfdGetfd,
        Self::IoUringSetup,
        Self::Unshare,
        Self::Setns,
        Self::Mount,
        Self::Bpf,
        Self::Keyctl,
        Self::PerfEventOpen,
        Self::Userfaultfd,
        Self::OpenByHandleAt,
        Self::TiocstiIoctl,
        Self::SetOwnFcntl,
        Self::PrlimitOther,
        Self::ReniceOther,
        Self::ShmGet,
        Self::CloneNamespace,
    ];
}

/// Makes the call and returns its outcome.
pub(crate) fn attempt(call: ProbeSyscall) -> SyscallOutcome {
    let (number, args) = match call {
        ProbeSyscall::Execve => (libc::SYS_execve, [0; 4]),
        ProbeSyscall::Clone3 => (libc::SYS_clone3, [0; 4]),
        ProbeSyscall::DropUnknownCapability => {
            (libc::SYS_prctl, [libc::PR_CAPBSET_DROP.into(), UNKNOWN_CAPABILITY, 0, 0])
        }
        #[cfg(test)]
        ProbeSyscall::Test(call) => test_call(call),
    };
    // SAFETY: every row of the table passes null or invalid pointers, zero lengths, and numbers with which the call
    // fails or changes nothing. The kernel neither reads nor writes our memory, nor changes this process.
    outcome(unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], 0, 0) })
}

const UNKNOWN_CAPABILITY: libc::c_long = 63;

#[cfg(test)]
fn test_call(call: TestCall) -> (libc::c_long, [libc::c_long; 4]) {
    const INVALID: libc::c_long = -1;
    match call {
        TestCall::Clone => (libc::SYS_clone, [libc::CLONE_SIGHAND.into(), 0, 0, 0]),
        TestCall::Execveat => (libc::SYS_execveat, [INVALID, 0, 0, 0]),
        TestCall::Ptrace => (libc::SYS_ptrace, [INVALID, 0, 0, 0]),
        TestCall::ProcessVmReadv => (libc::SYS_process_vm_readv, [0; 4]),
        TestCall::PidfdOpen => (libc::SYS_pidfd_open, [0, INVALID, 0, 0]),
        TestCall::IoUringSetup => (libc::SYS_io_uring_setup, [0; 4]),
        TestCall::Unshare => (libc::SYS_unshare, [0; 4]),
        TestCall::Setns => (libc::SYS_setns, [INVALID, 0, 0, 0]),
        TestCall::Mount => (libc::SYS_mount, [0; 4]),
        TestCall::Bpf => (libc::SYS_bpf, [INVALID, 0, 0, 0]),
        TestCall::Keyctl => (libc::SYS_keyctl, [INVALID, 0, 0, 0]),
        TestCall::MemfdCreate => (libc::SYS_memfd_create, [0; 4]),
        TestCall::PerfEventOpen => (libc::SYS_perf_event_open, [0; 4]),
        TestCall::Userfaultfd => (libc::SYS_userfaultfd, [INVALID, 0, 0, 0]),
        TestCall::OpenByHandleAt => (libc::SYS_open_by_handle_at, [INVALID, 0, 0, 0]),
        TestCall::Kill => (libc::SYS_kill, [0; 4]),
        TestCall::Tgkill => (libc::SYS_tgkill, [INVALID, INVALID, 0, 0]),
        TestCall::Prctl => (libc::SYS_prctl, [libc::PR_GET_DUMPABLE.into(), 0, 0, 0]),
        TestCall::Prlimit => (libc::SYS_prlimit64, [0; 4]),
        TestCall::Fchmod => (libc::SYS_fchmod, [INVALID, 0o4755, 0, 0]),
        TestCall::Fsetxattr => (libc::SYS_fsetxattr, [INVALID, 0, 0, 0]),
        TestCall::TiocstiIoctl => (libc::SYS_ioctl, [INVALID, 0x5412, 0, 0]),
        TestCall::SetOwnFcntl => (libc::SYS_fcntl, [INVALID, libc::F_SETOWN.into(), 0, 0]),
        TestCall::IgnoreInterrupt => (libc::SYS_rt_sigaction, [libc::SIGURG.into(), 0, 0, 8]),
        TestCall::Personality => (libc::SYS_personality, [0xffff_ffff, 0, 0, 0]),
        TestCall::MadviseOther => (libc::SYS_process_madvise, [INVALID, 0, 0, libc::MADV_DONTNEED.into()]),
        TestCall::MadviseSelf => (libc::SYS_process_madvise, [-10_000, 0, 0, libc::MADV_DONTNEED.into()]),
        TestCall::PrlimitOther => (libc::SYS_prlimit64, [i32::MAX.into(), 0, 0, 0]),
        TestCall::ReniceOther => (libc::SYS_setpriority, [0, i32::MAX.into(), 0, 0]),
        TestCall::PidfdGetfd => (libc::SYS_pidfd_getfd, [INVALID, INVALID, 0, 0]),
        // With size 0 no segment is ever created.
        TestCall::ShmGet => (libc::SYS_shmget, [0; 4]),
        // `CLONE_NEWUSER` with `CLONE_THREAD`, which no kernel accepts.
        TestCall::CloneNamespace => {
            (libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::CLONE_THREAD).into(), 0, 0, 0])
        }
        TestCall::PagemapScan => (libc::SYS_ioctl, [INVALID, 0xc060_6610, 0, 0]),
    }
}

/// Maps one anonymous page with the protection `map_prot`, changes it to `new_prot` if given, and unmaps the
/// page. Returns the outcome of the last step before the unmapping.
#[cfg(test)]
pub(crate) fn attempt_page(map_prot: libc::c_int, new_prot: Option<libc::c_int>) -> SyscallOutcome {
    const PAGE_BYTES: usize = 4096;
    // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no memory of ours.
    let page = unsafe {
        libc::mmap(ptr::null_mut(), PAGE_BYTES, map_prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return outcome(-1);
    }
    let result = match new_prot {
        // SAFETY: the page was mapped above and no other code knows its address.
        Some(protection) => outcome(unsafe { libc::mprotect(page, PAGE_BYTES, protection) }.into()),
        None => SyscallOutcome::Succeeded,
    };
    // SAFETY: as above; nothing refers to the page after this.
    unsafe { libc::munmap(page, PAGE_BYTES) };
    result
}

/// Returns the kernel's Landlock version.
pub(crate) fn landlock_abi() -> io::Result<u32> {
    const CREATE_RULESET_VERSION: libc::c_long = 1;
    // SAFETY: with this flag the call takes a null pointer and size 0, and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_negative| io::Error::last_os_error())
}

/// Returns whether the kernel supports filters that answer with an `errno`.
pub(crate) fn seccomp_errno_available() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one u32, which outlives it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Installs a filter for the calling thread, and returns the listener of the calls that it passes on
/// (seccomp_unotify(2)).
pub(crate) fn install_listening_filter(program: &[seccompiler::sock_filter]) -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k })
        .collect();
    let len = libc::c_ushort::try_from(instructions.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which outlives the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let listener = i32::try_from(listener).ok().filter(|listener| *listener >= 0);
    let listener = listener.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    // The kernel sets `FD_CLOEXEC` on it.
    Ok(listener)
}

/// Tells the kernel that a listener's thread and the calling thread wait for each other, so that it wakes one
/// where the other ran. A kernel before 6.6 does not know the flag.
pub(crate) fn wake_notified_in_turn(listener: BorrowedFd<'_>) -> io::Result<()> {
    // The kernel takes the flags by value.
    // SAFETY: the call reads no memory.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` of `linux/seccomp.h`.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// Waits for a call that a filter has passed on to its listener.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<libc::seccomp_notif> {
    // SAFETY: all-zero bytes are a valid notification, and the kernel demands them.
    let mut notification: libc::seccomp_notif = unsafe { mem::zeroed() };
    // SAFETY: `notification` is valid for writing, and has the size of the request.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notification) }
    {
        0 => Ok(notification),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether a call still waits for its answer.
pub(crate) fn is_notification_pending(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the number, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a call: fails it with an error, or lets the kernel execute it.
pub(crate) fn answer_notification(
    listener: BorrowedFd<'_>,
    id: u64,
    error: Option<libc::c_int>,
) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "the flag is 1")]
    let go_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: error.map_or(0, |error| -error),
        flags: if error.is_some() { 0 } else { go_on },
    };
    // SAFETY: the kernel reads the answer, which outlives the call.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The owner of a signal's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// The default action or "ignore".
    Unset,
    /// [`install_empty_handler`] of this process.
    Ours,
    /// The application's handler.
    Foreign,
}

/// Queries the owner of `signal`'s handler.
pub(crate) fn signal_handler(signal: libc::c_int) -> io::Result<Handler> {
    // SAFETY: all-zero bytes are a valid `sigaction`: integers, and an optional function pointer.
    let mut current: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null new action only queries; `current` is valid for writing.
    if unsafe { libc::sigaction(signal, ptr::null(), &raw mut current) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match current.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => Handler::Unset,
        address if address == empty_handler_address() => Handler::Ours,
        _ => Handler::Foreign,
    })
}

/// Installs a handler that does nothing, so that `signal` only ends the system call that it interrupts.
pub(crate) fn install_empty_handler(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = empty_handler_address();
    // No `SA_RESTART`, because the purpose is to end the call. `SA_ONSTACK`, because the signal can hit a thread that
    // runs a guest on one of wasmtime's small stacks, where the kernel's frame (up to 11 KiB with AMX) could reach the
    // guard page. Rust and wasmtime give every thread an alternate stack.
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: `action` is initialized, its mask is empty, and the handler is async-signal-safe: it is empty.
    if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Installs a handler that is not this crate's, as an application would.
#[cfg(test)]
pub(crate) fn install_foreign_handler(signal: libc::c_int) {
    extern "C" fn foreign_handler(signal: libc::c_int) {
        // The code must differ from the empty handler: the linker may merge equal functions, and this handler
        // would then count as ours.
        std::hint::black_box(signal);
    }
    let address = foreign_handler as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t;
    // SAFETY: the handler touches only its own argument.
    unsafe { libc::signal(signal, address) };
}

/// Unblocks `signal` on the calling thread, because a blocked signal would stay pending and interrupt nothing.
pub(crate) fn unblock_on_this_thread(signal: libc::c_int) {
    // SAFETY: all-zero bytes are a valid, empty set; the calls write to it and read it, and no more.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

/// Sends `signal` to one thread of this process. A thread that is gone is not an error. The thread is
/// identified by the kernel's id, because using a `pthread_t` after the thread's end is undefined behaviour.
pub(crate) fn signal_thread(thread: libc::pid_t, signal: libc::c_int) {
    // SAFETY: `tgkill` takes three integers. The process id is read again here, so no thread of another
    // process can be hit, even if it got the number of an ended thread.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// The side of a [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawForkSide {
    /// The calling process, with the child's id.
    Parent(libc::pid_t),
    /// The new process.
    Child,
}

/// Forks this process. The token makes this safe: there is no other thread that could hold a lock, and the
/// child may do everything that its parent may.
pub(crate) fn fork(_one_thread: &SingleThreaded) -> io::Result<RawForkSide> {
    // SAFETY: the process has one thread, see above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(RawForkSide::Child),
        child => Ok(RawForkSide::Parent(child)),
    }
}

/// Returns whether two processes share one address space, as after `vfork` (kcmp(2), `KCMP_VM`). `None` if
/// the kernel does not tell.
pub(crate) fn share_memory(first: libc::pid_t, second: libc::pid_t) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    share_resource(KCMP_VM, first, second)
}

/// Returns whether two processes or threads share one descriptor table (kcmp(2), `KCMP_FILES`). `None` if the
/// kernel does not tell.
pub(crate) fn share_descriptors(first: libc::pid_t, second: libc::pid_t) -> Option<bool> {
    const KCMP_FILES: libc::c_int = 2;
    share_resource(KCMP_FILES, first, second)
}

/// Returns whether two processes share a resource of a kind that needs no further arguments (kcmp(2)). A
/// process that is gone shares none.
fn share_resource(kind: libc::c_int, first: libc::pid_t, second: libc::pid_t) -> Option<bool> {
    // SAFETY: only numbers are passed, and no memory is touched.
    match unsafe { libc::syscall(libc::SYS_kcmp, first, second, kind, 0, 0) } {
        0 => Some(true),
        // `EPERM`, or `ENOSYS` without `kcmp`: the kernel does not tell.
        -1 if io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH) => None,
        _ => Some(false),
    }
}

/// Changes the effective user and group of only the calling thread. The real and the saved ids stay.
///
/// The file system ids would not be enough: the effective user decides whether a user namespace belongs to
/// the caller, and therefore whether the caller may inspect the processes in it (`cap_capable`).
pub(crate) fn become_user_of_thread(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<()> {
    const UNCHANGED: libc::c_long = -1;
    let check = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the calls take numbers. As raw system calls they change only the calling thread, whereas the C
    // library's functions change all threads.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, UNCHANGED, libc::c_ulong::from(gid), UNCHANGED))?;
        check(libc::syscall(libc::SYS_setresuid, UNCHANGED, libc::c_ulong::from(uid), UNCHANGED))
    }
}

/// Gives the calling thread the lowest real-time priority.
pub(crate) fn schedule_in_real_time() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads one structure, which outlives it.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a forked process immediately, without running the parent's cleanup or writing the parent's buffers.
pub(crate) fn exit(code: libc::c_int) -> ! {
    // SAFETY: the call takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: libc::c_uint, _one_thread: &SingleThreaded) -> io::Result<()> {
    // SAFETY: the call takes three integers. By its contract, no value in this process owns the closed
    // descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A child that has ended, with its id, its raw wait status, and its resource usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReapedChild {
    pub(crate) pid: libc::pid_t,
    pub(crate) status: libc::c_int,
    pub(crate) usage: libc::rusage,
}

/// Waits for any child. Returns `None` if no child is left.
pub(crate) fn wait_for_any_child() -> io::Result<Option<ReapedChild>> {
    loop {
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid `rusage`, a struct of integers.
        let mut usage: libc::rusage = unsafe { mem::zeroed() };
        // SAFETY: both variables are valid for writing and outlive the call.
        let pid = unsafe { libc::wait4(-1, &raw mut status, 0, &raw mut usage) };
        if pid > 0 {
            return Ok(Some(ReapedChild { pid, status, usage }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// Moves the calling process, which has one thread, or its future children, into new namespaces.
pub(crate) fn unshare(
    namespaces: rustix::thread::UnshareFlags,
    _one_thread: &SingleThreaded,
) -> io::Result<()> {
    // Only unsharing the descriptor table is unsafe. No caller requests it, but exclude it in any case.
    let namespaces = namespaces.difference(rustix::thread::UnshareFlags::FILES);
    // SAFETY: no descriptor table is unshared, and there is no other thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(namespaces) }?)
}

/// Removes a variable from the environment, and overwrites its value in place: `/proc/PID/environ` shows the memory of
/// the text that the program started with, even after the list of variables has changed.
pub(crate) fn take_variable(name: &str, _one_thread: &SingleThreaded) -> Option<Vec<u8>> {
    let text = CString::new(name).ok().filter(|_| !name.is_empty() && !name.contains('='))?;
    // SAFETY: the name is a C string. There is no other thread that reads or changes the environment. The value that
    // `getenv` finds is a C string, which belongs to the program and may be written up to its end (POSIX, environ).
    unsafe {
        let value = libc::getenv(text.as_ptr());
        if value.is_null() {
            return None;
        }
        let bytes = CStr::from_ptr(value).to_bytes().to_vec();
        for offset in 0..bytes.len() {
            // Volatile: no code reads the bytes again, so the compiler could otherwise omit the write.
            ptr::write_volatile(value.add(offset), 0);
        }
        std::env::remove_var(name);
        Some(bytes)
    }
}

/// The scope of a change to mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountDepth {
    /// One mount.
    One,
    /// This mount and all mounts below it.
    All,
}

/// Sets attributes of a mount. They cannot be cleared again.
pub(crate) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: u64,
    depth: MountDepth,
) -> io::Result<()> {
    change_mount(mount, libc::mount_attr { attr_set: attributes, ..NO_CHANGE }, depth)
}

/// Maps the owners of the files of a mount, and of all mounts below it, as a user namespace maps them.
pub(crate) fn map_mount(mount: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::try_from(map.as_raw_fd()).map_err(io::Error::other)?;
    let attr_set = u64::from(rustix::mount::MountAttrFlags::MOUNT_ATTR_IDMAP.bits());
    change_mount(mount, libc::mount_attr { attr_set, userns_fd, ..NO_CHANGE }, MountDepth::All)
}

const NO_CHANGE: libc::mount_attr =
    libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };

fn change_mount(mount: BorrowedFd<'_>, change: libc::mount_attr, depth: MountDepth) -> io::Result<()> {
    let recursive = if depth == MountDepth::All { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid empty string, the size is that of `change`, and both outlive the call,
    // which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A page of System V shared memory. It exists until this value is dropped or this process ends.
#[derive(Debug)]
pub(crate) struct SharedPage {
    id: libc::c_int,
    address: *mut libc::c_void,
}

impl SharedPage {
    pub(crate) fn create() -> io::Result<Self> {
        // SAFETY: the calls take integers; the null address lets the kernel choose a free place, and the new
        // mapping touches no memory of ours.
        unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600);
            if id == -1 {
                return Err(io::Error::last_os_error());
            }
            let address = libc::shmat(id, ptr::null(), libc::SHM_RDONLY);
            let error = io::Error::last_os_error();
            // Mark for removal now: the kernel then removes the segment as soon as no process has it mapped.
            libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
            if address.addr() == usize::MAX { Err(error) } else { Ok(Self { id, address }) }
        }
    }

    /// Queries the page by its id.
    pub(crate) fn find(&self) -> SyscallOutcome {
        // SAFETY: all-zero bytes are a valid `shmid_ds`, a struct of integers; the kernel writes one there.
        let result = unsafe {
            let mut segment_info: libc::shmid_ds = mem::zeroed();
            libc::shmctl(self.id, libc::IPC_STAT, &raw mut segment_info)
        };
        outcome(result.into())
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the address is that of our mapping, to which no reference exists.
        unsafe { libc::shmdt(self.address) };
    }
}

extern "C" fn empty_handler(_signal: libc::c_int) {}

fn empty_handler_address() -> libc::sighandler_t {
    empty_handler as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t
}

fn outcome(result: libc::c_long) -> SyscallOutcome {
    if result == -1 {
        SyscallOutcome::Failed(io::Error::last_os_error().raw_os_error().unwrap_or_default())
    } else {
        SyscallOutcome::Succeeded
    }
}
