//! Waits for changed files, and processes them.

use notify::{
    EventKind, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use portcullis_types::CancellationToken;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    error::TaskFolderError,
    limits::{RESCAN_INTERVAL, SETTLE_PAUSE},
    processor::{TaskProcessor, TaskReport},
};

impl TaskProcessor {
    /// Processes the existing files, and then each file that changes, until `cancel` is cancelled. A file
    /// that was changed within [`SETTLE_PAUSE`] is skipped until its writer has finished. `on_report` gets
    /// each report.
    ///
    /// # Errors
    /// [`TaskFolderError`] if changes cannot be watched, or a state's folder cannot be listed.
    ///
    /// # Cancellation
    /// Dropping the future leaves the calls that have begun as interrupted. Cancelling `cancel` lets them end first.
    pub async fn watch(
        &self,
        cancel: &CancellationToken,
        mut on_report: impl FnMut(TaskReport) + Send,
    ) -> Result<(), TaskFolderError> {
        let failed = |source| TaskFolderError::Watch { path: self.folder.path().to_owned(), source };
        // Capacity 1 is enough: a message only says that something has changed.
        let (sender, mut changes) = mpsc::channel(1);
        let report = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| may_end_a_change(event.kind)) {
                // A full channel already has this message.
                let _ = sender.try_send(());
            }
        };
        let mut watcher = notify::recommended_watcher(report).map_err(failed)?;
        // Watch before the first pass, so that no change in between is missed.
        for state in self.states.scanned() {
            let path = self.folder.path().join(&state.folder);
            watcher.watch(&path, RecursiveMode::NonRecursive).map_err(failed)?;
        }
        while !cancel.is_cancelled() {
            let (reports, has_unsettled) = self.pass(Some(SETTLE_PAUSE), cancel).await?;
            let has_moved = reports.iter().any(|report| report.moved_to.is_some());
            reports.into_iter().for_each(&mut on_report);
            if has_moved {
                continue;
            }
            let pause = if has_unsettled { SETTLE_PAUSE } else { RESCAN_INTERVAL };
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                _changed_or_time_over = timeout(pause, changes.recv()) => {}
            }
        }
        Ok(())
    }
}

/// Returns whether a file may be complete after this event: a writer closed it, or it got its name.
fn may_end_a_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Create(_) => true,
        EventKind::Modify(kind) => matches!(kind, ModifyKind::Name(_)),
        EventKind::Access(_) | EventKind::Remove(_) => false,
        EventKind::Any | EventKind::Other => true,
    }
}
