//! One request through the gate, by whatever tool: judged, made on a confined thread, its failure named.

use std::sync::Arc;

use portcullis_egress::{
    CancellationToken, Credential, Egress, FetchError, HeaderValue, Judge as _, Request, Response,
    StreamedResponse, redact_text,
};
use portcullis_policy::{Denial, Grant};
use portcullis_types::{ToolError, ToolErrorKind, chain};

use super::{EgressGate, GrantJudge};
use crate::audit::{CallRecord, Text};

/// The name that a request has for its sender, where the tool gives none.
pub(crate) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// Why there is no response.
pub(crate) enum RequestFailure {
    /// The policy, or the tool's own declaration, refuses it.
    Denied(Denial),
    /// It failed, or the client cannot be started.
    Failed(ToolError),
}

/// Makes a request, with the secrets of the judge's grant. The row gets the proven posture of the client's threads before
/// the request is sent, and the names of the secrets that it has carried.
///
/// # Cancellation
/// Dropping the future or firing the token closes the connection.
pub(crate) async fn request(
    gate: &EgressGate,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    row: &mut CallRecord,
) -> Result<Response, RequestFailure> {
    let client = ready(gate, judge, &request, row).await?;
    let sent = client.send(Arc::clone(judge) as _, request, cancel).await;
    row.secrets = carried(judge);
    sent.map_err(|error| failure(&error, judge))
}

/// As [`request`], up to the head of the response: its body is read as the caller takes it. [`failure`] names faults of
/// the body.
///
/// # Cancellation
/// Dropping the future or the response, or firing the token, closes the connection.
pub(crate) async fn stream(
    gate: &EgressGate,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    row: &mut CallRecord,
) -> Result<StreamedResponse, RequestFailure> {
    let client = ready(gate, judge, &request, row).await?;
    let sent = client.stream(Arc::clone(judge) as _, request, cancel).await;
    row.secrets = carried(judge);
    sent.map_err(|error| failure(&error, judge))
}

/// Starts the client, reads the secrets, and tells the row of both.
async fn ready(
    gate: &EgressGate,
    judge: &GrantJudge,
    request: &Request,
    row: &mut CallRecord,
) -> Result<Arc<Egress>, RequestFailure> {
    row.secrets.clear();
    let client = gate.client().await.map_err(RequestFailure::Failed)?;
    row.posture = Some(client.posture().summary().into());
    judge.arm(gate.credentials(judge.grant()).await.map_err(RequestFailure::Failed)?);
    // For a row that ends with the caller, while the request is under way.
    row.secrets = secrets_for(judge.grant(), request.url.as_str());
    Ok(client)
}

fn carried(judge: &GrantJudge) -> Vec<Text> {
    judge.carried().into_iter().map(Into::into).collect()
}

/// The reason why there is no response, or no more of it.
pub(crate) fn failure(error: &FetchError, judge: &GrantJudge) -> RequestFailure {
    match judge.take_denial() {
        Some(denial) => RequestFailure::Denied(denial),
        None => RequestFailure::Failed(tool_error(error, judge.credentials())),
    }
}

/// The names of the secrets that a request to this address would carry, for the row before it.
pub(crate) fn secrets_for(grant: &Grant, url: &str) -> Vec<Text> {
    grant.secrets_for(url).map(|secret| secret.name.as_str().into()).collect()
}

/// A failed request in the words of the pipeline. A server's certificate may name anything, secrets included.
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
    ToolError::new(kind, clean(error.to_string()))
        .with_code(error.code())
        .with_operator_detail(clean(chain(error)))
}
