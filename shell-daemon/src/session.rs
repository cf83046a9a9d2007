//! A session as the daemon holds it: started, used for one command at a time, ended with all its processes.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_confine::{PathAccess, ProcessPosture, ProcessUser};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::Pid,
    thread::CapabilitySet,
};

use crate::{
    Chunk, CommandEnd, CommandRequest, SessionSpec, ShellError,
    background::Background,
    entry::ENTRY,
    limits::{COMMAND_BYTES, KILL_TIME, LEAST_DESCRIPTORS, SNAPSHOT_BYTES, START_TIME},
    prepared::{Prepared, Streams},
    running::{Finished, Running},
    tree::{self, Process},
    wire::{self, FromSession, Setup, ToSession},
};

/// A confined shell that keeps its state. Dropping it ends all its processes.
#[derive(Debug)]
pub struct ShellSession {
    guard: Child,
    /// `None` once the session has ended.
    control: Option<OwnedFd>,
    session_init: Process,
    posture: ProcessPosture,
    user: Option<ProcessUser>,
    background: Background,
    /// For the next command; `None` where it could not be had.
    prepared: Option<Prepared>,
}

impl ShellSession {
    /// Starts a session and waits until it has confined itself and seen each layer refuse something.
    ///
    /// # Errors
    /// If the specification cannot be met, the process cannot be started, or a layer does not hold. Then
    /// no process is left.
    pub fn start(spec: &SessionSpec) -> Result<Self, ShellError> {
        require_limits(spec)?;
        let (setup, handles) = setup(spec)?;
        let (control, theirs) = wire::pair().map_err(|source| ShellError::Start { source })?;
        let guard = launch(&spec.launcher, theirs).map_err(|source| ShellError::Start { source })?;
        let mut guard = Some(guard);
        let result = introduce(&control, &setup, &handles).and_then(|(process, posture)| {
            let session_init = guard
                .as_ref()
                .and_then(|guard| Pid::from_raw(i32::try_from(guard.id()).ok()?))
                .and_then(|parent| Process::child_of(parent, process))
                .ok_or(ShellError::SessionEnded)?;
            let guard = guard.take().ok_or(ShellError::SessionEnded)?;
            Ok((guard, session_init, posture))
        });
        match result {
            Ok((guard, session_init, posture)) => Ok(Self {
                prepared: prepare(control.as_fd(), setup.user).ok(),
                guard,
                control: Some(control),
                session_init,
                posture,
                user: setup.user,
                background: Background::default(),
            }),
            Err(error) => {
                drop(control);
                if let Some(mut guard) = guard {
                    bury(&mut guard)?;
                }
                Err(error)
            }
        }
    }

    /// What the session proved to be confined by.
    #[must_use]
    pub fn posture(&self) -> &ProcessPosture {
        &self.posture
    }

    /// Whom the session's processes belong to, if that is not whom this one belongs to: a daemon that is root
    /// becomes the owner of the session's home.
    #[must_use]
    pub fn user(&self) -> Option<ProcessUser> {
        self.user
    }

    /// The last of what background jobs wrote after their commands had ended, at most 64 KiB.
    #[must_use]
    pub fn background_output(&self) -> Vec<u8> {
        self.background.output()
    }

