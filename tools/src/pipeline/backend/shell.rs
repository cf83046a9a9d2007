//! Backend of commands, which run in the sessions of a sidecar.

use portcullis_policy::Grant;
use portcullis_types::{ToolError, ToolOutput, async_trait};

use super::{AttemptOutcome, Backend, CallAttempt, ResourceUsage, reports::on_update};
use crate::{
    audit::{Confinement, Subject, SubjectKind},
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

    /// The policy's `shell.output` limits a command's output.
    fn bounds_results(&self) -> bool {
        true
    }

    fn shell(&self) -> Option<&ShellBackend> {
        Some(self.backend())
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, grant, time_limit, deadline, labels, caller, host, .. } = attempt;
        let call = ShellCallContext {
            args: checked.args.value(),
            grant,
            time_limit,
            deadline,
            caller,
            // There is no limit here: partial results are pieces of the output, which the sidecar's message
            // size bounds.
            on_update: on_update(&checked.call.id, caller, None),
            labels: &host.labels,
            judge_again: &|| judge_flow_again(checked, grant, host, &labels.facts_of_others(caller)),
        };
        let mut ran = self.run(call).await;
        if let Some(denial) = ran.denial.take() {
            return Err(refuse_flow(denial, pending));
        }
        let (trailer, may_retry) = (ran.trailer.clone(), ran.found_no_session);
        let (result, usage) = shell_result(ran, grant, pending);
        Ok(AttemptOutcome { result, trailer, usage, may_retry })
    }
}

/// Adds the posture, the usage and the protected paths of a command to the row.
fn shell_result(
    ran: ShellRun,
    grant: &Grant,
    pending: &mut PendingRecord,
) -> (Result<ToolOutput, ToolError>, Option<ResourceUsage>) {
    let Some(posture) = ran.posture else {
        pending.call.posture = Some("unproven".into());
        return (ran.result, None);
    };
    pending.call.posture = Some(posture.into());
    if !ran.protected_complete {
        tracing::warn!(call_id = %pending.call.call_id, "the scan for protected paths after a command was incomplete");
        pending.call.subjects.push(Subject {
            argument: "protected_paths_unseen".into(),
            kind: SubjectKind::Path,
            value: "/".into(),
        });
    }
    for path in ran.protected_paths {
        tracing::warn!(%path, call_id = %pending.call.call_id, "a command made a protected path");
        pending.call.subjects.push(Subject {
            argument: "protected_path_made".into(),
            kind: SubjectKind::Path,
            value: path.into(),
        });
    }
    let usage = ResourceUsage {
        cpu: ran.cpu,
        peak_memory_bytes: ran.peak_memory_bytes,
        // The kernel does not tell which mounts a program touched, so all are listed.
        mounts_used: grant.mounts.iter().map(|mount| mount.name.as_str().into()).collect(),
        connections: ran.connections,
        connections_omitted: ran.connections_omitted,
    };
    (ran.result, Some(usage))
}
