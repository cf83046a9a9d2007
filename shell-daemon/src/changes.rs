//! Saves the state of each file before a session's command changes it, so that the change can be undone.
//!
//! Each change waits for this process (seccomp_unotify(2)). One thread resolves the call's path as the
//! calling process sees it, saves the state of that path, and lets the call continue. If the session has a
//! separate user, this thread has only the rights of that user, so a second thread saves the state.
//!
//! The path is read from the caller's memory. A program that changes the path between this read and the
//! kernel's read (TOCTOU race) evades the watch. Undo is a convenience, not a protection from such a program.

mod caller;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_confine::{ChangeListener, ChangeOperation, PathArgument, PendingChange, ProcessUser};
use portcullis_types::ChangeScope;
use portcullis_undo::{ChangeRecorder, MountPath};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::caller::CallingThread;
use crate::{SessionSpec, ShellError, wire::SessionReady};

/// The interval at which the thread checks whether its session has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A mount, with the path under which the session's processes see it.
#[derive(Clone, Debug)]
struct SeenMount {
    name: String,
    path: PathBuf,
}

/// The threads that record the changes of one session's commands. Dropping this ends them.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    shared_watch: Arc<SharedChangeWatch>,
}

#[derive(Debug)]
struct SharedChangeWatch {
    listener: ChangeListener,
    mounts: Vec<SeenMount>,
    /// Records the changes of the running command. `None` between commands, and for a command without undo.
    recorder: Mutex<Option<Arc<ChangeRecorder>>>,
    is_over: AtomicBool,
}

/// A path below a mount.
#[derive(Clone, Debug)]
struct PathInMount {
    mount: String,
    path: MountPath,
}

/// A state to save before a call.
#[derive(Debug)]
enum SaveTask {
    Path(PathInMount),
    Tree(PathInMount),
    MovedHere { from: PathInMount, to: PathInMount },
}

/// A call with the states to save before it.
#[derive(Debug)]
struct SaveJob {
    change: PendingChange,
    tasks: Vec<SaveTask>,
    recorder: Arc<ChangeRecorder>,
}

impl ChangeWatch {
    /// Watches the changes of a session whose specification asks for it.
    ///
    /// # Errors
    /// [`ShellError::ChangesUnwatched`] if the session has no listener, [`ShellError::Start`] if a thread cannot be
    /// started.
    pub(crate) fn of_session(
        spec: &SessionSpec,
        ready: &SessionReady,
        listener: Option<OwnedFd>,
    ) -> Result<Option<Self>, ShellError> {
        if !spec.watch_changes {
            return Ok(None);
        }
        let listener = listener.ok_or_else(|| ShellError::ChangesUnwatched {
            reason: "the session has no system-call filter".to_owned(),
        })?;
        let mounts = spec.mounts.iter().map(|mount| SeenMount {
            name: mount.name.clone(),
            path: if ready.has_tree { Path::new("/").join(&mount.name) } else { mount.path.clone() },
        });
        let watch = Self::start(listener.into(), mounts.collect(), ready.user);
        watch.map(Some).map_err(|source| ShellError::Start { source })
    }

    /// Starts the threads. `user` is the owner of the session's processes, if that is not this process's user.
    ///
    /// # Errors
    /// The I/O error if a thread cannot be started.
    fn start(
        listener: ChangeListener,
        mounts: Vec<SeenMount>,
        user: Option<ProcessUser>,
    ) -> io::Result<Self> {
        let recorder = Mutex::default();
        let shared =
            Arc::new(SharedChangeWatch { listener, mounts, recorder, is_over: AtomicBool::new(false) });
        let recording_thread =
            user.is_some().then(|| start_recording_thread(Arc::clone(&shared))).transpose()?;
        let watcher = Arc::clone(&shared);
        thread::Builder::new().name("shell-changes".to_owned()).spawn(move || {
            match user {
                Some(user) => {
                    // Ignore an error: without these rights the thread cannot read its callers, so it refuses
                    // their changes.
                    let _ = portcullis_confine::process::set_thread_user(user);
                }
                None => watcher.listener.prefer_one_thread(),
            }
            watcher.serve(recording_thread.as_ref());
        })?;
        Ok(Self { shared_watch: shared })
    }

    /// Sets the recorder of the following changes. `None` records nothing.
    pub(crate) fn record(&self, recorder: Option<ChangeRecorder>) {
        *self.shared_watch.recorder() = recorder.map(Arc::new);
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        self.shared_watch.is_over.store(true, Ordering::Release);
    }
}

