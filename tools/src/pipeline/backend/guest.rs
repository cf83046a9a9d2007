//! The backend of module tools. Each call runs in a fresh store, on a thread confined to the call's mounts.

use std::{sync::Arc, time::Duration};

use portcullis_policy::{Denial, DenialCode, Grant, WITHHELD_KIND_RULE};
use portcullis_types::{
    CallFrame, FRAME_VERSION, FinalFrame, ToolError, ToolErrorCode, ToolOutput, async_trait,
};
use serde_json::value::RawValue;

use super::{
    AttemptOutcome, Backend, CallAttempt, ResourceUsage,
    change_recording::ChangeRecording,
    guest_requests::GuestRequests,
    reports::{bound_frame, forward_frame},
    time_limit_error,
};
use crate::{
    approval::StepGrant,
    audit::{Confinement, SharedText, Subject, TouchedMount},
    call::{Caller, cancelled_error},
    modules::DeclarationSummary,
    pipeline::{Host, PendingRecord, admit::refuse, check::Checked},
    sandbox::{
        self, GuestJob, GuestModule, GuestReport, HttpOperationSender, ModuleDigest, Violation, WasmError,
    },
    spawn,
    web::DeclaredHosts,
};

/// The maximum number of accessed paths in a row: 32.
const MAX_TOUCHED_PATHS: usize = 32;

/// A tool of a module.
#[derive(Debug, Clone)]
pub(crate) struct GuestTool {
    pub(crate) module: Arc<GuestModule>,
    /// The module's file, or the embedding program's name for the module.
    pub(crate) module_name: String,
    pub(crate) declarations: DeclarationSummary,
    /// The hosts that the tool declares, if it declares any.
    pub(crate) hosts: Option<DeclaredHosts>,
}

#[async_trait]
impl Backend for GuestTool {
    fn confinement(&self) -> Confinement {
        Confinement::Wasm
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.unavailable_guests_reason()
    }

    /// A guest may read a file, modify it and write it back, so it locks its writable mounts. A step need
    /// not: its operation already holds the locks.
    fn exclusive_write_grants<'g>(
        &self,
        own: &'g Grant,
        _steps: &'g [StepGrant],
        caller: &Caller,
    ) -> Vec<&'g Grant> {
        if caller.operation_step.is_none() { vec![own] } else { Vec::new() }
    }

    /// A guest may read a remote resource, modify it and write it back, so it locks such requests. A tool
    /// that declares no host makes none.
    fn exclusive_request_module(&self, own: &Grant) -> Option<ModuleDigest> {
        let may_change = own
            .network
            .as_ref()
            .is_some_and(|network| network.methods.iter().any(|method| !method.is_safe()));
        (may_change && self.hosts.is_some()).then(|| self.module.digest())
    }

    fn guest(&self) -> Option<&GuestTool> {
        Some(self)
    }

    /// Loads the module's code. The first load of all compiles the module, which can take seconds.
    async fn prepare(&self, host: &Host) {
        let Some(runner) = host.runner.clone() else { return };
        if self.module.is_loaded() {
            return;
        }
        let module = Arc::clone(&self.module);
        // The attempt loads the code again and reports the error.
        let _ = spawn::spawn_blocking(async move { runner.load_code(&module) }).await;
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt {
            checked,
            grant,
            slot,
            time_limit,
            deadline,
            labels,
            forbidden_kinds,
            caller,
            host,
            ..
        } = attempt;
        let requests = self.hosts.as_ref().zip(host.http_client.as_ref());
        let (http_sender, mut http_operations) = requests.map(|_| HttpOperationSender::open()).unzip();
        let runner =
            host.runner.as_ref().ok_or_else(|| ToolError::unavailable("no WebAssembly runner is set up"))?;
        let (before_change, mut change_recording) = ChangeRecording::start(attempt).unzip();
        let job = GuestJob {
            module: Arc::clone(&self.module),
            stdin: call_frame(checked, time_limit)?,
            mounts: grant.mounts.to_vec(),
            mount_use: labels.mount_use().clone(),
            before_change,
            forbidden_kinds: forbidden_kinds.cloned(),
            memory_bytes: usize::try_from(grant.limits.memory.0).unwrap_or(usize::MAX),
            time_limit,
            deadline,
            cancel: caller.cancel.clone(),
            call_resource: Some(Box::new(slot.clone())),
            is_watched: caller.watches_frames(),
            transfer: caller.operation_step.as_ref().and_then(|step| step.transfer.clone()),
            http: http_sender,
        };
        let call_id = &checked.call.id;
        let limit = grant.limits.max_output;
        let guest_run = runner.run(job, |frame| forward_frame(bound_frame(frame, limit), call_id, caller));
        let mut requests = requests.map(|(declared_hosts, http_client)| {
            GuestRequests::new(attempt, http_client, declared_hosts.clone())
        });
        // With nothing to serve, these futures stay pending, so that `select!` waits for the guest. The work itself is
        // boxed, because most calls have none, and its size would count in the future of every call.
        let serve_requests = async {
            match (&mut requests, &mut http_operations) {
                (Some(requests), Some(http_operations)) => Box::pin(requests.serve(http_operations)).await,
                _ => std::future::pending().await,
            }
        };
        let keep_changes = async {
            match &mut change_recording {
                Some(change_recording) => Box::pin(change_recording.serve()).await,
                None => std::future::pending().await,
            }
        };
        // The other two futures never complete: the guest's end drops them.
        let run_result = tokio::select! {
            result = guest_run => result,
            never = serve_requests => match never {},
            never = keep_changes => match never {},
        };
        // Each request has its own row. The call's row lists the secrets of all requests.
        pending_record.row.secrets = requests.as_ref().map(GuestRequests::secrets).unwrap_or_default();
        let is_ended_by_host = !matches!(&run_result, Ok(report) if report.result.is_ok());
        let mut outcome = outcome_of(run_result, attempt, pending_record);
        if let Some(requests) = requests {
            let failure = outcome.result.as_ref().err().filter(|_| is_ended_by_host);
            if let Err(unrecorded) = requests.finish(failure) {
                outcome.result = Err(unrecorded);
            }
        }
        Ok(outcome)
    }
}

