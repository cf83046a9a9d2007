//! Backend of requests: the host's HTTP client makes them, on its confined threads.

use std::sync::Arc;

use portcullis_egress::{CancellationToken, HeaderMap, HeaderValue, Method, Request, Response};
use portcullis_types::{ToolError, ToolOutput, async_trait};
use serde_json::{Value, json};

use super::{Backend, CallAttempt, TryOutcome};
use crate::{
    audit::Confinement,
    pipeline::{PendingRecord, admit::refuse, authorize::refuse_flow},
    web::{self, BODY, GrantJudge, Redirects, RequestFailure, RequestStep, URL},
};

#[async_trait]
impl Backend for RequestStep {
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending: &mut PendingRecord,
    ) -> Result<TryOutcome, ToolError> {
        let CallAttempt { checked, grant, time_limit, reading, caller, host, .. } = attempt;
        let text = |key: &str| checked.args.value().get(key).and_then(Value::as_str);
        let (url, method) = (text(URL).unwrap_or_default(), self.form.method.as_str());
        let tool = checked.tool.facts().name.as_str();
        let judge = GrantJudge::new(grant.clone(), None, time_limit).keeping_connections(
            host.policy.digest().as_str(),
            tool,
            caller,
        );
        let judge = Arc::new(match self.form.redirects {
            Redirects::AsGranted => judge,
            Redirects::Never => judge.without_redirects(),
        });
        let judged = judge.judge(method, url).map_err(|denial| refuse(denial, pending))?;
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|error| ToolError::internal(error.to_string()))?;
        // The judged form of the address: the text of the argument may be another spelling.
        let request = Request {
            method,
            headers: headers(self.form.accept, text(BODY)),
            body: text(BODY).unwrap_or_default().to_owned().into(),
            ..Request::get(judged.url().clone())
        };
        let cancel: CancellationToken = caller.cancel.child_token();
        reading.reads_web();
        reading.carries(&web::secrets_for(grant, judged.url().as_str()));
        reading.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending))?;
        let made = web::request(&self.gate, &judge, request, cancel, &mut pending.row).await;
        // A redirect may have carried further ones.
        reading.carries(&pending.row.secrets);
        let result = match made {
            Ok(response) => {
                let output = summary(&response);
                if let Some(place) = caller.step.as_ref().and_then(|step| step.response.as_ref()) {
                    // A step makes one request, so that the place is empty.
                    let _ = place.set(response);
                }
                Ok(output)
            }
            Err(RequestFailure::Denied(denial)) => Err(refuse(denial, pending)),
            Err(RequestFailure::Failed(error)) => Err(error),
        };
        Ok(TryOutcome::once(result))
    }
}

fn headers(accept: &'static str, body: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", web::USER_AGENT);
    headers.insert("accept", HeaderValue::from_static(accept));
    if body.is_some() {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    }
    headers
}

/// The row and the operation need no body: it goes to the guest.
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
