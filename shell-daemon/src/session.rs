//! The sidecar's side of a session: starts it, runs one command at a time in it, and ends it with all its processes.

mod shell_proof;

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use portcullis_confine::{ControlGroup, Layer, LayerStatus, ProcessPosture, ProcessUser};
use portcullis_types::ShellPosture;
use portcullis_undo::ChangeRecorder;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use crate::{
    BackgroundOutput, CommandEnd, CommandRequest, OutputChunk, PostureChoice, SessionPosture, SessionSpec,
    ShellError,
    background::Background,
    changes::ChangeWatch,
    hidden,
    kill_stall::{StallDetector, SurvivorState},
    limits::{KILL_STALL_TIMEOUT, KILL_TIMEOUT, START_TIMEOUT},
    memory::{DescriptorSearch, MemoryMeter},
    prepared::{PreparedShell, ShellStreams},
    protected::ProtectedScanner,
    running::{PreparedOutcome, RunningCommand},
    session_process::SESSION_ARGUMENT,
    setup::build_setup,
    tree::{self, Process},
    watch::{SessionTotals, Watcher},
    wire::{self, FromSession, LayerPlan, NetworkAbsence, SessionReady, SessionSetup, ToSession},
};

/// A confined shell that keeps its state. Dropping it ends all processes of the session.
#[derive(Debug)]
pub struct ShellSession {
    guard: Child,
    /// `None` after the session has ended.
    control: Option<OwnedFd>,
    session_init: Process,
    posture: SessionPosture,
    has_tree: bool,
    read_only_paths: usize,
    protected_scanner: ProtectedScanner,
    /// Its drop removes the group, after all the group's processes have ended.
    _group: Option<ControlGroup>,
    user: Option<ProcessUser>,
    watcher: Watcher,
    background: Background,
    /// The shell for the next command. `None` if it could not be started in advance.
    prepared: Option<PreparedShell>,
    tunnel_listener: Option<OwnedFd>,
    network_absence: Option<NetworkAbsence>,
    cache_copies: TreeFeature,
    hiding: TreeFeature,
    /// Records the changes of commands. `None` if the specification does not ask for it.
    changes: Option<ChangeWatch>,
}

/// Whether a session meets a request of its specification that needs the session's own file tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeFeature {
    /// The specification does not make the request.
    NotRequested,
    /// The session has its own file tree, which meets the request.
    Active,
    /// The session has no file tree of its own.
    Unavailable,
}

impl TreeFeature {
    fn new(is_made: bool, has_tree: bool) -> Self {
        match (is_made, has_tree) {
            (false, _) => Self::NotRequested,
            (true, true) => Self::Active,
            (true, false) => Self::Unavailable,
        }
    }
}