/// Returns the outcome of a guest that ran, or that could not be run.
fn outcome_of(
    run_result: Result<GuestReport, WasmError>,
    CallAttempt { checked, time_limit, caller, .. }: CallAttempt<'_>,
    pending_record: &mut PendingRecord,
) -> AttemptOutcome {
    let report = match run_result {
        Ok(report) => report,
        Err(error) => {
            pending_record.row.posture = Some("unproven".into());
            let may_retry = may_retry(&error, caller);
            return AttemptOutcome {
                may_retry,
                ..AttemptOutcome::without_retry(Err(runner_error(&error, time_limit, caller)))
            };
        }
    };
    pending_record.row.posture = Some(report.posture.summary().into());
    if !report.stderr.is_empty() {
        let call_id = &checked.call.id;
        tracing::info!(tool = %checked.call.tool, call_id, stderr = %report.stderr, "the guest wrote to its standard error");
        if let Some(listener) = &caller.on_stderr {
            listener(&report.stderr);
        }
    }
    let usage = ResourceUsage {
        connections: Vec::new(),
        connections_omitted: 0,
        cpu: report.cpu,
        peak_memory_bytes: report.peak_memory_bytes as u64,
        mounts_used: report.mounts_used.iter().map(|name| name.as_str().into()).collect(),
        touched: Some(report.touched.iter().map(row_touched).collect()),
        touched_paths: paths_beyond_subjects(&report.touched_paths, &pending_record.row.subjects),
    };
    AttemptOutcome {
        usage: Some(usage),
        ..AttemptOutcome::without_retry(guest_result(report, pending_record))
    }
}

fn row_touched(touched: &sandbox::MountTouches) -> TouchedMount {
    let sandbox::MountTouches { mount, read, written, created, removed } = touched;
    TouchedMount {
        mount: mount.as_str().into(),
        read: *read,
        written: *written,
        created: *created,
        removed: *removed,
    }
}

/// Returns the first accessed paths that are not among the row's subjects.
fn paths_beyond_subjects(touched: &[String], subjects: &[Subject]) -> Vec<SharedText> {
    let is_subject = |path: &str| subjects.iter().any(|subject| &*subject.value == path);
    let beyond = touched.iter().filter(|path| !is_subject(path));
    beyond.take(MAX_TOUCHED_PATHS).map(|path| path.as_str().into()).collect()
}

