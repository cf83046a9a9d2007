//! The backend of request steps, and a helper that sends a call's single request. The host's HTTP client
//! makes the requests, on its confined threads.

use std::{sync::Arc, time::Instant};

use portcullis_egress::{HeaderMap, HeaderValue, Method, Request, Response};
use portcullis_types::{ToolError, ToolOutput, async_trait};
use serde_json::{Value, json};

use super::{AttemptOutcome, Backend, CallAttempt};
use crate::{
    audit::Confinement,
    pipeline::{PendingRecord, admit::refuse, authorize::refuse_flow},
    web::{
        self, BODY, GrantJudge, HttpClientHandle, Redirect, RedirectRefusal, Redirects, RequestError,
        RequestOutcome, RequestStep, URL,
    },
};

#[async_trait]
impl Backend for RequestStep {
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, grant, time_limit, caller, host, .. } = attempt;
        let text = |key: &str| checked.args.value().get(key).and_then(Value::as_str);
        let (url, method) = (text(URL).unwrap_or_default(), self.template.method.as_str());
        let tool = checked.tool.descriptor().name.as_str();
        let judge = GrantJudge::new(grant.clone(), None, time_limit).with_pooled_connections(
            host.policy.digest().as_str(),
            tool,
            caller,
        );
        let options = caller.operation_step.as_ref().and_then(|step| step.request_options.as_ref());
        let judge = Arc::new(match (self.template.redirects, options) {
            (Redirects::AsGranted, Some(options)) => judge.stopping_at_redirects(options.redirects_followed),
            (Redirects::AsGranted, None) => judge,
            (Redirects::Never, _) => judge.without_redirects(),
        });
        let judged = judge.judge(method, url).map_err(|denial| refuse(denial, pending_record))?;
        if let Some(refusal) = options.and_then(|options| options.refusal.as_ref()) {
            return Err(refuse(refusal.denial(judged.url()), pending_record));
        }
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|error| ToolError::internal(error.to_string()))?;
        // Use the judged form of the URL, because the argument may spell it differently.
        let request = Request {
            method,
            headers: headers(HeaderValue::from_static(self.template.accept), text(BODY).is_some()),
            body: text(BODY).unwrap_or_default().to_owned().into(),
            ..Request::get(judged.url().clone())
        };
        let response = send_labelled(&attempt, &self.http_client, &judge, request, pending_record).await?;
        let leave_outcome = |outcome: Result<RequestOutcome, RedirectRefusal>| {
            if let Some(shared_outcome) =
                caller.operation_step.as_ref().and_then(|step| step.request_outcome.as_ref())
            {
                // A step makes one request, so the cell is empty.
                let _ = shared_outcome.set(outcome);
            }
        };
        let result = match (response, judge.take_redirect()) {
            (Ok(response), _) => {
                let output = summary(&response);
                leave_outcome(Ok(RequestOutcome::Response(response)));
                Ok(output)
            }
            (Err(_), Some(Redirect::Allowed(target))) => {
                let output = ToolOutput::text("redirected").with_details(json!({ "url": target.as_str() }));
                leave_outcome(Ok(RequestOutcome::Redirect(target)));
                Ok(output)
            }
            (Err(failure), refused) => {
                if refused.is_some() {
                    leave_outcome(Err(RedirectRefusal));
                }
                Err(error_of(failure, pending_record))
            }
        };
        Ok(AttemptOutcome::without_retry(result))
    }
}

/// Sends the judged request of a call, and labels the run with the data that it read and sent.
///
/// # Errors
/// A flow rule's denial. The inner result is the outcome of the request.
pub(super) async fn send_labelled(
    attempt: &CallAttempt<'_>,
    http_client: &HttpClientHandle,
    judge: &Arc<GrantJudge>,
    request: Request,
    pending_record: &mut PendingRecord,
) -> Result<Result<Response, RequestError>, ToolError> {
    let CallAttempt { grant, labels, caller, host, .. } = attempt;
    // Set the labels before the request is sent, so that they precede the response.
    labels.mark_web_read();
    labels.mark_secrets_sent(&web::secrets_for(grant, request.url.as_str()));
    labels.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending_record))?;
    let cancel = caller.cancel.child_token();
    let response = web::send(http_client, judge, request, cancel, &mut pending_record.row).await;
    // A redirect may have carried more secrets.
    labels.mark_secrets_sent(&pending_record.row.secrets);
    Ok(response)
}

/// Returns the judge of a call with a configured URL. Its time limit is the time left for the call.
pub(super) fn judge_of_configured(attempt: &CallAttempt<'_>) -> Arc<GrantJudge> {
    let CallAttempt { checked, grant, deadline, caller, host, .. } = attempt;
    let time_left = deadline.saturating_duration_since(Instant::now());
    let tool = checked.tool.descriptor().name.as_str();
    let judge = GrantJudge::new((*grant).clone(), None, time_left)
        .with_slow_answers()
        .with_pooled_connections(host.policy.digest().as_str(), tool, caller);
    Arc::new(judge)
}

/// Returns the error of a failed request, and records a denial in the row.
pub(super) fn error_of(failure: RequestError, pending_record: &mut PendingRecord) -> ToolError {
    match failure {
        RequestError::Denied(denial) => refuse(denial, pending_record),
        RequestError::Failed(error) => error,
    }
}

/// Returns the headers of a request. A body is always JSON.
pub(super) fn headers(accept: HeaderValue, has_body: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", web::USER_AGENT);
    headers.insert("accept", accept);
    if has_body {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    }
    headers
}

/// Builds the result for the row and the operation, without the body: the body goes to the guest.
fn summary(response: &Response) -> ToolOutput {
    let (status, bytes) = (response.status.as_u16(), response.body.len());
    let mut details = json!({
        "url": response.url.as_str(),
        "status": status,
        "bytes": bytes,
        "redirects": response.redirects,
    });
    if response.redacted {
        details["redacted"] = true.into();
    }
    ToolOutput::text(format!("status {status}, {bytes} bytes")).with_details(details)
}