impl ShellSession {
    /// Starts a session. Waits until the session has confined itself and proven each layer.
    ///
    /// Each start tries which layers work on this machine. If namespaces can be entered but not used, a second process
    /// is started without them. If the posture is then too weak, the session is ended.
    ///
    /// # Errors
    /// An error if the specification cannot be met, the process cannot be started, or a layer does not hold.
    /// [`ShellError::PostureUnavailable`] if the posture reached is weaker than the required posture. After an error no
    /// process is left.
    pub fn start(spec: &SessionSpec) -> Result<Self, ShellError> {
        spec.require_limits()?;
        let (least, plan) = plan_layers(spec);
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
            let (reached, lacking) = (session.posture.level(), session.posture.missing_layers(least));
            session.end()?;
            return Err(ShellError::PostureUnavailable { required_posture: least, reached, lacking });
        }
        Ok(session)
    }

    fn begin(spec: &SessionSpec, plan: LayerPlan) -> Result<Self, ShellError> {
        let protected_scanner = ProtectedScanner::new(spec)?;
        let group = create_group(spec, &plan);
        let proof_material = group.as_ref().map_err(LayerStatus::clone).and_then(|group| {
            group.proof_material().map_err(|error| LayerStatus::Missing { reason: error.to_string() })
        });
        let (setup, handles) =
            build_setup(spec, plan, protected_scanner.session_paths(), hidden::find(spec)?, proof_material)?;
        let (control, guard_end) = wire::socket_pair().map_err(|source| ShellError::Start { source })?;
        let mut guard = launch(&spec.launcher, guard_end).map_err(|source| ShellError::Start { source })?;
        let guard_pid = pid_of(&guard);
        if let (Ok(group), Some(guard)) = (&group, guard_pid) {
            // Add the process before the setup is sent, so that all its children are in the group. An error is
            // ignored: the session itself detects that it is not in the group.
            let _ = group.add(guard);
        }
        let result = send_setup(&control, &setup, &handles).and_then(|(process, ready, listeners)| {
            let session_init = guard_pid
                .and_then(|parent| Process::child_of(parent, process))
                .ok_or(ShellError::SessionEnded)?;
            Ok((session_init, ready, listeners))
        });
        let result = result.and_then(|(process, ready, listeners)| {
            let watcher = start_watcher(spec, &ready.posture, ready.user)
                .map_err(|source| ShellError::Start { source })?;
            let changes = ChangeWatch::of_session(spec, &ready, listeners.changes)?;
            Ok((process, ready, watcher, listeners.network, changes))
        });
        match result {
            Ok((session_init, ready, watcher, tunnel_listener, changes)) => Ok(Self {
                changes,
                prepared: prepare(control.as_fd(), ready.user).ok(),
                guard,
                control: Some(control),
                session_init,
                posture: SessionPosture::new(ready.posture, spec.posture),
                user: ready.user,
                has_tree: ready.has_tree,
                cache_copies: TreeFeature::new(!spec.toolchain.caches.is_empty(), ready.has_tree),
                hiding: TreeFeature::new(!spec.hide.is_empty(), ready.has_tree),
                read_only_paths: ready.protected,
                protected_scanner,
                _group: group.ok(),
                watcher,
                background: Background::default(),
                tunnel_listener,
                network_absence: ready.network.and_then(Result::err),
            }),
            Err(error) => {
                // The end of the socket makes the guard kill what it has started.
                drop(control);
                reap_guard(&mut guard)?;
                Err(error)
            }
        }
    }

    /// Returns whether the session has its own file tree, with the mounts at `/NAME`. Otherwise the mounts
    /// are at their real paths.
    #[must_use]
    pub fn has_own_tree(&self) -> bool {
        self.has_tree
    }

    /// Sets the recorder of the following commands' changes. `None` records nothing, and so does a session without
    /// [`SessionSpec::watch_changes`].
    pub fn keep_changes(&mut self, recorder: Option<ChangeRecorder>) {
        if let Some(changes) = &self.changes {
            changes.record(recorder);
        }
    }

    /// Returns the number of protected paths that existed at the start and are read-only for the session. 0
    /// for a session without its own file tree.
    #[must_use]
    pub fn read_only_paths(&self) -> usize {
        self.read_only_paths
    }

    /// Returns whether commands have copies of the caches, which they may write. If the request is not met,
    /// commands read the caches themselves.
    #[must_use]
    pub fn cache_copies(&self) -> TreeFeature {
        self.cache_copies
    }

    /// Returns whether the names to hide are covered. If the request is not met, commands can read them.
    #[must_use]
    pub fn hiding(&self) -> TreeFeature {
        self.hiding
    }

    /// Takes the listener on which the session's programs request tunnels. `None` for a session without a
    /// network, and after the first call. Other processes of the machine cannot connect to the listener.
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.tunnel_listener.take()
    }

    /// Returns the reason why the session has no network although its specification has one.
    #[must_use]
    pub fn network_absence(&self) -> Option<&str> {
        self.network_absence.as_ref().map(NetworkAbsence::as_str)
    }

    /// Returns the posture that the session proved.
    #[must_use]
    pub fn posture(&self) -> &SessionPosture {
        &self.posture
    }

    /// Returns the owner of the session's processes, if that is not this process's user. If the sidecar is
    /// root and the session has its own file tree, the owner is a user that no other process has, and the
    /// files below the mounts appear to belong to that user. Otherwise the owner is the owner of the
    /// session's home.
    #[must_use]
    pub fn user(&self) -> Option<ProcessUser> {
        self.user
    }

    /// Output that background jobs wrote after their commands had ended. `start` is the position to start at: 0 at
    /// first, then `end` of the last answer. At most 64 KiB are kept.
    #[must_use]
    pub fn background_output(&self, start: u64) -> BackgroundOutput {
        self.background.output_since(start)
    }

    /// Runs a command in the state that the last command left, and passes its output to `on_output` as it arrives.
    /// The command is run at most once.
    ///
    /// # Cancellation
    /// Cancel with [`CommandRequest::cancellation`] from another thread. The command is then killed, and this function
    /// returns when all its processes are gone, usually within a second. The session continues.
    ///
    /// # Errors
    /// An error only if the shell could not run or the session could not report how the shell ended. After
    /// [`ShellError::SessionEnded`] the session is unusable.
    pub fn run(
        &mut self,
        request: &CommandRequest,
        on_output: &mut dyn FnMut(OutputChunk<'_>),
    ) -> Result<CommandEnd, ShellError> {
        request.require_usable()?;
        self.background.require_room()?;
        let mut result = self.attempt(request, on_output);
        if let Ok(PreparedOutcome::NotBegun) = result {
            // Retry once, with a new shell. Only a shell that has waited for a long time may have been killed before
            // its command started.
            result = self.attempt(request, on_output);
        }
        let result = result.and_then(|finished| match finished {
            PreparedOutcome::Ended(end) => Ok(CommandEnd { protected: self.protected_scanner.scan(), ..end }),
            PreparedOutcome::NotBegun => {
                Err(ShellError::NotStarted { reason: "the shell ended before the command began".to_owned() })
            }
        });
        if let Err(error) = &result
            && !session_survives(error)
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
    ) -> Result<PreparedOutcome, ShellError> {
        let control = self.control.as_ref().ok_or(ShellError::SessionEnded)?.as_fd();
        let mut waiting = self.prepared.take();
        if waiting.as_mut().is_some_and(|prepared| !prepared.is_usable(self.session_init)) {
            waiting = None;
        }
        let prepared = waiting.map_or_else(|| prepare(control, self.user), Ok)?;
        let running = RunningCommand::start(prepared, self.session_init, &self.watcher, request)?;
        // Make the pipes of the next shell while the command runs. The shell itself starts only when the command's
        // state is known.
        let streams = ShellStreams::new(self.user);
        let finished = running.finish(request, &self.watcher, &self.background, on_output)?;
        // Ignore an error: the next command then starts its shell itself.
        self.prepared = streams.and_then(|streams| streams.send(control)).ok();
        Ok(finished)
    }

    /// Ends the session and all its processes, including background jobs.
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
        // Closing the control socket makes the guard kill everything. The same happens when this process is killed.
        let reaped = reap_guard(&mut self.guard);
        if self.session_init.is_alive() {
            // The guard died too early. Kill everything below the session's first process here instead.
            let _ = tree::kill_descendants(self.session_init, KILL_STALL_TIMEOUT);
            self.session_init.kill();
        }
        reaped
    }
}

