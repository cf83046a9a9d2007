//! Backend of requests: the host's HTTP client makes them, on its confined threads.

use std::sync::Arc;

use portcullis_egress::{CancellationToken, FetchError, HeaderMap, HeaderValue, Request, Response};
use portcullis_types::{ToolError, ToolErrorKind, ToolOutput, async_trait, chain};
use serde_json::json;

use super::{Backend, CallAttempt, TryOutcome};
use crate::{
    audit::Confinement,
    pipeline::{PendingRecord, admit::refuse},
    web::{GrantJudge, RequestStep, URL},
};

/// What a request says of its sender.
const USER_AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

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
        let CallAttempt { checked, grant, time_limit, caller, .. } = attempt;
        let url = checked.args.value().get(URL).and_then(|url| url.as_str()).unwrap_or_default();
        let judged = grant.judge_request("GET", url).map_err(|denial| refuse(denial, pending))?;
        let client = self.gate.client().await?;
        pending.row.posture = Some(client.posture().summary().into());
        let judge = Arc::new(GrantJudge::new(grant.clone(), time_limit));
        // The judged form of the address: the text of the argument may be another spelling.
        let request = Request { headers: headers(), ..Request::get(judged.url().clone()) };
        let cancel: CancellationToken = caller.cancel.child_token();
        let result = match client.send(Arc::clone(&judge) as _, request, cancel).await {
            Ok(response) => {
                let output = summary(&response);
                if let Some(place) = caller.step.as_ref().and_then(|step| step.response.as_ref()) {
                    // A step makes one request, so that the place is empty.
                    let _ = place.set(response);
                }
                Ok(output)
            }
            Err(error) => Err(match judge.take_denial() {
                Some(denial) => refuse(denial, pending),
                None => tool_error(&error),
            }),
        };
        Ok(TryOutcome::once(result))
    }
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_static(USER_AGENT));
    headers
        .insert("accept", HeaderValue::from_static("text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"));
    headers
}

/// The row and the operation need no body: it goes to the guest.
fn summary(response: &Response) -> ToolOutput {
    let (status, bytes) = (response.status.as_u16(), response.body.len());
    let details = json!({
        "url": response.url.as_str(),
        "status": status,
        "bytes": bytes,
        "redirects": response.redirects,
    });
    ToolOutput::text(format!("status {status}, {bytes} bytes")).with_details(details)
}

/// A failed request in the words of the pipeline.
fn tool_error(error: &FetchError) -> ToolError {
    let kind = match error {
        FetchError::Cancelled => ToolErrorKind::Cancelled,
        FetchError::ConnectTimeout { .. }
        | FetchError::FirstByteTimeout { .. }
        | FetchError::TotalTimeout { .. } => ToolErrorKind::Timeout,
        FetchError::NameUnresolved { .. } => ToolErrorKind::NotFound,
        FetchError::RequestTooLarge { .. }
        | FetchError::ResponseTooLarge { .. }
        | FetchError::DecodedTooLarge { .. }
        | FetchError::HeadersTooLarge { .. } => ToolErrorKind::ResourceLimit,
        FetchError::Busy | FetchError::Stopped | FetchError::NotConfined { .. } => ToolErrorKind::Unavailable,
        _ => ToolErrorKind::Failed,
    };
    ToolError::new(kind, error.to_string()).with_code(error.code()).with_operator_detail(chain(error))
}
