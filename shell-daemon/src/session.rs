//! A session on the daemon's side: started, used for one command at a time, ended with all its processes.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use portcullis_confine::{ControlGroup, Layer, LayerStatus, ProcessPosture, ProcessUser};
use portcullis_types::ShellPosture;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use crate::{
    BackgroundOutput, Cancellation, CommandEnd, CommandRequest, Completion, Ending, Interruption,
    OutputChunk, OutputStream, PostureChoice, SessionPosture, SessionSpec, ShellError, StateAfter,
    background::Background,
    inside::ENTRY,
    kill_stall::{StallDetector, Survivors},
    limits::{COMMAND_BYTES, KILL_TIME, LEAST_DESCRIPTORS, LONGEST_KILL, SNAPSHOT_BYTES, START_TIME},
    memory::{DescriptorSearch, MemoryMeter},
    prepared::{PreparedShell, ShellStreams},
    protected::ProtectedScanner,
    running::{CommandOutcome, RunningCommand},
    setup::setup,
    tree::{self, Process},
    watch::{SessionBounds, Watcher},
    wire::{self, FromSession, LayerPlan, SessionReady, SessionSetup, ToSession},
};

/// A confined shell that keeps its state. Dropping it ends all its processes.
#[derive(Debug)]
pub struct ShellSession {
    guard: Child,
    /// `None` once the session has ended.
    control: Option<OwnedFd>,
    session_init: Process,
    posture: SessionPosture,
    has_tree: bool,
    read_only: usize,
    protected: ProtectedScanner,
    /// Removed by its drop, after all its processes have ended.
    _group: Option<ControlGroup>,
    user: Option<ProcessUser>,
    watcher: Watcher,
    background: Background,
    /// The shell for the next command; `None` if it could not be started ahead.
    prepared: Option<PreparedShell>,
    listener: Option<OwnedFd>,
    network_absence: Option<String>,
}

impl ShellSession {
    /// Starts a session and waits until it has confined itself and each layer was seen to refuse something.
    ///
    /// Each start tries which layers work here. Where namespaces can be entered but not used, a second
    /// process is started without them. If the posture is too weak then, the session is ended.
    ///
    /// # Errors
    /// If the specification cannot be met, the process cannot be started, or a layer does not hold;
    /// [`ShellError::PostureUnavailable`] if the posture reached is weaker than the required one. No process
    /// is left then.
    pub fn start(spec: &SessionSpec) -> Result<Self, ShellError> {
        require_limits(spec)?;
        let (least, plan) = plan(spec);
        let session = match Self::begin(spec, plan) {
            Err(ShellError::NamespacesUnusable { reason }) => {
                let status = LayerStatus::Missing { reason };
                let plan =
                    LayerPlan::Layers { waived: spec.waived.clone(), without_namespaces: Some(status) };
                Self::begin(spec, plan)?
            }
            result => result?,
        };
        if session.posture.level() < least {
            let (reached, lacking) = (session.posture.level(), session.posture.lacks(least));
            session.end()?;
            return Err(ShellError::PostureUnavailable { least, reached, lacking });
        }
        Ok(session)
    }

    fn begin(spec: &SessionSpec, plan: LayerPlan) -> Result<Self, ShellError> {
        let protected = ProtectedScanner::new(spec)?;
        let group = group(spec, &plan);
        let to_prove = group.as_ref().map_err(LayerStatus::clone).and_then(|group| {
            group.to_prove().map_err(|error| LayerStatus::Missing { reason: error.to_string() })
        });
        let (setup, handles) = setup(spec, plan, protected.places(), to_prove)?;
        let (control, guard_end) = wire::pair().map_err(|source| ShellError::Start { source })?;
        let mut guard = launch(&spec.launcher, guard_end).map_err(|source| ShellError::Start { source })?;
        let guard_pid = number_of(&guard);
        if let (Ok(group), Some(guard)) = (&group, guard_pid) {
            // Added before the setup is sent, so that everything it starts is in the group. An error is
            // ignored: the session finds out by itself that it is not in the group.
            let _ = group.add(guard);
        }
        let result = introduce(&control, &setup, &handles).and_then(|(process, ready, listener)| {
            let session_init = guard_pid
                .and_then(|parent| Process::child_of(parent, process))
                .ok_or(ShellError::SessionEnded)?;
            Ok((session_init, ready, listener))
        });
        let result = result.and_then(|(process, ready, listener)| {
            let watcher =
                watcher(spec, &ready.posture, ready.user).map_err(|source| ShellError::Start { source })?;
            Ok((process, ready, watcher, listener))
        });
        match result {
            Ok((session_init, ready, watcher, listener)) => Ok(Self {
                prepared: prepare(control.as_fd(), ready.user).ok(),
                guard,
                control: Some(control),
                session_init,
                posture: SessionPosture::new(ready.posture, spec.posture),
                user: ready.user,
                has_tree: ready.has_tree,
                read_only: ready.protected,
                protected,
                _group: group.ok(),
                watcher,
                background: Background::default(),
                listener,
                network_absence: ready.network.and_then(Result::err),
            }),
            Err(error) => {
                drop(control);
                reap_guard(&mut guard)?;
                Err(error)
            }
        }
    }