impl Drop for ShellSession {
    fn drop(&mut self) {
        // `drop` cannot report an error. A caller that needs the error calls `end`.
        let _ = self.end_all();
    }
}

/// Starts the watcher of a session's commands. If a seccomp filter refuses to make memory files, the watcher need not
/// search descriptors for them.
fn start_watcher(
    spec: &SessionSpec,
    posture: &ProcessPosture,
    user: Option<ProcessUser>,
) -> io::Result<Watcher> {
    let has_filter = matches!(posture.layer(Layer::Seccomp), Some(LayerStatus::Enforced));
    let meter =
        MemoryMeter::new(if has_filter { DescriptorSearch::Unneeded } else { DescriptorSearch::Needed })?;
    let session = spec.group.map(|group| SessionTotals {
        threads: usize::try_from(group.processes).unwrap_or(usize::MAX),
        memory_bytes: group.memory_bytes,
    });
    Watcher::start(spec.limits.memory_bytes, session, user, meter)
}

/// Asks the session for a shell. If the shell cannot start, its report has the error.
fn prepare(control: BorrowedFd<'_>, user: Option<ProcessUser>) -> Result<PreparedShell, ShellError> {
    ShellStreams::new(user).and_then(|streams| streams.send(control))
}

fn session_survives(error: &ShellError) -> bool {
    matches!(error, ShellError::NotStarted { .. })
}

