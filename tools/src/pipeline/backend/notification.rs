//! The backends of `send_notification`: the operation, and the step that speaks to a mail server.

use std::sync::Arc;

use portcullis_egress::Url;
use portcullis_types::{ToolArgs, ToolError, ToolOutput, async_trait};
use serde_json::{Value, json};

use super::{AttemptOutcome, Backend, CallAttempt, operation::context, time_limit_error};
use crate::{
    audit::Confinement,
    pipeline::{PendingRecord, admit::refuse, authorize::refuse_flow},
    registered::RegisteredTool,
    web::{self, GrantJudge, MailFailure, MailStep, PreparedMail, SendNotificationBackend},
};

#[async_trait]
impl Backend for SendNotificationBackend {
    /// The operation reaches the network only through its steps.
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    fn steps(&self) -> &[Arc<RegisteredTool>] {
        self.steps()
    }

    /// The steps are judged by the URL that the method and the policy give. Only one of the two steps has a
    /// URL, and the other one does not run.
    fn arguments_of_steps(&self, args: &ToolArgs) -> Result<Option<ToolArgs>, ToolError> {
        self.step_arguments(args.value()).map(Some)
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

#[async_trait]
impl Backend for MailStep {
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, grant, time_limit, labels, caller, host, .. } = attempt;
        let server = checked.args.value().get("server").and_then(Value::as_str).unwrap_or_default();
        let judge = Arc::new(GrantJudge::new(grant.clone(), None, time_limit).without_redirects());
        let judged = judge.judge("POST", server).map_err(|denial| refuse(denial, pending_record))?;
        let url: Url = judged.url().clone();
        let mail = PreparedMail::new(checked.args.value())?;
        labels.mark_secrets_sent(&web::secrets_for(grant, url.as_str()));
        labels.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending_record))?;
        // Set the secrets before sending, so that the row has them even if the caller cancels.
        pending_record.row.secrets = web::secrets_for(grant, url.as_str());
        let sent = tokio::select! {
            // `biased`: check cancellation first, so that nothing is sent after it.
            biased;
            () = caller.cancel.cancelled() => Err(MailFailure::Tool(crate::call::cancelled_error())),
            sent = tokio::time::timeout(time_limit, mail.send(&self.http_client, &judge, &url)) => {
                sent.unwrap_or_else(|_elapsed| Err(MailFailure::Tool(time_limit_error(time_limit))))
            }
        };
        pending_record.row.secrets = judge.sent_secrets().into_iter().map(Into::into).collect();
        pending_record.row.requests = judge.requests();
        let result = match sent {
            Ok(()) => Ok(ToolOutput::structured(json!({ "message_id": mail.id() }))),
            Err(MailFailure::Tool(error)) => Err(error),
            Err(MailFailure::Dial(error)) => Err(match judge.take_denial() {
                Some(denial) => refuse(denial, pending_record),
                None => web::request_error(error, &judge),
            }),
        };
        Ok(AttemptOutcome::without_retry(result))
    }
}
