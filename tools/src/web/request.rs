//! One request through the gate, by whatever tool: judged, made on a confined thread, its failure named.

use std::sync::Arc;

use portcullis_egress::{CancellationToken, FetchError, HeaderValue, Request, Response};
use portcullis_policy::Denial;
use portcullis_types::{ToolError, ToolErrorKind, chain};

use super::{EgressGate, GrantJudge};
use crate::audit::Text;

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

/// Makes a request. `posture` gets that of the client's threads, which is proven, before the request is sent.
///
/// # Cancellation
/// Dropping the future or firing the token closes the connection.
pub(crate) async fn request(
    gate: &EgressGate,
    judge: &Arc<GrantJudge>,
    request: Request,
    cancel: CancellationToken,
    posture: &mut Option<Text>,
) -> Result<Response, RequestFailure> {
    let client = gate.client().await.map_err(RequestFailure::Failed)?;
    *posture = Some(client.posture().summary().into());
    client.send(Arc::clone(judge) as _, request, cancel).await.map_err(|error| match judge.take_denial() {
        Some(denial) => RequestFailure::Denied(denial),
        None => RequestFailure::Failed(tool_error(&error)),
    })
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