#[expect(clippy::disallowed_methods, reason = "this crate is where the session's process is started")]
fn launch(launcher: &Path, control: OwnedFd) -> io::Result<Child> {
    Command::new(launcher)
        .arg(SESSION_ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Returns the weakest acceptable posture, and the layers that the session tries.
fn plan_layers(spec: &SessionSpec) -> (ShellPosture, LayerPlan) {
    let layers = |without_namespaces| LayerPlan::Layers { waived: spec.waived.clone(), without_namespaces };
    match spec.posture {
        PostureChoice::AtLeast(least) => (least.max(ShellPosture::Minimal), layers(None)),
        PostureChoice::Exactly(ShellPosture::None) => (ShellPosture::None, LayerPlan::Nothing),
        PostureChoice::Exactly(ShellPosture::Strong) => (ShellPosture::Strong, layers(None)),
        PostureChoice::Exactly(level) => (level, layers(Some(LayerStatus::Waived))),
    }
}

/// The control group of a session, or the reason why it has none.
fn create_group(spec: &SessionSpec, plan: &LayerPlan) -> Result<ControlGroup, LayerStatus> {
    match (spec.group, plan) {
        (Some(limits), LayerPlan::Layers { waived, .. }) if !waived.contains(&Layer::Cgroup) => {
            ControlGroup::create(limits).map_err(|error| LayerStatus::Missing { reason: error.to_string() })
        }
        _ => Err(LayerStatus::Waived),
    }
}

/// The listeners that a session has sent.
#[derive(Debug)]
struct SessionListeners {
    network: Option<OwnedFd>,
    changes: Option<OwnedFd>,
}

/// Sends the setup. Receives the session's answer, its process number, and its listeners.
fn send_setup(
    control: &OwnedFd,
    setup: &SessionSetup,
    handles: &[OwnedFd],
) -> Result<(Pid, SessionReady, SessionListeners), ShellError> {
    let handles: Vec<BorrowedFd<'_>> = handles.iter().map(|handle| handle.as_fd()).collect();
    wire::send(control.as_fd(), &ToSession::Setup(Box::new(setup.clone())), &handles)
        .map_err(ShellError::channel)?;
    let time =
        Timespec::try_from(START_TIMEOUT).map_err(|error| ShellError::channel(io::Error::other(error)))?;
    let ready = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&time)).map_err(ShellError::channel)?;
    if ready == 0 {
        return Err(ShellError::NotConfined { reason: "it did not answer in time".to_owned() });
    }
    let received = wire::receive_from(control.as_fd()).map_err(ShellError::channel)?;
    match received.map(|received| (received.message, received.sender, received.handles)) {
        Some((FromSession::Ready(ready), sender, mut handles)) => {
            let changes = if ready.watches_changes { handles.pop() } else { None };
            let network = handles.pop().filter(|_| matches!(ready.network, Some(Ok(()))));
            Ok((sender.ok_or(ShellError::SessionEnded)?, ready, SessionListeners { network, changes }))
        }
        Some((FromSession::Refused { reason, by_namespaces: true }, _, _)) => {
            Err(ShellError::NamespacesUnusable { reason })
        }
        Some((FromSession::Refused { reason, by_namespaces: false }, _, _)) => {
            Err(ShellError::NotConfined { reason })
        }
        None => Err(ShellError::NotConfined { reason: "it ended before it answered".to_owned() }),
    }
}

/// Waits for the end of a guard whose control socket is closed, for at most [`KILL_TIMEOUT`].
fn reap_guard(guard: &mut Child) -> Result<(), ShellError> {
    let process = pid_of(guard).and_then(|guard| Process::child_of(rustix::process::getpid(), guard));
    let mut detector = StallDetector::new(KILL_TIMEOUT);
    let mut waits: u32 = 0;
    loop {
        match guard.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            // The guard could not list the processes or was killed.
            Ok(Some(_)) => return Err(ShellError::NotKilled { left: 1 }),
            Ok(None) => {}
            Err(source) => return Err(ShellError::Processes { source }),
        }
        waits += 1;
        if waits.is_multiple_of(WAITS_PER_SAMPLE) {
            let (survivor_count, survivors) =
                process.map_or(Ok((0, SurvivorState::Blocked)), tree::count_surviving_descendants)?;
            if detector.record_sample(survivor_count, survivors) {
                // The guard continues to kill. Do not kill the guard: no other process would do its work.
                return Err(ShellError::NotKilled { left: survivor_count + 1 });
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// The waits between two samples of all processes. A sample takes longer than a check of one child, and most guards
/// end immediately.
const WAITS_PER_SAMPLE: u32 = 20;