/// Builds the frame for the guest's standard input.
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
    // The newline tells the guest that the frame is complete.
    line.push(b'\n');
    Ok(line)
}

/// Returns the result of a guest's report. A violation is a denial, even if the guest reports success.
fn guest_result(report: GuestReport, pending_record: &mut PendingRecord) -> Result<ToolOutput, ToolError> {
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
            Violation::Hidden { path, pattern } => Denial {
                code: DenialCode::HiddenPath,
                rule: format!("hide.paths[\"{pattern}\"]"),
                subject: path,
                hint: format!("the operator hides `{pattern}` at any depth; choose another name"),
            },
            Violation::WithheldKind { path, pattern } => Denial {
                code: DenialCode::KindWithheld,
                rule: WITHHELD_KIND_RULE.to_owned(),
                subject: path,
                hint: format!(
                    "`{pattern}` is a protected kind, which other programs run or load; name the file in an argument of the call, so that the flow rule can decide"
                ),
            },
            Violation::HardLink { path } => Denial {
                code: DenialCode::HardLink,
                rule: "mounts".to_owned(),
                subject: path,
                hint: sandbox::hard_links::REPLACE.to_owned(),
            },
            Violation::NotRecorded { path } => {
                return Err(ToolError::unavailable(format!(
                    "the state of `{path}` could not be kept for `undo`, so it was not changed"
                ))
                .with_code(ToolErrorCode::UndoUnavailable));
            }
            Violation::Withheld { path, refusal } => {
                Denial { code: DenialCode::FlowDenied, rule: refusal.rule, subject: path, hint: refusal.hint }
            }
        };
        // Effects before the violation remain, so add the tool's own message.
        if let Ok(FinalFrame::Error(error)) = report.result {
            denial.hint = format!("{}; the tool said: {}", denial.hint, error.message);
        }
        return Err(refuse(denial, pending_record));
    }
    match report.result {
        Ok(FinalFrame::Ok(output)) => Ok(output),
        Ok(FinalFrame::Error(error)) => Err(error.into()),
        Err(fault) => Err((&fault).into()),
    }
}

/// Whether to retry the call of a guest that could not start: no guest code has run, and a thread may soon be
/// free. A step of an operation is not retried, because the other end of the transfer has already started.
fn may_retry(error: &WasmError, caller: &Caller) -> bool {
    matches!(error, WasmError::Exhausted { .. }) && caller.operation_step.is_none()
}

/// Converts an error of the runner to an error for the caller.
fn runner_error(error: &WasmError, time_limit: Duration, caller: &Caller) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the runner could not run a guest");
    let detail = error.to_string();
    match error {
        WasmError::Stuck if caller.cancel.is_cancelled() => cancelled_error(),
        WasmError::Stuck => time_limit_error(time_limit),
        WasmError::Exhausted { .. } => ToolError::unavailable("no thread is free to run the tool")
            .with_code(ToolErrorCode::WorkersExhausted),
        WasmError::CodeGone => ToolError::unavailable(
            "the tool's compiled code was removed or altered; it is compiled again at the next start",
        )
        .with_code(ToolErrorCode::ModuleGone),
        WasmError::Confine(_) | WasmError::Unconfined { .. } | WasmError::Preopen { .. } => {
            ToolError::unavailable("the tool cannot be confined here, so it does not run")
                .with_code(ToolErrorCode::NotConfined)
        }
        _ => return ToolError::internal(detail),
    }
    .with_operator_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::OperationStep;

    #[test]
    fn a_guest_that_never_began_is_tried_again_unless_it_is_a_step() {
        let exhausted = WasmError::Exhausted { mounts: "shared".to_owned(), stuck_threads: 5 };
        let mut caller = Caller::new("tester", "run");
        assert!(may_retry(&exhausted, &caller));
        for error in [WasmError::Stuck, WasmError::WorkerLost, WasmError::CodeGone] {
            assert!(!may_retry(&error, &caller), "{error}");
        }
        caller.operation_step = Some(OperationStep::default());
        assert!(!may_retry(&exhausted, &caller));
    }
}