    /// Whether the session has its own file tree, with the mounts at `/NAME`. Otherwise they are at their
    /// real paths.
    #[must_use]
    pub fn has_own_tree(&self) -> bool {
        self.has_tree
    }

    /// How many protected paths that existed at the start are read-only for the session; 0 without its own
    /// file tree.
    #[must_use]
    pub fn read_only_paths(&self) -> usize {
        self.read_only
    }

    /// The listener by which the session's programs ask for tunnels, once; `None` for a session without a network.
    /// Other processes of the machine cannot connect to it.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take()
    }

    /// The reason why the session has no network, if it was to get one.
    #[must_use]
    pub fn network_absence(&self) -> Option<&str> {
        self.network_absence.as_deref()
    }

    /// The posture that the session proved.
    #[must_use]
    pub fn posture(&self) -> &SessionPosture {
        &self.posture
    }

    /// The owner of the session's processes, if it is not this process's user. Where a daemon is root and the
    /// session has its own file tree, it is a user that no other process has, and to whom the files below the
    /// mounts appear to belong; otherwise it is the owner of the session's home.
    #[must_use]
    pub fn user(&self) -> Option<ProcessUser> {
        self.user
    }

    /// Output of background jobs after their commands had ended, from position `from` on: 0, or `end` of the
    /// last answer. At most 64 KiB are kept.
    #[must_use]
    pub fn background_output(&self, from: u64) -> BackgroundOutput {
        self.background.since(from)
    }

    /// Runs a test command to prove that the program called bash is bash: it starts, does what only bash
    /// does, and writes its state. The command leaves the session's state unchanged. Warnings are ignored.
    ///
    /// # Errors
    /// [`ShellError::ShellUnusable`], and those of [`Self::run`].
    pub fn prove_shell(&mut self) -> Result<(), ShellError> {
        let unusable = |reason: String| ShellError::ShellUnusable { reason };
        let (cancellation, _canceller) = Cancellation::new().map_err(ShellError::channel)?;
        let request = CommandRequest {
            command: PROOF.to_owned(),
            workdir: None,
            stdin: Vec::new(),
            input: None,
            timeout: PROOF_TIME,
            max_processes: usize::MAX,
            max_output_bytes: PROOF_BYTES,
            cancellation,
        };
        let (mut output, mut warnings) = (Vec::new(), Vec::new());
        // Warnings are collected apart: bash may complain before it does anything, such as of a locale that
        // is not installed.
        let mut take = |chunk: OutputChunk<'_>| match chunk.stream {
            OutputStream::Stdout => output.extend_from_slice(chunk.bytes),
            OutputStream::Stderr => warnings.extend_from_slice(chunk.bytes),
        };
        let end = self.run(&request, &mut take).map_err(|error| match error {
            ShellError::NotStarted { reason } => unusable(reason),
            error => error,
        })?;
        match end.completion {
            Completion::Whole => {}
            Completion::Interrupted(Interruption::Timeout) => {
                return Err(unusable(format!("it did not answer within {PROOF_TIME:?}")));
            }
            Completion::Interrupted(interruption) => {
                return Err(unusable(format!("it was killed: {interruption:?}")));
            }
        }
        if end.ending != Ending::Code(0) || output != PROVEN {
            let printed = [output, warnings].concat();
            let quoted = String::from_utf8_lossy(&printed[..printed.len().min(QUOTED_PROOF_BYTES)])
                .escape_debug()
                .to_string();
            return Err(unusable(format!(
                "it is not bash of version 4.4 or later: {:?}, it printed \"{quoted}\"",
                end.ending
            )));
        }
        if end.state != StateAfter::Saved {
            return Err(unusable("it did not write down its state".to_owned()));
        }
        Ok(())
    }

    /// Runs a command in the state that the last one left, and hands on its output as it comes. The command
    /// is never run twice.
    ///
    /// # Cancellation
    /// Cancel with [`CommandRequest::cancellation`] from another thread: the command is killed and this
    /// returns when all its processes are gone, usually within a second. The session lives on.
    ///
    /// # Errors
    /// Only if the shell could not run or the session could not tell how it ended. After
    /// [`ShellError::SessionEnded`] the session is unusable.
    pub fn run(
        &mut self,
        request: &CommandRequest,
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<CommandEnd, ShellError> {
        require_command(&request.command)?;
        require_command(request.workdir.as_deref().unwrap_or_default())?;
        self.background.require_room()?;
        let mut result = self.attempt(request, on_output);
        if let Ok(CommandOutcome::NotBegun) = result {
            // Retry once. Only a shell that has waited for long is killed by others before its command
            // begins; this one is new.
            result = self.attempt(request, on_output);
        }
        let result = result.and_then(|finished| match finished {
            CommandOutcome::Ended(end) => Ok(CommandEnd { protected: self.protected.scan(), ..end }),
            CommandOutcome::NotBegun => {
                Err(ShellError::NotStarted { reason: "the shell ended before the command began".to_owned() })
            }
        });
        if let Err(error) = &result
            && !leaves_session(error)
        {
            self.end_all()?;
        }
        result
    }

    /// Runs a command in the prepared shell, or in a new one.
    fn attempt(
        &mut self,
        request: &CommandRequest,
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<CommandOutcome, ShellError> {
        let control = self.control.as_ref().ok_or(ShellError::SessionEnded)?.as_fd();
        let mut waiting = self.prepared.take();
        if waiting.as_mut().is_some_and(|prepared| !prepared.is_usable(self.session_init)) {
            waiting = None;
        }
        let prepared = waiting.map_or_else(|| prepare(control, self.user), Ok)?;
        let running = RunningCommand::start(prepared, self.session_init, &self.watcher, request)?;
        // Make the next shell's pipes while the command runs; the shell itself starts once the command's
        // state is known.
        let streams = ShellStreams::new(self.user);
        let finished = running.finish(request, &self.watcher, &self.background, on_output)?;
        self.prepared = streams.and_then(|streams| streams.send(control)).ok();
        Ok(finished)
    }

    /// Ends the session and all its processes, background jobs included.
    ///
    /// # Errors
    /// [`ShellError::NotKilled`] if processes survive.
    pub fn end(mut self) -> Result<(), ShellError> {
        self.end_all()
    }

    fn end_all(&mut self) -> Result<(), ShellError> {
        if self.control.take().is_none() {
            return Ok(());
        }
        // Closing the control socket makes the guard kill everything, just as when this process is killed.
        let reaped = reap_guard(&mut self.guard);
        if self.session_init.is_alive() {
            // The guard died too early. Kill everything below the session's first process from here.
            let _ = tree::kill_below(self.session_init, KILL_TIME);
            self.session_init.kill();
        }
        reaped
    }
}

impl Drop for ShellSession {
    fn drop(&mut self) {
        // `drop` cannot report an error; `end` does.
        let _ = self.end_all();
    }
}

/// Starts the watcher of a session's commands. Under a seccomp filter, which refuses to make memory files,
/// descriptors need not be searched for them.
fn watcher(spec: &SessionSpec, posture: &ProcessPosture, user: Option<ProcessUser>) -> io::Result<Watcher> {
    let has_filter = matches!(posture.layer(Layer::Seccomp), Some(LayerStatus::Enforced));
    let meter =
        MemoryMeter::new(if has_filter { DescriptorSearch::Unneeded } else { DescriptorSearch::Needed })?;
    let session = spec.group.map(|group| SessionBounds {
        threads: usize::try_from(group.processes).unwrap_or(usize::MAX),
        memory_bytes: group.memory_bytes,
    });
    Watcher::start(spec.limits.memory_bytes, session, user, meter)
}

/// Asks for a shell. An error at its start comes with its report.
fn prepare(control: BorrowedFd<'_>, user: Option<ProcessUser>) -> Result<PreparedShell, ShellError> {
    ShellStreams::new(user).and_then(|streams| streams.send(control))
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

/// The weakest acceptable posture, and the layers that the session tries.
fn plan(spec: &SessionSpec) -> (ShellPosture, LayerPlan) {
    let layers = |without_namespaces| LayerPlan::Layers { waived: spec.waived.clone(), without_namespaces };
    match spec.posture {
        PostureChoice::AtLeast(least) => (least.max(ShellPosture::Minimal), layers(None)),
        PostureChoice::Exactly(ShellPosture::None) => (ShellPosture::None, LayerPlan::Nothing),
        PostureChoice::Exactly(ShellPosture::Strong) => (ShellPosture::Strong, layers(None)),
        PostureChoice::Exactly(level) => (level, layers(Some(LayerStatus::Waived))),
    }
}

/// The control group of a session, or the reason why it has none.
fn group(spec: &SessionSpec, plan: &LayerPlan) -> Result<ControlGroup, LayerStatus> {
    match (spec.group, plan) {
        (Some(limits), LayerPlan::Layers { waived, .. }) if !waived.contains(&Layer::Cgroup) => {
            ControlGroup::create(limits).map_err(|reason| LayerStatus::Missing { reason })
        }
        _ => Err(LayerStatus::Waived),
    }
}

/// Sends the setup, and receives the session's answer, its process number, and the listener of its network.
fn introduce(
    control: &OwnedFd,
    setup: &SessionSetup,
    handles: &[OwnedFd],
) -> Result<(Pid, SessionReady, Option<OwnedFd>), ShellError> {
    let handles: Vec<BorrowedFd<'_>> = handles.iter().map(|handle| handle.as_fd()).collect();
    wire::send(control.as_fd(), &ToSession::Setup(Box::new(setup.clone())), &handles)
        .map_err(ShellError::channel)?;
    let time =
        Timespec::try_from(START_TIME).map_err(|error| ShellError::channel(io::Error::other(error)))?;
    let ready = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&time)).map_err(ShellError::channel)?;
    if ready == 0 {
        return Err(ShellError::NotConfined { reason: "it did not answer in time".to_owned() });
    }
    let received = wire::receive_from(control.as_fd()).map_err(ShellError::channel)?;
    match received.map(|received| (received.message, received.sender, received.handles)) {
        Some((FromSession::Ready(ready), sender, mut handles)) => {
            let listener = handles.pop().filter(|_| matches!(ready.network, Some(Ok(()))));
            Ok((sender.ok_or(ShellError::SessionEnded)?, ready, listener))
        }
        Some((FromSession::Refused { reason, by_namespaces: true }, _, _)) => {
            Err(ShellError::NamespacesUnusable { reason })
        }
        Some((FromSession::Refused { reason, by_namespaces: false }, _, _)) => {
            Err(ShellError::NotConfined { reason })
        }
        None => Err(ShellError::NotConfined { reason: "it ended without a word".to_owned() }),
    }
}