    /// Runs a command in the state that the last one left, and hands on its output as it comes. It is run
    /// once, whatever happens.
    ///
    /// # Cancellation
    /// By [`CommandRequest::cancellation`], from another thread: within a second nothing of the command is
    /// left, and the session lives on.
    ///
    /// # Errors
    /// Only what kept the shell from running or the session from telling how it ended. After
    /// [`ShellError::SessionEnded`] the session is of no use.
    pub fn run(
        &mut self,
        request: &CommandRequest,
        on_output: &mut dyn FnMut(Chunk<'_>),
    ) -> Result<CommandEnd, ShellError> {
        require_command(&request.command)?;
        require_command(request.workdir.as_deref().unwrap_or_default())?;
        self.background.require_room()?;
        let mut result = self.attempt(request, on_output);
        if let Ok(Finished::NotBegun) = result {
            // Only a shell that has waited for long is killed by others before it begins; this one is new.
            result = self.attempt(request, on_output);
        }
        let result = result.and_then(|finished| match finished {
            Finished::Ended(end) => Ok(end),
            Finished::NotBegun => Err(ShellError::NotStarted {
                reason: "the shell was killed before the command began".to_owned(),
            }),
        });
        if let Err(error) = &result
            && !leaves_session(error)
        {
            self.end_all()?;
        }
        result
    }

    /// Runs a command in the shell that waits, or in a new one.
    fn attempt(
        &mut self,
        request: &CommandRequest,
        on_output: &mut dyn FnMut(Chunk<'_>),
    ) -> Result<Finished, ShellError> {
        let control = self.control.as_ref().ok_or(ShellError::SessionEnded)?.as_fd();
        let mut waiting = self.prepared.take();
        if waiting.as_mut().is_some_and(|prepared| !prepared.is_usable(self.session_init)) {
            waiting = None;
        }
        let prepared = waiting.map_or_else(|| prepare(control, self.user), Ok)?;
        let running = Running::start(prepared, self.session_init, request)?;
        // While the command runs; the shell itself is started when the state is known.
        let streams = Streams::new(self.user);
        let finished = running.finish(request, &self.background, on_output)?;
        self.prepared = streams.and_then(|streams| streams.send(control)).ok();
        Ok(finished)
    }

    /// Ends the session and everything that it started, background jobs included.
    ///
    /// # Errors
    /// [`ShellError::NotKilled`] if something is left.
    pub fn end(mut self) -> Result<(), ShellError> {
        self.end_all()
    }

    fn end_all(&mut self) -> Result<(), ShellError> {
        if self.control.take().is_none() {
            return Ok(());
        }
        // The end of the control socket is what ends them, here as when this process is killed.
        let buried = bury(&mut self.guard);
        if self.session_init.is_alive() {
            // The guard itself is gone too early. What is below the session's first process is killed
            // from here.
            let _ = tree::kill_below(self.session_init, KILL_TIME);
            self.session_init.kill();
        }
        buried
    }
}

impl Drop for ShellSession {
    fn drop(&mut self) {
        // Nobody is left to tell; `end` tells.
        let _ = self.end_all();
    }
}

/// Asks for a shell. What keeps it from starting is told by its report.
fn prepare(control: BorrowedFd<'_>, user: Option<ProcessUser>) -> Result<Prepared, ShellError> {
    Streams::new(user).and_then(|streams| streams.send(control))
}

fn leaves_session(error: &ShellError) -> bool {
    matches!(error, ShellError::NotStarted { .. })
}

#[expect(clippy::disallowed_methods, reason = "this crate is where the session's process is started")]
fn launch(launcher: &Path, control: OwnedFd) -> io::Result<Child> {
    Command::new(launcher)
        .arg(ENTRY)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Tells the session what it is, and hears whether it is so.
fn introduce(
    control: &OwnedFd,
    setup: &Setup,
    handles: &[OwnedFd],
) -> Result<(Pid, ProcessPosture), ShellError> {
    let handles: Vec<BorrowedFd<'_>> = handles.iter().map(|handle| handle.as_fd()).collect();
    wire::send(control.as_fd(), &ToSession::Setup(setup.clone()), &handles).map_err(ShellError::channel)?;
    let time =
        Timespec::try_from(START_TIME).map_err(|error| ShellError::channel(io::Error::other(error)))?;
    let ready = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&time)).map_err(ShellError::channel)?;
    if ready == 0 {
        return Err(ShellError::NotConfined { reason: "it did not answer in time".to_owned() });
    }
    match wire::receive(control.as_fd()).map_err(ShellError::channel)? {
        Some((FromSession::Ready { process, posture }, _)) => {
            let process = Pid::from_raw(process).ok_or(ShellError::SessionEnded)?;
            Ok((process, posture))
        }
        Some((FromSession::Refused { reason }, _)) => Err(ShellError::NotConfined { reason }),
        None => Err(ShellError::NotConfined { reason: "it ended without a word".to_owned() }),
    }
}

/// Waits for a guard whose control socket is closed.
fn bury(guard: &mut Child) -> Result<(), ShellError> {
    let deadline = Instant::now() + 2 * KILL_TIME;
    loop {
        match guard.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            // It could not look at processes, or was killed itself.
            Ok(Some(_)) => return Err(ShellError::NotKilled { left: 1 }),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            // It goes on, and must not be killed: nobody else would.
            Ok(None) => return Err(ShellError::NotKilled { left: 1 }),
            Err(source) => return Err(ShellError::Processes { source }),
        }
    }
}

