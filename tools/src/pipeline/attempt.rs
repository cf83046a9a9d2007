//! One try of a call: a guest on a confined thread, a native tool on a thread that may block, a command at the
//! sidecar, an operation's steps.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use portcullis_policy::{Denial, DenialCode, Grant, OutputBytes};
use portcullis_types::{
    CallFrame, FRAME_VERSION, FinalFrame, ProgressFn, SafetyTier, Tool, ToolContext, ToolError,
    ToolErrorKind, ToolEvent, ToolOutput, ToolUpdateFn,
};
use serde_json::value::RawValue;

use super::{PendingRecord, bound::cut_partial, check::Checked, shape::shortened};
use crate::{
    audit::{Subject, SubjectKind, Text},
    call::{Caller, Parent},
    digest,
    registered::{Backend, GuestTool},
    registry::ToolRegistry,
    sandbox::{self, GuestJob, GuestReport, HostWasmToolRunner, StreamFrame, Violation, WasmError},
    shell::{ShellRun, ShellTerms},
    slots::CallSlot,
    vault::Terms,
};

/// What every try of a call has.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) checked: &'a Checked,
    pub(super) grant: &'a Grant,
    pub(super) slot: &'a CallSlot,
    pub(super) time_limit: Duration,
    pub(super) deadline: Instant,
    pub(super) caller: &'a Caller,
    pub(super) runner: Option<&'a HostWasmToolRunner>,
    pub(super) steps: Option<&'a Arc<ToolRegistry>>,
}

/// What came of a try.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// What a model reads after the text, whatever is cut from that.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<GuestUsage>,
    /// Whether another try can do no harm, and may go better.
    pub(super) may_try_again: bool,
}

/// What a guest used.
#[derive(Debug)]
pub(crate) struct GuestUsage {
    pub(super) cpu: Duration,
    pub(super) peak_memory_bytes: u64,
    pub(super) mounts_used: Vec<Text>,
}

impl Attempt<'_> {
    /// Tries the call once.
    pub(super) async fn make(self, pending: &mut PendingRecord) -> Result<Tried, ToolError> {
        let Self { checked, grant, slot, time_limit, deadline, caller, runner, steps } = self;
        let mut trailer = None;
        let (result, usage, may_try_again) = match checked.tool.backend() {
            Backend::Native(tool) => {
                let has_called = Arc::new(AtomicBool::new(false));
                let ctx = self.context(Arc::clone(&has_called));
                let result = run_native(Arc::clone(tool), ctx, checked.args.clone(), time_limit).await;
                let harmless =
                    pending.row.tier == Some(SafetyTier::ReadOnly) || checked.tool.meta().idempotent;
                // What its own calls did, another try would do once more.
                let again = harmless && !has_called.load(Ordering::Relaxed) && is_unavailable(&result);
                (result, None, again)
            }
            Backend::Guest(guest) => {
                let runner =
                    runner.ok_or_else(|| ToolError::unavailable("no WebAssembly runner is set up"))?;
                run_guest(runner, guest, self, pending).await?
            }
            Backend::Operation(operation) => {
                let terms = Terms {
                    operation_id: pending.row.operation_id.clone(),
                    time_limit,
                    deadline,
                    slot: slot.clone(),
                    on_progress: on_progress(&checked.call.id, caller),
                };
                let ran = operation.run(steps, &checked.call.id, checked.args.value(), terms, caller).await;
                (ran, None, false)
            }
            Backend::Shell(shell) => {
                let terms = ShellTerms {
                    args: checked.args.value(),
                    grant,
                    time_limit,
                    deadline,
                    caller,
                    // Pieces of an output that was asked for, as long as the sidecar's messages may be.
                    on_update: on_update(&checked.call.id, caller, None),
                };
                let ran = shell.run(terms).await;
                trailer.clone_from(&ran.trailer);
                let again = ran.found_no_session;
                let (result, usage) = shell_result(ran, grant, pending);
                (result, usage, again)
            }
        };
        Ok(Tried { result, trailer, usage, may_try_again })
    }

    /// What a native tool learns of the call.
    fn context(&self, has_called: Arc<AtomicBool>) -> ToolContext {
        let Self { checked, caller, deadline, slot, .. } = self;
        let call = &checked.call;
        let mut ctx = ToolContext::detached(&call.tool);
        ctx.call_id.clone_from(&call.id);
        ctx.run_id.clone_from(&caller.run_id);
        ctx.agent_id.clone_from(&caller.agent_id);
        ctx.space_id.clone_from(&caller.space_id);
        ctx.idempotency_key = digest::of_parts([&caller.agent_id, &caller.run_id, &call.id]);
        ctx.cancel = caller.cancel.child_token();
        ctx.deadline = Some(*deadline);
        // What a native tool reports goes the same way as a guest's frames.
        ctx.on_update = on_update(&call.id, caller, Some(self.grant.limits.max_output));
        ctx.on_progress = on_progress(&call.id, caller);
        let caller = Caller { slot: Some((*slot).clone()), ..(*caller).clone() };
        ctx.extensions.insert(Parent { caller, has_called });
        ctx
    }
}

