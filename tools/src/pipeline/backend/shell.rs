//! The backend of commands, which run in the sessions of a sidecar.

use portcullis_policy::Grant;
use portcullis_types::{ToolError, ToolOutput, async_trait};

use super::{
    AttemptOutcome, Backend, CallAttempt, ResourceUsage, change_recording::written_with_undo,
    reports::update_forwarder,
};
use crate::{
    audit::{Confinement, Subject, SubjectKind, SubjectSource},
    pipeline::{Host, PendingRecord, authorize::refuse_flow, flow::judge_flow_again},
    shell::{BashTool, ShellBackend, ShellCallContext, ShellRun},
};

#[async_trait]
impl Backend for BashTool {
    fn confinement(&self) -> Confinement {
        Confinement::Shell
    }

    fn is_unconfined(&self) -> bool {
        matches!(self.backend(), ShellBackend::Host(_))
    }

    fn unavailable_reason(&self, _host: &Host) -> Option<&str> {
        match self.backend() {
            ShellBackend::Disabled { reason } => Some(reason),
            ShellBackend::Session(sidecar) | ShellBackend::Host(sidecar) => sidecar.refusal(),
        }
    }

    /// The policy's `shell.output` limits the output of a command.
    fn bounds_results(&self) -> bool {
        true
    }

    fn shell(&self) -> Option<&ShellBackend> {
        Some(self.backend())
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, grant, time_limit, deadline, labels, caller, host, .. } = attempt;
        let call = ShellCallContext {
            call_id: &checked.call.id,
            has_undo: written_with_undo(grant, host).next().is_some(),
            args: checked.args.value(),
            grant,
            time_limit,
            deadline,
            caller,
            // Partial results need no limit here: they are pieces of the output, and the sidecar's message
            // size bounds them.
            on_update: update_forwarder(&checked.call.id, caller, None),
            labels: &host.labels,
            judge_again: &|| judge_flow_again(checked, grant, host, &labels.context_without_call(caller)),
        };
        let mut shell_run = self.run(call).await;
        if let Some(denial) = shell_run.denial.take() {
            return Err(refuse_flow(denial, pending_record));
        }
        let (trailer, may_retry) = (shell_run.trailer.clone(), shell_run.found_no_session);
        let (result, usage) = shell_result(shell_run, grant, pending_record);
        Ok(AttemptOutcome { trailer, usage, may_retry, ..AttemptOutcome::without_retry(result) })
    }
}

/// Adds the posture and the protected paths of a command to the row, and returns its usage.
fn shell_result(
    shell_run: ShellRun,
    grant: &Grant,
    pending_record: &mut PendingRecord,
) -> (Result<ToolOutput, ToolError>, Option<ResourceUsage>) {
    let Some(posture) = shell_run.posture else {
        pending_record.row.posture = Some("unproven".into());
        return (shell_run.result, None);
    };
    pending_record.row.posture = Some(posture.into());
    if !shell_run.protected_complete {
        tracing::warn!(call_id = %pending_record.row.call_id, "the scan for protected paths after a command was incomplete");
        pending_record.row.subjects.push(Subject {
            source: SubjectSource::ProtectedPathsUnseen,
            kind: SubjectKind::Path,
            value: "/".into(),
        });
    }
    for path in shell_run.protected_paths {
        tracing::warn!(%path, call_id = %pending_record.row.call_id, "a command made a protected path");
        pending_record.row.subjects.push(Subject {
            source: SubjectSource::ProtectedPathMade,
            kind: SubjectKind::Path,
            value: path.into(),
        });
    }
    let usage = ResourceUsage {
        cpu: shell_run.cpu,
        peak_memory_bytes: shell_run.peak_memory_bytes,
        // The kernel does not report which mounts a program accessed, so list all of them.
        mounts_used: grant.mounts.iter().map(|mount| mount.name.as_str().into()).collect(),
        touched: None,
        touched_paths: Vec::new(),
        connections: shell_run.connections,
        connections_omitted: shell_run.connections_omitted,
    };
    (shell_run.result, Some(usage))
}
