//! One request through the HTTP client: judged, made on a confined thread, with its failure named.

use std::sync::Arc;

use portcullis_egress::{
    CancellationToken, Credential, Egress, FetchError, HeaderValue, Judge as _, Request, Response,
    redact_text,
};
use portcullis_policy::{Denial, Grant};
use portcullis_types::{ToolError, ToolErrorKind, chain};
use tokio::time::timeout;

use super::{GrantJudge, HttpClientHandle};
use crate::audit::{CallRecord, Text};

/// The default `User-Agent`, for tools that set none.
pub(crate) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// The reason why there is no response.
pub(crate) enum RequestFailure {
    /// The policy or the tool's own declaration refuses the request.
    Denied(Denial),
    /// The request failed, or the client cannot be started.
    Failed(ToolError),
}

/// Makes a request, with the secrets of the judge's grant, in the time that the judge has for it: also the start of the
/// client and the reading of secrets, whose files may lie anywhere. The row gets the proven posture of the client's threads
/// before the request is sent, the names of the secrets that it has carried, and where it went.
///
/// # Cancellation
/// Dropping the future or cancelling the token closes the connection.
pub(crate) async fn request(
    http_client: &HttpClientHandle,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    row: &mut CallRecord,
) -> Result<Response, RequestFailure> {
    row.secrets.clear();
    let limit = judge.limits().total;
    let prepared = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(tool_error(&FetchError::Cancelled, &[])),
        prepared = timeout(limit, prepare(http_client, judge)) => {
            prepared.unwrap_or_else(|_elapsed| Err(tool_error(&FetchError::TotalTimeout { limit }, &[])))
        }
    };
    let client = prepared.map_err(RequestFailure::Failed)?;
    row.posture = Some(client.posture().summary().into());
    // For a row that ends with the caller, while the request is under way.
    row.secrets = secrets_for(judge.grant(), request.url.as_str());
    // The client ends it by the token and by the time that the judge has left, and then says what it has carried.
    let sent = {
        let _noted = NotedOnDrop { judge, row };
        client.send(Arc::clone(judge) as _, request, cancel).await
    };
    row.secrets = judge.sent_secrets().into_iter().map(Into::into).collect();
    sent.map_err(|error| match judge.take_denial() {
        Some(denial) => RequestFailure::Denied(denial),
        None => RequestFailure::Failed(tool_error(&as_granted(error, judge), &judge.known_secrets())),
    })
}

/// Has the client started and the secrets of the grant read.
async fn prepare(http_client: &HttpClientHandle, judge: &GrantJudge) -> Result<Arc<Egress>, ToolError> {
    let client = http_client.client().await?;
    let credentials = http_client.credentials(judge.grant()).await?;
    judge.set_credentials(credentials, Arc::clone(http_client.known()));
    Ok(client)
}

/// Notes in the row where the request went, also if its caller has left.
struct NotedOnDrop<'a> {
    judge: &'a GrantJudge,
    row: &'a mut CallRecord,
}

impl Drop for NotedOnDrop<'_> {
    fn drop(&mut self) {
        self.row.requests = self.judge.requests();
    }
}

/// Names the limit of the grant, of which a caller that follows redirects itself has used a part.
fn as_granted(error: FetchError, judge: &GrantJudge) -> FetchError {
    match error {
        FetchError::TooManyRedirects { .. } => FetchError::TooManyRedirects { limit: judge.max_redirects() },
        other => other,
    }
}

/// The names of the secrets that a request to this address would carry, for the row before it.
pub(crate) fn secrets_for(grant: &Grant, url: &str) -> Vec<Text> {
    grant.secrets_for(url).map(|secret| secret.name.as_str().into()).collect()
}

/// A failed request as a tool's error. The texts are cleaned of secrets: a server's certificate may name
/// anything.
fn tool_error(error: &FetchError, credentials: &[Credential]) -> ToolError {
    let kind = match error {
        FetchError::Cancelled => ToolErrorKind::Cancelled,
        FetchError::ConnectTimeout { .. }
        | FetchError::FirstByteTimeout { .. }
        | FetchError::TotalTimeout { .. } => ToolErrorKind::Timeout,
        FetchError::NameUnresolved { .. } | FetchError::NoNameServers { .. } => ToolErrorKind::NotFound,
        FetchError::RequestTooLarge { .. }
        | FetchError::ResponseTooLarge { .. }
        | FetchError::DecodedTooLarge { .. }
        | FetchError::HeadersTooLarge { .. } => ToolErrorKind::ResourceLimit,
        FetchError::Busy | FetchError::Stopped | FetchError::NotConfined { .. } => ToolErrorKind::Unavailable,
        _ => ToolErrorKind::Failed,
    };
    let clean = |text: String| redact_text(text, credentials);
    let detail = match error {
        FetchError::ConnectFailed { address, .. } => format!("{} ({address})", chain(error)),
        _ => chain(error),
    };
    ToolError::new(kind, clean(error.to_string())).with_code(error.code()).with_operator_detail(clean(detail))
}