impl SharedChangeWatch {
    fn recorder(&self) -> MutexGuard<'_, Option<Arc<ChangeRecorder>>> {
        self.recorder.lock()
    }

    /// Serves the calls until the session ends. Without a recording thread, this thread saves the states itself.
    fn serve(&self, recording_thread: Option<&mpsc::Sender<SaveJob>>) {
        let interval = Timespec::try_from(LOOK_INTERVAL).ok();
        while !self.is_over.load(Ordering::Acquire) {
            // Wait with `poll` first: a wait for a notification does not return when the last process has
            // ended.
            let mut polled = [PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
            let is_ready = matches!(poll(&mut polled, interval.as_ref()), Ok(1..));
            let events = polled[0].revents();
            if !is_ready {
                continue;
            }
            if !events.contains(PollFlags::IN) {
                return;
            }
            match self.listener.receive() {
                Ok(Some(change)) => self.dispatch(change, recording_thread),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "the changes of a session can no longer be watched");
                    return;
                }
            }
        }
    }

    /// Saves the states before a call, itself or through the recording thread. Allows a call that has nothing to save.
    fn dispatch(&self, change: PendingChange, recording_thread: Option<&mpsc::Sender<SaveJob>>) {
        let Some(recorder) = self.recorder().clone() else { return self.listener.allow(&change) };
        match self.tasks(&change) {
            Ok(tasks) if tasks.is_empty() => self.listener.allow(&change),
            Ok(tasks) => {
                let job = SaveJob { change, tasks, recorder };
                match recording_thread {
                    None => self.save(&job),
                    Some(recording_thread) if recording_thread.send(job).is_ok() => {}
                    Some(_) => self.listener.refuse(&change),
                }
            }
            // The caller was killed in the meantime, so no process waits for the answer.
            Err(_) if !self.listener.is_pending(&change) => {}
            Err(error) => {
                tracing::error!(%error, "a change was refused, because its path could not be read");
                self.listener.refuse(&change);
            }
        }
    }

    /// The states to save before a call.
    fn tasks(&self, change: &PendingChange) -> io::Result<Vec<SaveTask>> {
        let caller = CallingThread::open(change.thread)?;
        // A call that is still pending proves that the thread's number was not reused while `/proc` was
        // opened.
        if !self.listener.is_pending(change) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut tasks = Vec::new();
        for operation in change.operations() {
            tasks.extend(self.task(&caller, &operation)?);
        }
        Ok(tasks)
    }

    fn task(&self, caller: &CallingThread, operation: &ChangeOperation) -> io::Result<Option<SaveTask>> {
        let find = |argument: &PathArgument| {
            Ok::<_, io::Error>(caller.path(argument)?.and_then(|path| self.below_mount(&path)))
        };
        Ok(match operation {
            ChangeOperation::Change(path) => find(path)?.map(SaveTask::Path),
            ChangeOperation::RemoveTree(path) => find(path)?.map(SaveTask::Tree),
            ChangeOperation::MoveTo { from, to } => match (find(from)?, find(to)?) {
                (Some(from), Some(to)) => Some(SaveTask::MovedHere { from, to }),
                (None, Some(to)) => Some(SaveTask::Tree(to)),
                (_, None) => None,
            },
        })
    }

    /// Returns the mount that contains a path.
    fn below_mount(&self, path: &[Vec<u8>]) -> Option<PathInMount> {
        use std::os::unix::ffi::OsStrExt as _;

        self.mounts.iter().find_map(|mount| {
            let mount_path = mount.path.iter().skip(1).map(std::ffi::OsStr::as_bytes);
            let mut components = path.iter().map(Vec::as_slice);
            for component in mount_path {
                if components.next() != Some(component) {
                    return None;
                }
            }
            Some(PathInMount { mount: mount.name.clone(), path: MountPath::from_components(components)? })
        })
    }

    fn save(&self, SaveJob { change, tasks, recorder }: &SaveJob) {
        for task in tasks {
            let save_result = match task {
                SaveTask::Path(to) => recorder.save_before(&to.mount, &to.path, ChangeScope::Path),
                SaveTask::Tree(to) => recorder.save_before(&to.mount, &to.path, ChangeScope::Tree),
                SaveTask::MovedHere { from, to } => {
                    let scope = ChangeScope::MovedHere { mount: &*from.mount, from: &from.path };
                    recorder.save_before(&to.mount, &to.path, scope)
                }
            };
            if let Err(error) = save_result {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a change was refused, because the state before it could not be saved"
                );
                return self.listener.refuse(change);
            }
        }
        self.listener.allow(change);
    }
}

/// Starts a thread that saves the states with this process's rights.
fn start_recording_thread(shared: Arc<SharedChangeWatch>) -> io::Result<mpsc::Sender<SaveJob>> {
    let (jobs, keep_jobs) = mpsc::channel();
    thread::Builder::new().name("shell-keep".to_owned()).spawn(move || {
        for job in keep_jobs {
            shared.save(&job);
        }
    })?;
    Ok(jobs)
}
