//! [`TaskProcessor`]: scans the folders of states, and processes the files in them.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{StreamExt as _, stream};
use portcullis_types::{CancellationToken, EscapedText, error_chain};
use tokio::sync::Semaphore;

use crate::{
    calls::TaskCallRunner,
    error::{FileError, TaskFolderError},
    folder::{FileVersion, TaskFolder},
    limits::MAX_CONCURRENT_CALLS,
    states::{ScannedState, TaskStates},
    task::{FileOutcome, Task, TaskCallReport},
    task_file::TaskFile,
};

/// The report on one task file.
#[derive(Debug)]
#[non_exhaustive]
pub struct TaskReport {
    /// The name of the file.
    pub name: String,
    /// The state in which the file was found.
    pub state: String,
    /// The state to which the file was moved, if it was.
    pub moved_to: Option<String>,
    /// The calls that ended, in order.
    pub calls: Vec<TaskCallReport>,
    /// Why the file was not processed further.
    pub error: Option<FileError>,
}

/// Processes the task files of one folder. A lock prevents two processors on one folder.
#[derive(Debug)]
pub struct TaskProcessor {
    pub(crate) folder: Arc<TaskFolder>,
    pub(crate) states: Arc<TaskStates>,
    runner: Arc<dyn TaskCallRunner>,
    permits: Arc<Semaphore>,
    /// The files that are finished, by state and name, with the version that was read.
    settled_versions: Mutex<HashMap<(String, String), FileVersion>>,
}

impl TaskProcessor {
    /// Opens a folder, creates the missing folders of its states, and takes the lock for the lifetime of the
    /// processor.
    ///
    /// # Errors
    /// [`TaskFolderError`], for example if another process is working on the folder.
    pub fn open(
        path: &Path,
        states: TaskStates,
        runner: Arc<dyn TaskCallRunner>,
    ) -> Result<Self, TaskFolderError> {
        let folder = TaskFolder::open(path, &states)?;
        for state in states.folders() {
            for name in folder.leftover_files(state) {
                tracing::warn!(
                    state,
                    name,
                    "an interrupted change left a temporary file; compare it with its task, then remove it"
                );
            }
        }
        Ok(Self {
            folder: Arc::new(folder),
            states: Arc::new(states),
            runner,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
            settled_versions: Mutex::default(),
        })
    }

    /// Processes all files of the scanned states until no work is left. Files are processed concurrently. The
    /// calls of one file run in document order. When `cancel` is cancelled, no further call begins.
    ///
    /// # Errors
    /// [`TaskFolderError`] if a state's folder cannot be listed. An error in one file is in its report, and does
    /// not delay other files.
    ///
    /// # Cancellation
    /// Dropping the future leaves the calls that have begun as interrupted.
    pub async fn run_once(&self, cancel: &CancellationToken) -> Result<Vec<TaskReport>, TaskFolderError> {
        let mut reports = Vec::new();
        // A task can move from one scanned state to another. `TaskStates` refuses only cycles of tasks that
        // succeed, so limit the passes.
        for _pass in 0..=self.states.scanned().len() {
            let (passed, _unsettled) = self.pass(None, cancel).await?;
            let has_moved = passed.iter().any(|report| report.moved_to.is_some());
            reports.extend(passed);
            if !has_moved || cancel.is_cancelled() {
                break;
            }
        }
        Ok(reports)
    }

