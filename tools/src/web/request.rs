//! One request by the HTTP client: judged by the policy, sent on a confined thread, and
//! recorded in the audit row.

use std::sync::Arc;

use portcullis_egress::{
    CancellationToken, Credential, Egress, FetchError, HeaderValue, Judge as _, Request, Response,
    StreamedResponse, redact_text,
};
use portcullis_policy::{Denial, Grant};
use portcullis_types::{ToolError, ToolErrorKind, error_chain};
use tokio::time::timeout;

use super::{GrantJudge, HttpClientHandle};
use crate::audit::{RowFields, SharedText};

/// The default `User-Agent`, for tools that set none.
pub(crate) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// Why there is no response.
pub(crate) enum RequestError {
    /// The policy or the tool's own declaration refuses the request.
    Denied(Denial),
    /// The request failed, or the client cannot be started.
    Failed(ToolError),
}

/// Sends a request with the secrets of the judge's grant. Starting the client and reading the secrets, whose
/// files can lie on a slow file system, count towards the judge's time limit.
///
/// Before the request is sent, the row gets the proven posture of the client's threads. Afterwards it gets
/// the names of the secrets that were sent, and the requested addresses.
///
/// # Cancellation
/// Dropping the future or cancelling the token closes the connection.
pub(crate) async fn send(
    http_client: &HttpClientHandle,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    row: &mut RowFields,
) -> Result<Response, RequestError> {
    let client = prepare_request(http_client, judge, &request, &cancel, row).await?;
    await_and_record(client.send(Arc::clone(judge) as _, request, cancel), judge, row).await
}

/// Sends a request as [`request`] does, and returns once the head of the response has arrived. The caller
/// then reads the body.
///
/// # Cancellation
/// As for [`request`]. Dropping the response closes the connection too.
pub(crate) async fn stream(
    http_client: &HttpClientHandle,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    row: &mut RowFields,
) -> Result<StreamedResponse, RequestError> {
    let client = prepare_request(http_client, judge, &request, &cancel, row).await?;
    await_and_record(client.stream(Arc::clone(judge) as _, request, cancel), judge, row).await
}

/// Starts the client and reads the secrets. Records the client's posture and the secrets that may be sent.
async fn prepare_request(
    http_client: &HttpClientHandle,
    judge: &GrantJudge,
    request: &Request,
    cancel: &CancellationToken,
    row: &mut RowFields,
) -> Result<Arc<Egress>, RequestError> {
    row.secrets.clear();
    let limit = judge.limits().total_timeout;
    let prepared = tokio::select! {
        // `biased`: check cancellation first, so that nothing is requested after it.
        biased;
        () = cancel.cancelled() => Err(tool_error(&FetchError::Cancelled, &[])),
        prepared = timeout(limit, prepare_egress(http_client, judge)) => {
            prepared.unwrap_or_else(|_elapsed| Err(tool_error(&FetchError::TotalTimeout { limit }, &[])))
        }
    };
    let client = prepared.map_err(RequestError::Failed)?;
    row.posture = Some(client.posture().summary().into());
    // Set the names before the request, so that the row has them even if the caller goes away.
    row.secrets = secrets_for(judge.grant(), request.url.as_str());
    Ok(client)
}

/// Awaits the response, and records the requested addresses and the secrets that were sent. The client ends
/// the request when the token is cancelled or the judge's time limit expires.
async fn await_and_record<T>(
    answer: impl Future<Output = Result<T, FetchError>>,
    judge: &GrantJudge,
    row: &mut RowFields,
) -> Result<T, RequestError> {
    let answer = {
        let _noted = RecordedOnDrop { judge, row };
        answer.await
    };
    row.secrets = judge.sent_secrets().into_iter().map(Into::into).collect();
    answer.map_err(|error| match judge.take_denial() {
        Some(denial) => RequestError::Denied(denial),
        None => RequestError::Failed(request_error(error, judge)),
    })
}

/// Returns the error of a request or body that failed other than by a denial. A body is not judged, so its
/// errors are never denials.
pub(crate) fn request_error(error: FetchError, judge: &GrantJudge) -> ToolError {
    tool_error(&with_granted_redirects(error, judge), &judge.known_secrets())
}

/// Starts the client if necessary, and reads the secrets of the grant.
async fn prepare_egress(
    http_client: &HttpClientHandle,
    judge: &GrantJudge,
) -> Result<Arc<Egress>, ToolError> {
    let client = http_client.egress().await?;
    let credentials = http_client.credentials(judge.grant()).await?;
    judge.set_credentials(credentials, Arc::clone(http_client.known_secrets()));
    Ok(client)
}

/// Records the requested addresses on drop, so that the row has them even if its caller has gone away.
struct RecordedOnDrop<'a> {
    judge: &'a GrantJudge,
    row: &'a mut RowFields,
}

impl Drop for RecordedOnDrop<'_> {
    fn drop(&mut self) {
        self.row.requests = self.judge.requests();
    }
}

/// Replaces the redirect limit of this request by the limit of the grant. A caller that follows redirects
/// itself has already used up a part of the grant's limit.
fn with_granted_redirects(error: FetchError, judge: &GrantJudge) -> FetchError {
    match error {
        FetchError::TooManyRedirects { .. } => FetchError::TooManyRedirects { limit: judge.max_redirects() },
        other => other,
    }
}

/// Returns the names of the secrets that a request to this URL may carry.
pub(crate) fn secrets_for(grant: &Grant, url: &str) -> Vec<SharedText> {
    grant.secrets_for(url).map(|secret| secret.name.as_str().into()).collect()
}

/// Converts the error of a failed request. Secrets are redacted from its texts, because these can quote the
/// server, such as the names in its certificate.
fn tool_error(error: &FetchError, credentials: &[Credential]) -> ToolError {
    let kind = match error {
        FetchError::Cancelled => ToolErrorKind::Cancelled,
        FetchError::ConnectTimeout { .. }
        | FetchError::FirstByteTimeout { .. }
        | FetchError::ResolveTimeout { .. }
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
        FetchError::ConnectFailed { address, .. } => format!("{} ({address})", error_chain(error)),
        _ => error_chain(error),
    };
    ToolError::new(kind, clean(error.to_string())).with_code(error.code()).with_operator_detail(clean(detail))
}