fn require_limits(spec: &SessionSpec) -> Result<(), ShellError> {
    for (limit, value, least) in [
        ("the limit of descriptors", spec.limits.descriptors, LEAST_DESCRIPTORS),
        // The snapshot is a file.
        ("the limit of file sizes", spec.limits.file_bytes, SNAPSHOT_BYTES),
    ] {
        if value < least {
            return Err(ShellError::LimitTooLow { limit, least });
        }
    }
    Ok(())
}

fn require_command(command: &str) -> Result<(), ShellError> {
    if command.len() > COMMAND_BYTES {
        return Err(ShellError::CommandUnusable { problem: "is longer than 1 MiB" });
    }
    if command.contains('\0') {
        return Err(ShellError::CommandUnusable { problem: "holds a NUL, which no shell can read" });
    }
    Ok(())
}

/// What the session is told, and the handles that go with it: the canary's first.
fn setup(spec: &SessionSpec) -> Result<(Setup, Vec<OwnedFd>), ShellError> {
    let canary = spec.canary.state_dir().try_clone_to_owned();
    let mut handles = vec![canary.map_err(|source| ShellError::Start { source })?];
    let mut accesses = Vec::new();
    for mount in &spec.mounts {
        handles.push(open_mount(&mount.path)?);
        accesses.push(mount.access);
    }
    let system = SYSTEM.iter().map(|path| (path, PathAccess::Read));
    let devices = DEVICES.iter().map(|path| (path, PathAccess::Device));
    for (path, access) in system.chain(devices) {
        // Not every machine has all of them, and none is missed that is not there.
        if let Ok(handle) = rustix::fs::open(*path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            handles.push(handle);
            accesses.push(access);
        }
    }
    let home = spec.mounts.iter().find(|mount| mount.name == spec.home);
    let home = home.ok_or_else(|| ShellError::HomeUnknown { name: spec.home.clone() })?.path.clone();
    let environment = environment(spec, &home);
    let user = owner_instead_of_root(&home)?;
    Ok((Setup { accesses, limits: spec.limits, user, environment, home }, handles))
}

/// Root without capabilities is a stranger in somebody else's workspace, and what it makes there would be
/// root's. `None` where this process is not root, or may not become somebody else and kill it afterwards.
fn owner_instead_of_root(home: &Path) -> Result<Option<ProcessUser>, ShellError> {
    let open_error = |source| ShellError::MountOpen { path: home.to_owned(), source };
    let owner = rustix::fs::stat(home).map_err(|errno| open_error(errno.into()))?;
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL | CapabilitySet::CHOWN;
    let has_all =
        rustix::thread::capabilities(None).is_ok_and(|capabilities| capabilities.effective.contains(needed));
    let becomes = rustix::process::geteuid().is_root() && has_all && owner.st_uid != 0;
    Ok(becomes.then_some(ProcessUser { uid: owner.st_uid, gid: owner.st_gid }))
}

fn environment(spec: &SessionSpec, home: &Path) -> Vec<(String, String)> {
    let mut environment = vec![
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned()),
        ("HOME".to_owned(), home.display().to_string()),
        ("TERM".to_owned(), "dumb".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    for mount in &spec.mounts {
        let place = mount.path.display().to_string();
        if mount.name == "tmp" {
            environment.push(("TMPDIR".to_owned(), place.clone()));
        }
        environment.push((format!("PORTCULLIS_{}", mount.name.to_ascii_uppercase()), place));
    }
    environment.extend(spec.environment.iter().cloned());
    environment
}

fn open_mount(path: &Path) -> Result<OwnedFd, ShellError> {
    let open_error = |source| ShellError::MountOpen { path: path.to_owned(), source };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| open_error(errno.into()))?;
    let identity = |handle: &File| {
        handle.metadata().map(|data| {
            use std::os::unix::fs::MetadataExt as _;
            (data.dev(), data.ino())
        })
    };
    let file = File::from(handle);
    let mount = identity(&file).map_err(open_error)?;
    for wide in TOO_WIDE {
        let Ok(folder) = rustix::fs::open(wide, flags - OFlags::NOFOLLOW, Mode::empty()) else { continue };
        if identity(&File::from(folder)).is_ok_and(|folder| folder == mount) {
            return Err(ShellError::MountTooWide { path: path.to_owned() });
        }
    }
    Ok(file.into())
}

/// Read and run, never written. Of `/etc` only what programs look up and everybody may know.
const SYSTEM: [&str; 22] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/ssl/certs",
];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Folders that hold more than any workspace.
const TOO_WIDE: [&str; 9] = ["/", "/home", "/run", "/proc", "/sys", "/dev", "/etc", "/root", "/var"];