/// Waits for a guard whose control socket is closed, as long as the number of its survivors falls.
fn reap_guard(guard: &mut Child) -> Result<(), ShellError> {
    let process = number_of(guard).and_then(|guard| Process::child_of(rustix::process::getpid(), guard));
    let mut detector = StallDetector::new(LONGEST_KILL);
    let mut waits: u32 = 0;
    loop {
        match guard.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            // The guard could not list processes, or was killed.
            Ok(Some(_)) => return Err(ShellError::NotKilled { left: 1 }),
            Ok(None) => {}
            Err(source) => return Err(ShellError::Processes { source }),
        }
        waits += 1;
        if waits.is_multiple_of(WAITS_PER_SAMPLE) {
            let (left, survivors) = process.map_or(Ok((0, Survivors::Blocked)), tree::left_below)?;
            if detector.is_over(left, survivors) {
                // The guard goes on killing. It must not be killed: no other process would do its work.
                return Err(ShellError::NotKilled { left: left + 1 });
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn number_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
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

/// Waits between two samples of all processes. A sample takes longer than asking after one child, and most guards
/// end at once.
const WAITS_PER_SAMPLE: u32 = 20;

/// Runs in a subshell, which leaves no variable behind. Other shells have neither arrays nor `@Q` nor `^^`.
const PROOF: &str = r#"( proof=(a 'shell b'); [[ ${BASH_VERSINFO[0]} -ge 4 ]] && printf '%s' "${proof[@]@Q}" "${proof[1]^^}" )"#;

/// The output of [`PROOF`].
const PROVEN: &[u8] = b"'a''shell b'SHELL B";

/// Output that is read of the proof, warnings included.
const PROOF_BYTES: u64 = 64 << 10;

/// Bytes of that output that an error quotes.
const QUOTED_PROOF_BYTES: usize = 256;

/// Bash answers within milliseconds; on a busy machine it takes longer.
const PROOF_TIME: Duration = Duration::from_secs(10);
