//! One fetch: the request, then the guest that reads the body.

use std::{sync::Arc, time::Instant};

use futures_util::future::BoxFuture;
use portcullis_egress::Response;
use portcullis_types::{ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::{
    URL, WebFetch,
    steps::{OperationSteps, add_source, is_reported_by_guest, refused_by_status},
};
use crate::{
    call::{Caller, OperationContext},
    registry::ToolRegistry,
};

/// The steps' names.
const REQUEST_STEP: &str = "web_fetch_request";
const READ_STEP: &str = "web_fetch_read";

impl WebFetch {
    /// Fetches an address by calling both steps.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection and stops the guest.
    pub(crate) fn run<'a>(
        &'a self,
        steps: Option<&'a Arc<ToolRegistry>>,
        arguments: &'a Value,
        context: OperationContext,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        // Boxed, since the steps' calls are futures like the one that this is a part of.
        Box::pin(async move {
            let steps = OperationSteps::new(steps, context, caller)?;
            let request = json!({ URL: arguments.get(URL) });
            let response = steps.request(REQUEST_STEP, &request).await?;
            // A response with an error status is not a page.
            match refused_by_status("the server", &response, "") {
                Some(error) => Err(error),
                None => read(&steps, &response, arguments).await,
            }
        })
    }
}

/// Lets the guest read the body. If the extractor exceeds its time or memory, a plain pass follows.
async fn read(
    steps: &OperationSteps<'_>,
    response: &Response,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    let end = steps.context.deadline;
    let half = end.saturating_duration_since(Instant::now()) / 2;
    let mut outcome = Err(ToolError::internal("no pass was made"));
    for (effort, deadline) in [("extract", Instant::now() + half), ("plain", end)] {
        let read = json!({
            URL: response.url.as_str(),
            "content_type": header(response, "content-type").unwrap_or_default(),
            "format": arguments.get("format").unwrap_or(&Value::from("markdown")),
            "effort": effort,
        });
        outcome = steps.read(READ_STEP, &read, response, deadline).await;
        match &outcome {
            Err(error) if is_exhausted(error) => {}
            _ => break,
        }
    }
    let mut output = outcome?;
    add_source(&mut output, response);
    Ok(output)
}

/// Whether the guest has used up its time or memory, or has trapped.
fn is_exhausted(error: &ToolError) -> bool {
    match error.kind() {
        ToolErrorKind::Timeout | ToolErrorKind::ResourceLimit => true,
        ToolErrorKind::Failed => !is_reported_by_guest(error),
        _ => false,
    }
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}