fn is_unavailable(result: &Result<ToolOutput, ToolError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ToolErrorKind::Unavailable)
}

/// Runs a native tool where it cannot hold up anybody: a panic is contained, and a tool that blocks its
/// thread is left behind at the deadline.
async fn run_native(
    tool: Arc<dyn Tool>,
    ctx: ToolContext,
    args: portcullis_types::ToolArgs,
    time_limit: Duration,
) -> Result<ToolOutput, ToolError> {
    let cancel = ctx.cancel.clone();
    let deadline = ctx.deadline.unwrap_or_else(|| Instant::now() + time_limit);
    let stopped = cancel.clone();
    // Whatever ends the wait ends the work: also a caller that drops this future.
    let _stop = cancel.clone().drop_guard();
    let call = async move {
        let ran = AssertUnwindSafe(tool.call(&ctx, &args)).catch_unwind();
        // In this order, so that a tool is not polled after its time.
        tokio::select! {
            biased;
            () = stopped.cancelled() => Err(ToolError::cancelled("the call was cancelled")),
            () = tokio::time::sleep_until(deadline.into()) => Err(overdue(time_limit)),
            ran = ran => ran.unwrap_or_else(|_panic| Err(ToolError::internal("the tool panicked"))),
        }
    };
    let running = crate::spawn::blocking(call);
    tokio::select! {
        result = running => result?,
        () = cancel.cancelled() => Err(ToolError::cancelled("the call was cancelled")),
        () = tokio::time::sleep_until(deadline.into()) => Err(overdue(time_limit)),
    }
}

/// What a caller learns of a tool whose time is up.
pub(crate) fn overdue(limit: Duration) -> ToolError {
    ToolError::timeout(format!("the tool did not finish within {limit:?}"))
}

/// Takes partial results for whoever watches the call, each bounded as the result is; none where nobody does.
fn on_update(call_id: &str, caller: &Caller, limit: Option<OutputBytes>) -> Option<ToolUpdateFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let pass: ToolUpdateFn = Arc::new(move |partial| {
            let frame = StreamFrame::Update(partial);
            let frame = match limit {
                Some(limit) => bounded(frame, limit),
                None => frame,
            };
            pass_on(frame, &id, &watcher);
        });
        pass
    })
}

/// Takes progress for whoever watches the call; none where nobody does.
fn on_progress(call_id: &str, caller: &Caller) -> Option<ProgressFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let pass: ProgressFn = Arc::new(move |text: String| {
            let text = shortened(&text, MAX_PROGRESS_BYTES);
            pass_on(StreamFrame::Progress(text), &id, &watcher);
        });
        pass
    })
}

