//! One fetch: the request, then the guest that reads the body.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use futures_util::future::BoxFuture;
use portcullis_egress::Response;
use portcullis_types::{ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::{URL, WebFetch};
use crate::{
    audit::Text,
    call::{Caller, OperationStep, new_call},
    registry::ToolRegistry,
    sandbox::{Transfer, TransferEnd},
    slots::CallSlot,
};

/// The steps' names.
const REQUEST_STEP: &str = "web_fetch_request";
const READ_STEP: &str = "web_fetch_read";

/// Where the request step leaves the response for the operation. A result for a model holds no body.
pub(crate) type FetchedResponse = Arc<OnceLock<Response>>;

/// The terms that a fetch has from its call.
pub(crate) struct FetchTerms {
    /// The id that joins the rows of the call and its steps.
    pub(crate) operation_id: Option<Text>,
    pub(crate) deadline: Instant,
    /// The steps run in the slot of the call.
    pub(crate) slot: CallSlot,
}

impl WebFetch {
    /// Fetches an address by calling both steps.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection and stops the guest.
    pub(crate) fn run<'a>(
        &'a self,
        steps: Option<&'a Arc<ToolRegistry>>,
        arguments: &'a Value,
        terms: FetchTerms,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        // Boxed, since the steps' calls are futures like the one that this is a part of.
        Box::pin(async move {
            let steps = steps.ok_or_else(|| ToolError::internal("no registry of steps"))?;
            let response = FetchedResponse::default();
            let step = OperationStep { response: Some(Arc::clone(&response)), ..OperationStep::default() };
            let requester = caller_of_step(caller, &terms, step);
            let request = json!({ URL: arguments.get(URL) });
            steps
                .execute_with_policy(new_call(REQUEST_STEP, request.to_string()), &requester)
                .await
                .outcome?;
            let response =
                response.get().ok_or_else(|| ToolError::internal("the request left no response"))?;
            ensure_success(response)?;
            read(steps, response, arguments, &terms, caller).await
        })
    }
}

/// Lets the guest read the body. If the extractor runs into its time or its memory, a plain pass follows.
async fn read(
    steps: &ToolRegistry,
    response: &Response,
    arguments: &Value,
    terms: &FetchTerms,
    caller: &Caller,
) -> Result<ToolOutput, ToolError> {
    let half = terms.deadline.saturating_duration_since(Instant::now()) / 2;
    let mut outcome = Err(ToolError::internal("no pass was made"));
    for (effort, deadline) in [("extract", Instant::now() + half), ("plain", terms.deadline)] {
        let transfer = Transfer::of(&response.body);
        let step =
            OperationStep { transfer: Some(TransferEnd::Receiving(transfer)), ..OperationStep::default() };
        let mut reader = caller_of_step(caller, terms, step);
        reader.turn_deadline = Some(deadline);
        let read = json!({
            URL: response.url.as_str(),
            "content_type": header(response, "content-type").unwrap_or_default(),
            "format": arguments.get("format").unwrap_or(&Value::from("markdown")),
            "effort": effort,
        });
        let result = steps.execute_with_policy(new_call(READ_STEP, read.to_string()), &reader).await;
        // The pipeline hands the details of a result on beside it.
        outcome = result.outcome.map(|output| output.with_details(result.details));
        match &outcome {
            Err(error) if is_exhausted(error) => {}
            _ => break,
        }
    }
    let mut output = outcome?;
    if let Value::Object(details) = &mut output.details {
        details.insert("url".to_owned(), response.url.as_str().into());
        details.insert("status".to_owned(), response.status.as_u16().into());
        details.insert("bytes".to_owned(), response.body.len().into());
        details.insert("redirects".to_owned(), response.redirects.into());
        if response.redacted {
            details.insert("redacted".to_owned(), true.into());
        }
    }
    Ok(output)
}

/// Whether the guest has used up its time or its memory, or has trapped.
fn is_exhausted(error: &ToolError) -> bool {
    match error.kind() {
        ToolErrorKind::Timeout | ToolErrorKind::ResourceLimit => true,
        // The guest's own failures have the kind as their code; a trap has another one.
        ToolErrorKind::Failed => error.code() != error.kind().as_str(),
        _ => false,
    }
}

/// An answer that says that there is no such page is no page.
fn ensure_success(response: &Response) -> Result<(), ToolError> {
    let status = response.status;
    if !status.is_client_error() && !status.is_server_error() {
        return Ok(());
    }
    let message = format!("the server answered {status}");
    let error = match status.as_u16() {
        404 | 410 => ToolError::not_found(message),
        429 | 503 => ToolError::unavailable(message),
        _ => ToolError::failed(message),
    };
    Err(error.with_code("http_status"))
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}

/// The caller of a step: the operation's caller, with the same slot and deadline. The operation was counted and
/// approved with both grants in view.
fn caller_of_step(caller: &Caller, terms: &FetchTerms, step: OperationStep) -> Caller {
    Caller {
        operation_id: terms.operation_id.as_deref().map(str::to_owned),
        turn_deadline: Some(terms.deadline),
        approval_policy: None,
        approver: None,
        on_update: None,
        on_event: None,
        slot: Some(terms.slot.clone()),
        step: Some(step),
        ..caller.clone()
    }
}
