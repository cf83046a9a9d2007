//! Backend of module tools: each call runs in a fresh store, on a thread confined to the call's mounts.

use std::{sync::Arc, time::Duration};

use portcullis_policy::{Denial, DenialCode, Grant};
use portcullis_types::{CallFrame, FRAME_VERSION, FinalFrame, ToolError, ToolOutput, async_trait};
use serde_json::value::RawValue;

use super::{
    Backend, CallAttempt, ResourceUsage, TryOutcome,
    guest_requests::GuestRequests,
    overdue,
    reports::{bounded, pass_on},
};
use crate::{
    approval::StepGrant,
    audit::Confinement,
    call::Caller,
    modules::DeclarationFacts,
    pipeline::{Host, PendingRecord, admit::refuse, check::Checked},
    sandbox::{self, GuestJob, GuestModule, GuestReport, HttpPort, Violation, WasmError},
    web::DeclaredHosts,
};

/// A tool of a module.
#[derive(Debug, Clone)]
pub(crate) struct GuestTool {
    pub(crate) module: Arc<GuestModule>,
    /// The file of the module, or the embedder's name for it.
    pub(crate) module_name: String,
    pub(crate) declared: DeclarationFacts,
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

    /// A guest may read a file and write it back. For a step, the operation already holds the mounts.
    fn writes_alone<'g>(&self, own: &'g Grant, _steps: &'g [StepGrant], caller: &Caller) -> Vec<&'g Grant> {
        if caller.step.is_none() { vec![own] } else { Vec::new() }
    }

    fn guest(&self) -> Option<&GuestTool> {
        Some(self)
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending: &mut PendingRecord,
    ) -> Result<TryOutcome, ToolError> {
        let CallAttempt { checked, grant, slot, time_limit, deadline, reading, caller, host, .. } = attempt;
        let requests = self.hosts.as_ref().zip(host.gate.as_ref());
        let (port, mut asks) = requests.map(|_| HttpPort::open()).unzip();
        let runner =
            host.runner.as_ref().ok_or_else(|| ToolError::unavailable("no WebAssembly runner is set up"))?;
        let job = GuestJob {
            module: Arc::clone(&self.module),
            stdin: call_frame(checked, time_limit)?,
            mounts: grant.mounts.to_vec(),
            used: reading.used().clone(),
            memory_bytes: usize::try_from(grant.limits.memory.0).unwrap_or(usize::MAX),
            time_limit,
            deadline,
            cancel: caller.cancel.clone(),
            held: Some(Box::new(slot.clone())),
            is_watched: caller.watches_frames(),
            transfer: caller.step.as_ref().and_then(|step| step.transfer.clone()),
            http: port,
        };
        let call_id = &checked.call.id;
        let limit = grant.limits.max_output;
        let running = runner.run(job, |frame| pass_on(bounded(frame, limit), call_id, caller));
        // Each request has a row of its own; the call's names the secrets of all.
        let (mut secrets, mut recorded) = (Vec::new(), Ok(()));
        let ran = match (requests, &mut asks) {
            (Some((declared, gate)), Some(asks)) => {
                let mut requests = GuestRequests::new(attempt, gate, declared.clone());
                let ran = tokio::select! {
                    ran = running => ran,
                    never = requests.serve(asks) => match never {},
                };
                secrets = requests.secrets();
                recorded = requests.finish();
                ran
            }
            _ => running.await,
        };
        pending.row.secrets = secrets;
        recorded?;
        let report = match ran {
            Ok(report) => report,
            Err(error) => {
                pending.row.posture = Some("unproven".into());
                let may_try_again = may_try_again(&error, caller);
                return Ok(TryOutcome {
                    may_try_again,
                    ..TryOutcome::once(Err(runner_error(&error, time_limit, caller)))
                });
            }
        };
        pending.row.posture = Some(report.posture.summary().into());
        if !report.stderr.is_empty() {
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
        };
        Ok(TryOutcome { usage: Some(usage), ..TryOutcome::once(guest_result(report, pending)) })
    }
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
    // The newline tells the guest that the frame is complete.
    line.push(b'\n');
    Ok(line)
}

/// The result of a guest's report. A violation is a denial, whatever the guest reports.
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
            Violation::Withheld { path, refusal } => {
                Denial { code: DenialCode::FlowDenied, rule: refusal.rule, subject: path, hint: refusal.hint }
            }
        };
        // Effects before the violation remain, so the tool's own message is passed on.
        if let Ok(FinalFrame::Error(error)) = report.result {
            denial.hint = format!("{}; the tool said: {}", denial.hint, error.message);
        }
        return Err(refuse(denial, pending));
    }
    match report.result {
        Ok(FinalFrame::Ok(output)) => Ok(output),
        Ok(FinalFrame::Error(error)) => Err(error.into()),
        Err(fault) => Err((&fault).into()),
    }
}

/// Whether a guest that could not start may be tried again: none of it has run, and a thread may be free
/// soon. A step of an operation is not repeated, because the other end of the transfer has begun.
fn may_try_again(error: &WasmError, caller: &Caller) -> bool {
    matches!(error, WasmError::Exhausted { .. }) && caller.step.is_none()
}

/// The caller's error when the runner could not run the guest.
fn runner_error(error: &WasmError, time_limit: Duration, caller: &Caller) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the runner could not run a guest");
    let detail = error.to_string();
    match error {
        WasmError::Stuck if caller.cancel.is_cancelled() => ToolError::cancelled("the call was cancelled"),
        WasmError::Stuck => overdue(time_limit),
        WasmError::Exhausted { .. } => {
            ToolError::unavailable("no thread is free to run the tool").with_code("workers_exhausted")
        }
        WasmError::CodeGone => ToolError::unavailable(
            "the tool's compiled code was removed or altered; it is compiled again at the next start",
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
    use crate::call::OperationStep;

    #[test]
    fn a_guest_that_never_began_is_tried_again_unless_it_is_a_step() {
        let exhausted = WasmError::Exhausted { mounts: "shared".to_owned(), stuck: 5 };
        let mut caller = Caller::new("tester", "run");
        assert!(may_try_again(&exhausted, &caller));
        for error in [WasmError::Stuck, WasmError::WorkerLost, WasmError::CodeGone] {
            assert!(!may_try_again(&error, &caller), "{error}");
        }
        caller.step = Some(OperationStep::default());
        assert!(!may_try_again(&exhausted, &caller));
    }
}