async fn run_guest(
    runner: &HostWasmToolRunner,
    guest: &GuestTool,
    attempt: Attempt<'_>,
    pending: &mut PendingRecord,
) -> Result<(Result<ToolOutput, ToolError>, Option<GuestUsage>, bool), ToolError> {
    let Attempt { checked, grant, slot, time_limit, deadline, caller, .. } = attempt;
    let job = GuestJob {
        module: Arc::clone(guest.module()),
        stdin: call_frame(checked, time_limit)?,
        mounts: grant.mounts.to_vec(),
        memory_bytes: usize::try_from(grant.limits.memory.0).unwrap_or(usize::MAX),
        time_limit,
        deadline,
        cancel: caller.cancel.clone(),
        held: Some(Box::new(slot.clone())),
        is_watched: caller.watches_frames(),
        transfer: caller.step.as_ref().and_then(|step| step.transfer.clone()),
    };
    let call_id = &checked.call.id;
    let limit = grant.limits.max_output;
    let ran = runner.run(job, |frame| pass_on(bounded(frame, limit), call_id, caller)).await;
    let report = match ran {
        Ok(report) => report,
        Err(error) => {
            pending.row.posture = Some("unproven".into());
            return Ok((Err(runner_error(&error, time_limit, caller)), None, may_try_again(&error, caller)));
        }
    };
    pending.row.posture = Some(report.posture.summary().into());
    if !report.stderr.is_empty() {
        tracing::info!(tool = %checked.call.tool, call_id, stderr = %report.stderr, "the guest wrote to its standard error");
        if let Some(listener) = &caller.on_stderr {
            listener(&report.stderr);
        }
    }
    let usage = GuestUsage {
        cpu: report.cpu,
        peak_memory_bytes: report.peak_memory_bytes as u64,
        mounts_used: report.mounts_used.iter().map(|name| name.as_str().into()).collect(),
    };
    Ok((guest_result(report, pending), Some(usage), false))
}

/// What a shell's run means for the row: what confined it, what it used, what it should not have made.
fn shell_result(
    ran: ShellRun,
    grant: &Grant,
    pending: &mut PendingRecord,
) -> (Result<ToolOutput, ToolError>, Option<GuestUsage>) {
    let Some(posture) = ran.posture else {
        pending.row.posture = Some("unproven".into());
        return (ran.result, None);
    };
    pending.row.posture = Some(posture.into());
    if !ran.protected_complete {
        tracing::warn!(call_id = %pending.row.call_id, "not all was looked at for protected paths after a command");
        pending.row.subjects.push(Subject {
            argument: "protected_paths_unseen".into(),
            kind: SubjectKind::Path,
            value: "/".into(),
        });
    }
    for path in ran.protected_paths {
        tracing::warn!(%path, call_id = %pending.row.call_id, "a command made a protected path");
        pending.row.subjects.push(Subject {
            argument: "protected_path_made".into(),
            kind: SubjectKind::Path,
            value: path.into(),
        });
    }
    let usage = GuestUsage {
        cpu: ran.cpu,
        peak_memory_bytes: ran.peak_memory_bytes,
        // Which of them a program touched, the kernel does not tell.
        mounts_used: grant.mounts.iter().map(|mount| mount.name.as_str().into()).collect(),
    };
    (ran.result, Some(usage))
}

/// The frame on the guest's standard input.
fn call_frame(checked: &Checked, time_limit: Duration) -> Result<Vec<u8>, ToolError> {
    let internal = |error: serde_json::Error| ToolError::internal(error.to_string());
    let frame = CallFrame {
        v: FRAME_VERSION,
        tool: checked.tool.guest_name().to_owned(),
        call_id: checked.call.id.clone(),
        arguments: RawValue::from_string(checked.args.text().to_owned()).map_err(internal)?,
        deadline_ms: u64::try_from(time_limit.as_millis()).unwrap_or(u64::MAX),
    };
    let mut line = serde_json::to_vec(&frame).map_err(internal)?;
    // The guest knows at once that this is all of it.
    line.push(b'\n');
    Ok(line)
}

/// A report no longer than whoever watches should have to read.
fn bounded(frame: StreamFrame, limit: OutputBytes) -> StreamFrame {
    match frame {
        StreamFrame::Progress(text) => StreamFrame::Progress(shortened(&text, MAX_PROGRESS_BYTES)),
        StreamFrame::Update(mut partial) => {
            cut_partial(&mut partial, usize::try_from(limit.0).unwrap_or(usize::MAX));
            StreamFrame::Update(partial)
        }
    }
}

