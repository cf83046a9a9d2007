//! The backend of operations. An operation is a call that calls its steps. Each step has its own audit row.

use std::sync::Arc;

use portcullis_policy::Grant;
use portcullis_types::{ToolArgs, ToolError, async_trait};

use super::{AttemptOutcome, Backend, CallAttempt, reports::progress_forwarder};
use crate::{
    approval::StepGrant,
    audit::Confinement,
    call::{Caller, OperationContext},
    pipeline::{Host, PendingRecord},
    registered::RegisteredTool,
    vault::VaultCopyBackend,
    web::{WebFetchBackend, WebSearchBackend},
};

#[async_trait]
impl Backend for VaultCopyBackend {
    /// The operation accesses files only through its steps, which are guests.
    fn confinement(&self) -> Confinement {
        Confinement::Wasm
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.unavailable_guests_reason()
    }

    /// The operation holds the locks of the mounts that its steps write.
    fn exclusive_write_grants<'g>(
        &self,
        _own: &'g Grant,
        steps: &'g [StepGrant],
        _caller: &Caller,
    ) -> Vec<&'g Grant> {
        steps.iter().map(|step| &step.grant).collect()
    }

    fn steps(&self) -> &[Arc<RegisteredTool>] {
        self.steps()
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, caller, host, .. } = attempt;
        let context = context(attempt, pending_record);
        let result = self
            .run(host.operation_steps.as_ref(), &checked.call.id, checked.args.value(), context, caller)
            .await;
        Ok(AttemptOutcome::without_retry(result))
    }
}

#[async_trait]
impl Backend for WebFetchBackend {
    /// The operation reaches the network only through its request step.
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.unavailable_guests_reason()
    }

    fn steps(&self) -> &[Arc<RegisteredTool>] {
        self.steps()
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, caller, host, .. } = attempt;
        let context = context(attempt, pending_record);
        let (steps, robots) = (host.operation_steps.as_ref(), host.policy.egress().robots);
        let result = self.run(steps, checked.args.value(), robots, context, caller).await;
        Ok(AttemptOutcome::without_retry(result))
    }
}

#[async_trait]
impl Backend for WebSearchBackend {
    /// The operation reaches the network only through its request step.
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.unavailable_guests_reason()
    }

    fn steps(&self) -> &[Arc<RegisteredTool>] {
        self.steps()
    }

    /// The steps are judged by the URL that the query and the policy give.
    fn arguments_of_steps(&self, args: &ToolArgs) -> Result<Option<ToolArgs>, ToolError> {
        self.request_arguments(args.value()).map(Some)
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, caller, host, .. } = attempt;
        let context = context(attempt, pending_record);
        let result = self.run(host.operation_steps.as_ref(), checked.args.value(), context, caller).await;
        Ok(AttemptOutcome::without_retry(result))
    }
}

pub(super) fn context(attempt: CallAttempt<'_>, pending_record: &PendingRecord) -> OperationContext {
    let CallAttempt { checked, slot, time_limit, deadline, is_approved, caller, .. } = attempt;
    OperationContext {
        operation_id: pending_record.row.operation_id.clone(),
        call_id: checked.call.id.clone(),
        is_approved,
        time_limit,
        deadline,
        slot: slot.clone(),
        on_progress: progress_forwarder(&checked.call.id, caller),
    }
}
