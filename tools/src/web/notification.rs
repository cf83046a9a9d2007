//! `send_notification`: sends a message by Slack, Discord or e-mail.
//!
//! - `message` turns the arguments of a call into the arguments of its step, by the services that the policy names.
//! - `response` parses the responses of Slack and Discord.
//! - `mail` is the step that sends by a mail server, and `smtp` implements the protocol.
//!
//! Slack and Discord are reached with the request step of all web operations. It uses their APIs with a token
//! in a header instead of webhooks: the URL of a webhook is itself a secret, and URLs appear in rows,
//! questions and errors.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use portcullis_policy::{HttpMethod, NotifySettings, Operation};
use portcullis_types::{FunctionDecl, JsonSchema, ToolArgs, ToolError, ToolOutput, ToolPolicy};
use serde_json::{Value, json};

use super::{
    operation_steps::{OperationSteps, refused_by_status},
    request_step::{Redirects, RequestTemplate, descriptor, steps_of},
};
use crate::{
    call::{Caller, OperationContext},
    registered::RegisteredTool,
    registry::{RegistryError, ToolRegistry},
    tool_table::ToolTable,
};

mod mail;
mod message;
mod response;
mod smtp;

use mail::MAIL_STEP;
pub(crate) use mail::{MailFailure, MailStep, PreparedMail, mail_step};
use message::{MAX_BODY_CHARS, MAX_RECIPIENT_CHARS, MAX_SUBJECT_CHARS, MessageDelivery, Notification};

/// The name of the step for Slack and Discord.
const REQUEST_STEP: &str = "send_notification_request";

/// The template of the requests. Redirects are not followed, because they would send the message to another URL.
pub(crate) const NOTIFICATION_REQUEST: RequestTemplate =
    RequestTemplate { method: HttpMethod::Post, accept: "application/json", redirects: Redirects::Never };

/// The tool's backend.
#[derive(Debug, Clone)]
pub(crate) struct SendNotificationBackend {
    steps: Arc<[Arc<RegisteredTool>]>,
    settings: Arc<NotifySettings>,
}

impl SendNotificationBackend {
    /// The steps, in order.
    pub(crate) fn steps(&self) -> &[Arc<RegisteredTool>] {
        &self.steps
    }

    /// Returns the arguments of the step that the call uses. They are computed before anything runs, so that
    /// the URL is judged and shown to the approver.
    ///
    /// # Errors
    /// As in [`Notification::parse`] and [`Notification::delivery`].
    pub(crate) fn step_arguments(&self, arguments: &Value) -> Result<ToolArgs, ToolError> {
        let delivery = Notification::parse(arguments)?.delivery(&self.settings)?;
        let arguments = delivery.arguments().to_string();
        ToolArgs::parse(&arguments).map_err(|error| ToolError::internal(error.to_string()))
    }

    /// Sends the message by calling one of the steps.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection. The message may already have been sent.
    pub(crate) fn run<'a>(
        &'a self,
        steps: Option<&'a Arc<ToolRegistry>>,
        arguments: &'a Value,
        context: OperationContext,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        // Boxed, because the future of a step's call has the same type as the future that contains this one.
        Box::pin(async move {
            let delivery = Notification::parse(arguments)?.delivery(&self.settings)?;
            let steps = OperationSteps::new(steps, context, caller)?;
            let message_id = match &delivery {
                MessageDelivery::Request { service, arguments } => {
                    let response = steps.request(REQUEST_STEP, arguments).await?;
                    if let Some(error) = refused_by_status(service.as_str(), &response, "") {
                        return Err(error);
                    }
                    response::message_id(*service, &response.body)?
                }
                MessageDelivery::Mail { arguments } => {
                    let output = steps.run(MAIL_STEP, arguments).await?;
                    let id = output.structured.as_ref().and_then(|sent| sent["message_id"].as_str());
                    id.unwrap_or_default().to_owned()
                }
            };
            Ok(ToolOutput::structured(json!({ "success": true, "message_id": message_id })))
        })
    }
}

/// Builds `send_notification` from these steps.
pub(crate) fn send_notification(
    steps: &ToolTable,
    settings: Arc<NotifySettings>,
) -> Result<RegisteredTool, RegistryError> {
    let text = |most: usize, description: &str| json!({ "type": "string", "minLength": 1, "maxLength": most, "description": description });
    let decl = FunctionDecl {
        name: Operation::SEND_NOTIFICATION.name.to_owned(),
        description: Some("Sends a message to a person or a channel.".to_owned()),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": {
                "recipient": text(MAX_RECIPIENT_CHARS, "An e-mail address, or the ID of a channel or user."),
                "subject": text(MAX_SUBJECT_CHARS, "The subject, in one line."),
                "body": text(MAX_BODY_CHARS, "The message, as plain text."),
                "method": {
                    "type": "string",
                    "enum": ["email", "slack", "discord"],
                    "default": "email",
                    "description": "The service.",
                },
            },
            "required": ["recipient", "subject", "body"],
            "additionalProperties": false,
        })),
    };
    let results = JsonSchema::new(json!({
        "type": "object",
        "properties": { "success": { "type": "boolean" }, "message_id": { "type": "string" } },
        "required": ["success", "message_id"],
    }));
    let mut descriptor = descriptor(Operation::SEND_NOTIFICATION.name, Vec::new())?;
    descriptor.declared_policy = ToolPolicy::RequiresApproval;
    let backend = SendNotificationBackend { steps: steps_of(Operation::SEND_NOTIFICATION, steps)?, settings };
    RegisteredTool::operation(decl, "Send a notification", descriptor, backend)?.with_results(results)
}
