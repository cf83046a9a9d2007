//! Scans of folders of task files in which nothing has changed.

use std::{sync::Arc, time::Instant};

use portcullis_tasks::{
    CallStartRecorder, TaskCall, TaskCallRunner, TaskProcessor, TaskRunnerResult, TaskStates,
};
use portcullis_types::{CancellationToken, ToolError, ToolErrorKind, ToolResult, async_trait};

use crate::{report::Report, sample::median_us};

const FILES: usize = 1_000;
const SCANS: usize = 9;

pub(crate) async fn scanning(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let processor =
        TaskProcessor::open(folder.path(), TaskStates::default(), Arc::new(NoCalls)).expect("opens");
    let state = folder.path().join(&TaskStates::default().scanned()[0].folder);
    for number in 0..FILES {
        // A file without a call stays where it is.
        let text = format!("---\ntitle: Task {number}\n---\n\n# Task {number}\n\nA text without a call.\n");
        std::fs::write(state.join(format!("task-{number}.md")), text).expect("written");
    }
    let cancel = CancellationToken::new();
    let start = Instant::now();
    processor.run_once(&cancel).await.expect("scanned");
    report.add_reference("1 000 task files, the first scan", start.elapsed().as_secs_f64() * 1e3, "ms");
    let mut times = Vec::with_capacity(SCANS);
    for _ in 0..SCANS {
        let start = Instant::now();
        let reports = processor.run_once(&cancel).await.expect("scanned");
        times.push(start.elapsed());
        assert!(reports.is_empty(), "{reports:?}");
    }
    report.check_at_most("… scanned again, unchanged, p50", median_us(&mut times) / 1000.0, 100.0, "ms");
}

/// Runs no call: the files have none.
struct NoCalls;

#[async_trait]
impl TaskCallRunner for NoCalls {
    async fn run(&self, call: TaskCall, _before: Arc<dyn CallStartRecorder>) -> TaskRunnerResult {
        let error = ToolError::new(ToolErrorKind::Internal, "no file of the measurement has a call");
        TaskRunnerResult::Ended(ToolResult::without_run(call.call, error))
    }
}
