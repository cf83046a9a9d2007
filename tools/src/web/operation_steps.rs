//! Calls the steps of a web operation: the request, and the guest that reads the response. The operation
//! keeps the response in between.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use bytes::Bytes;
use portcullis_egress::{Response, Url};
use portcullis_types::{ToolError, ToolErrorCode, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::{RobotsRefusal, URL};
use crate::{
    call::{Caller, OperationContext, OperationStep, new_call},
    registry::ToolRegistry,
    sandbox::{Transfer, TransferEndpoint},
};

/// The maximum number of bytes of a body that the error about a status repeats.
pub(super) const MAX_QUOTED_BYTES: usize = 2048;

/// The cell through which the request step returns its outcome to the operation, because a result for a
/// model contains no body.
pub(crate) type SharedRequestOutcome = Arc<OnceLock<Result<RequestOutcome, RedirectRefusal>>>;

/// The request was sent, but the policy refused its redirect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RedirectRefusal;

/// The outcome of a request.
#[derive(Debug, Clone)]
pub(crate) enum RequestOutcome {
    /// The response to the request, which is not a redirect that is followed.
    Response(Response),
    /// A redirect that the policy allows and the operation follows.
    Redirect(Url),
}

/// The settings of a request whose redirects the operation follows itself, so that it can check `robots.txt`
/// before each of them.
#[derive(Debug, Clone)]
pub(crate) struct RequestOptions {
    /// The number of redirects before this request.
    pub(crate) redirects_followed: u32,
    /// Why `robots.txt` forbids the request, if it does.
    pub(crate) refusal: Option<RobotsRefusal>,
}

/// Why there is neither a response nor a redirect to follow.
pub(super) struct StepRequestFailure {
    pub(super) error: ToolError,
    /// Whether the request was sent, and its redirect refused.
    pub(super) is_redirect_refused: bool,
}

/// A running operation: the registry of its steps, its context and its caller.
pub(super) struct OperationSteps<'a> {
    pub(super) registry: &'a ToolRegistry,
    pub(super) context: OperationContext,
    pub(super) caller: &'a Caller,
}

impl<'a> OperationSteps<'a> {
    /// Starts an operation.
    pub(super) fn new(
        registry: Option<&'a Arc<ToolRegistry>>,
        context: OperationContext,
        caller: &'a Caller,
    ) -> Result<Self, ToolError> {
        // The registry is missing only if a step itself tries to run steps.
        let registry = registry.ok_or_else(|| ToolError::internal("no registry of steps"))?;
        Ok(Self { registry, context, caller })
    }

    /// Makes a request by calling its step, which follows redirects as its template says.
    pub(super) async fn request(&self, step: &str, arguments: &Value) -> Result<Response, ToolError> {
        match self
            .call(step, arguments, None, self.context.deadline)
            .await
            .map_err(|failure| failure.error)?
        {
            RequestOutcome::Response(response) => Ok(response),
            RequestOutcome::Redirect(_) => Err(ToolError::internal("the request left no response")),
        }
    }

    /// Makes a request by calling its step, with this deadline. The step follows no redirects.
    pub(super) async fn request_one(
        &self,
        step: &str,
        url: &str,
        options: RequestOptions,
        deadline: Instant,
    ) -> Result<RequestOutcome, StepRequestFailure> {
        self.call(step, &json!({ URL: url }), Some(options), deadline).await
    }

    async fn call(
        &self,
        step: &str,
        arguments: &Value,
        options: Option<RequestOptions>,
        deadline: Instant,
    ) -> Result<RequestOutcome, StepRequestFailure> {
        let shared_outcome = SharedRequestOutcome::default();
        let mut requester = self.caller(OperationStep {
            request_outcome: Some(Arc::clone(&shared_outcome)),
            request_options: options,
            ..OperationStep::default()
        });
        requester.turn_deadline = Some(deadline);
        let call = new_call(step, arguments.to_string());
        let outcome = self.registry.execute_with_policy(call, &requester).await.into_result();
        // Cloning shares the body instead of copying it.
        match (outcome, shared_outcome.get()) {
            (Ok(_), Some(Ok(outcome))) => Ok(outcome.clone()),
            (Ok(_), Some(Err(RedirectRefusal)) | None) => {
                let error = ToolError::internal("the request left no response");
                Err(StepRequestFailure { error, is_redirect_refused: false })
            }
            (Err(error), request_outcome) => Err(StepRequestFailure {
                error,
                is_redirect_refused: matches!(request_outcome, Some(Err(RedirectRefusal))),
            }),
        }
    }