/// The longest progress text that is passed on: 4 KiB, as of an error. It is a line for whoever watches.
const MAX_PROGRESS_BYTES: usize = 4096;

/// Hands a progress or update frame to whoever watches the call.
fn pass_on(frame: StreamFrame, call_id: &str, caller: &Caller) {
    let call_id = call_id.to_owned();
    match frame {
        StreamFrame::Progress(text) => {
            if let Some(listener) = &caller.on_progress {
                listener(text.clone());
            }
            caller.emit(&ToolEvent::Progress { call_id, text });
        }
        StreamFrame::Update(partial) => {
            if let Some(listener) = &caller.on_update {
                listener(partial.clone());
            }
            caller.emit(&ToolEvent::Update { call_id, partial });
        }
    }
}

/// What a guest's report means: a violation is a denial whatever the guest says.
fn guest_result(report: GuestReport, pending: &mut PendingRecord) -> Result<ToolOutput, ToolError> {
    if let Some(violation) = report.violation {
        let mut denial = match violation {
            Violation::Escape { path } => Denial {
                code: DenialCode::PathEscapesMount,
                rule: "mounts".to_owned(),
                subject: path,
                hint: "name a path within a mount".to_owned(),
            },
            Violation::Protected { path, pattern } => Denial {
                code: DenialCode::ProtectedPath,
                rule: format!("protect.paths[\"{pattern}\"]"),
                subject: path,
                hint: format!("`{pattern}` is protected at any depth; choose another path"),
            },
            Violation::HardLink { path } => Denial {
                code: DenialCode::HardLink,
                rule: "mounts".to_owned(),
                subject: path,
                hint: sandbox::links::REPLACE.to_owned(),
            },
        };
        // What it had done before is done: a tool that tells must be heard.
        if let Ok(FinalFrame::Error(error)) = report.result {
            denial.hint = format!("{}; the tool said: {}", denial.hint, error.message);
        }
        return Err(super::admit::refuse(denial, pending));
    }
    match report.result {
        Ok(FinalFrame::Ok(output)) => Ok(output),
        Ok(FinalFrame::Error(error)) => Err(error.into()),
        Err(fault) => Err((&fault).into()),
    }
}

/// Whether a guest that could not be run may be tried once more: nothing of it has run, and a thread may be free soon.
/// A step of an operation is no longer what it was: the other end has begun.
fn may_try_again(error: &WasmError, caller: &Caller) -> bool {
    matches!(error, WasmError::Exhausted { .. }) && caller.step.is_none()
}

/// What a caller learns when the runner could not run the guest.
fn runner_error(error: &WasmError, time_limit: Duration, caller: &Caller) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the runner could not run a guest");
    let detail = error.to_string();
    match error {
        WasmError::Stuck if caller.cancel.is_cancelled() => ToolError::cancelled("the call was cancelled"),
        WasmError::Stuck => overdue(time_limit),
        WasmError::Exhausted { .. } => {
            ToolError::unavailable("no thread is free that could run the tool").with_code("workers_exhausted")
        }
        WasmError::CodeGone => ToolError::unavailable(
            "the tool's compiled code was removed or altered; it is compiled anew at the next start",
        )
        .with_code("module_gone"),
        WasmError::Confine(_) | WasmError::Unconfined { .. } | WasmError::Preopen { .. } => {
            ToolError::unavailable("the tool cannot be confined here, so it does not run")
                .with_code("not_confined")
        }
        _ => return ToolError::internal(detail),
    }
    .with_operator_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Step;

    #[test]
    fn only_a_guest_that_has_not_begun_and_is_no_step_is_tried_again() {
        let exhausted = WasmError::Exhausted { mounts: "shared".to_owned(), stuck: 5 };
        let mut caller = Caller::new("tester", "run");
        assert!(may_try_again(&exhausted, &caller));
        for error in [WasmError::Stuck, WasmError::WorkerLost, WasmError::CodeGone] {
            assert!(!may_try_again(&error, &caller), "{error}");
        }
        caller.step = Some(Step { transfer: None });
        assert!(!may_try_again(&exhausted, &caller));
    }
}