    /// Processes all files once. With `settle`, skips files that changed within this time, and returns
    /// whether there were any.
    pub(crate) async fn pass(
        &self,
        settle: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Result<(Vec<TaskReport>, bool), TaskFolderError> {
        let mut tasks = Vec::new();
        let mut has_unsettled = false;
        for state in self.states.scanned() {
            let (listed, unsettled) = self.changed_files(state, settle, cancel).await?;
            has_unsettled |= unsettled;
            tasks.extend(listed);
        }
        let processing = tasks.into_iter().map(|task| self.process(task));
        let processed: Vec<Option<TaskReport>> =
            stream::iter(processing).buffer_unordered(MAX_OPEN_FILES).collect().await;
        let mut reports: Vec<TaskReport> = processed.into_iter().flatten().collect();
        // Sort, because files end in any order.
        reports.sort_by(|one, other| (&one.state, &one.name).cmp(&(&other.state, &other.name)));
        Ok((reports, has_unsettled))
    }

    /// Returns the files of a state that have changed since they were processed.
    async fn changed_files(
        &self,
        state: &ScannedState,
        settle: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Result<(Vec<Task>, bool), TaskFolderError> {
        let (folder, name) = (Arc::clone(&self.folder), state.folder.clone());
        let listed = tokio::task::spawn_blocking(move || folder.list(&name));
        let listed = listed.await.unwrap_or_else(|_panicked| {
            let source = std::io::Error::other("the thread that lists it panicked");
            Err(TaskFolderError::State { state: state.folder.clone(), source })
        })?;
        let mut settled = self.lock_settled_versions();
        let is_listed = |name: &str| listed.binary_search_by(|(listed, _)| listed.as_str().cmp(name)).is_ok();
        // Forget removed files, so that the map does not grow.
        settled.retain(|(folder, name), _version| *folder != state.folder || is_listed(name));
        let mut has_unsettled = false;
        let mut tasks = Vec::new();
        for (name, version) in listed {
            let key = (state.folder.clone(), name);
            if version.is_some() && settled.get(&key).copied() == version {
                continue;
            }
            if version.zip(settle).is_some_and(|(version, settle)| is_younger(version, settle)) {
                has_unsettled = true;
                continue;
            }
            tasks.push(Task {
                file: TaskFile { folder: Arc::clone(&self.folder), state: state.clone(), name: key.1 },
                states: Arc::clone(&self.states),
                runner: Arc::clone(&self.runner),
                permits: Arc::clone(&self.permits),
                cancel: cancel.clone(),
            });
        }
        Ok((tasks, has_unsettled))
    }

    /// Processes a file. Returns `None` if there was no work.
    async fn process(&self, task: Task) -> Option<TaskReport> {
        let mut calls = Vec::new();
        // Read the version before the work, so that a change during the work leads to another pass.
        let before = task.file.folder.version(&task.file.state.folder, &task.file.name).ok();
        let processed = task.process(&mut calls).await;
        if !calls.is_empty() {
            self.runner.task_paused(&task.file.name);
        }
        let TaskFile { state, name, .. } = task.file;
        let (moved_to, error, version) = match processed {
            Ok(FileOutcome::Moved(to)) => (Some(to), None, None),
            Ok(FileOutcome::Stays(version)) => (None, None, Some(version)),
            Ok(FileOutcome::Unfinished) => (None, None, None),
            // Retry a faulty file only when it has changed.
            Err(error) => {
                let file = EscapedText(&name);
                tracing::warn!(%file, state = state.folder, error = error_chain(&error), "a task file is not processed");
                let version = before.filter(|_| error.is_lasting());
                (None, Some(error), version)
            }
        };
        if let Some(version) = version {
            self.lock_settled_versions().insert((state.folder.clone(), name.clone()), version);
        }
        let is_news = !calls.is_empty() || moved_to.is_some() || error.is_some();
        is_news.then_some(TaskReport { name, state: state.folder, moved_to, calls, error })
    }

    fn lock_settled_versions(&self) -> MutexGuard<'_, HashMap<(String, String), FileVersion>> {
        self.settled_versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maximum number of files that are processed concurrently. It exceeds the number of concurrent calls, so
/// that a file whose call waits for a person does not delay the others.
const MAX_OPEN_FILES: usize = 4 * MAX_CONCURRENT_CALLS;

/// Returns whether a file has changed within this time. A time in the future does not count as recent.
fn is_younger(version: FileVersion, age: Duration) -> bool {
    let (seconds, nanoseconds) = version.modified();
    let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds)) else {
        return false;
    };
    let modified = UNIX_EPOCH + Duration::new(seconds, nanoseconds.min(999_999_999));
    SystemTime::now().duration_since(modified).is_ok_and(|passed| passed < age)
}