    /// Calls a step without a request or a transfer.
    pub(super) async fn run(&self, step: &str, arguments: &Value) -> Result<ToolOutput, ToolError> {
        let caller = self.caller(OperationStep::default());
        self.registry.execute_with_policy(new_call(step, arguments.to_string()), &caller).await.into_result()
    }

    /// Runs the guest that reads these bytes of a response, with this deadline.
    pub(super) async fn read(
        &self,
        step: &str,
        arguments: &Value,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<ToolOutput, ToolError> {
        let transfer = TransferEndpoint::Receiver(Transfer::from_bytes(body));
        let mut reader = self.caller(OperationStep { transfer: Some(transfer), ..OperationStep::default() });
        reader.turn_deadline = Some(deadline);
        let result = self.registry.execute_with_policy(new_call(step, arguments.to_string()), &reader).await;
        // The pipeline returns the details separately from the result.
        let details = result.details;
        result.outcome.into_result().map(|output| output.with_details(details))
    }

    /// Returns the caller of a step: the operation's caller, with the same slot and deadline. The
    /// operation has already been counted towards the rate limit, and was approved together with the
    /// grants of its steps.
    fn caller(&self, step: OperationStep) -> Caller {
        Caller {
            operation_id: self.context.operation_id.as_deref().map(str::to_owned),
            turn_deadline: Some(self.context.deadline),
            approval_policy: None,
            approver: None,
            on_update: None,
            on_event: None,
            slot: Some(self.context.slot.clone()),
            operation_step: Some(OperationStep {
                is_approved: self.context.is_approved,
                reads_as: Some(self.context.call_id.clone()),
                ..step
            }),
            ..self.caller.clone()
        }
    }
}

/// Adds the URL and status of the response to a result's details.
pub(super) fn add_source(output: &mut ToolOutput, response: &Response) {
    if let Value::Object(details) = &mut output.details {
        details.insert("url".to_owned(), response.url.as_str().into());
        details.insert("status".to_owned(), response.status.as_u16().into());
        details.insert("bytes".to_owned(), response.body.len().into());
        details.insert("redirects".to_owned(), response.redirects.into());
        if response.redacted {
            details.insert("redacted".to_owned(), true.into());
        }
    }
}

/// Returns the error for a status of 400 or above, with the server's name and its message if there is one.
pub(crate) fn refused_by_status(server: &str, response: &Response, message: &str) -> Option<ToolError> {
    let status = response.status;
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let message_suffix = if message.is_empty() { String::new() } else { format!("; it says: {message}") };
    let message = format!("{server} answered {status}{message_suffix}");
    let error = match status.as_u16() {
        404 | 410 => ToolError::not_found(message),
        429 | 503 => ToolError::unavailable(message),
        _ => ToolError::failed(message),
    };
    Some(error.with_code(ToolErrorCode::HttpStatus))
}

/// Does the same as [`refused_by_status`], with the start of the body as the server's message.
pub(crate) fn refused_with_body(response: &Response, body: Option<&str>) -> Option<ToolError> {
    let quoted = body.map_or("", |text| &text[..text.floor_char_boundary(MAX_QUOTED_BYTES)]);
    refused_by_status("the server", response, quoted.trim())
}

/// Whether the guest itself reported the error. The code of a trap differs from its kind.
pub(super) fn is_reported_by_guest(error: &ToolError) -> bool {
    error.kind() == ToolErrorKind::Failed && error.code() == error.kind().as_str()
}
