//! The step that sends a message by a mail server, over a connection of the host's HTTP client.

use std::{net::IpAddr, sync::Arc};

use lettre::{Address, Message, message::Mailbox};
use portcullis_egress::{Credential, Judge, Method, Refusal, RequestLimits, Url, redact_text};
use portcullis_policy::Operation;
use portcullis_types::{ArgumentRole, FunctionDecl, JsonSchema, RoleKind, ToolError, ToolErrorCode};
use serde_json::{Value, json};

use super::{
    super::{GrantJudge, HttpClientHandle, request_step::descriptor},
    message::{MAX_BODY_CHARS, MAX_RECIPIENT_CHARS, MAX_SUBJECT_CHARS},
    smtp::{self, Login, SmtpError},
};
use crate::{call::random_id, registered::RegisteredTool, registry::RegistryError};

/// The name of the step.
pub(crate) const MAIL_STEP: &str = "send_notification_mail";

/// The argument that names the server, as the URL by which it is judged.
pub(crate) const SERVER: &str = "server";

/// The step's backend.
#[derive(Debug, Clone)]
pub(crate) struct MailStep {
    pub(crate) http_client: Arc<HttpClientHandle>,
}

/// Builds the step.
pub(crate) fn mail_step(http_client: Arc<HttpClientHandle>) -> Result<RegisteredTool, RegistryError> {
    let text = |most: usize| json!({ "type": "string", "maxLength": most });
    let decl = FunctionDecl {
        name: MAIL_STEP.to_owned(),
        description: Some(format!("Sends a mail. A step of `{}`.", Operation::SEND_NOTIFICATION.name)),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": {
                SERVER: { "type": "string" },
                "from": { "type": "string" },
                "user": { "type": "string" },
                "recipient": text(MAX_RECIPIENT_CHARS),
                "subject": text(MAX_SUBJECT_CHARS),
                "body": text(MAX_BODY_CHARS),
            },
            "required": [SERVER, "from", "recipient", "subject", "body"],
            "additionalProperties": false,
        })),
    };
    let descriptor =
        descriptor(MAIL_STEP, vec![ArgumentRole { argument: SERVER.to_owned(), role: RoleKind::Url }])?;
    RegisteredTool::operation(decl, "Send a mail", descriptor, MailStep { http_client })
}

/// A message that is ready to send.
pub(crate) struct PreparedMail {
    message: Message,
    /// The value of the message's `Message-ID` header.
    id: String,
    user: Option<String>,
}

impl PreparedMail {
    /// Builds the message. Header fields are encoded, so that no text can inject another field.
    ///
    /// # Errors
    /// `invalid_arguments` if the recipient is not an address.
    pub(crate) fn new(arguments: &Value) -> Result<Self, ToolError> {
        let text = |key: &str| arguments[key].as_str().unwrap_or_default();
        let address = |key: &str| {
            let address = text(key).parse::<Address>().map_err(|error| {
                ToolError::invalid_arguments(format!("field '{key}': it is not an e-mail address: {error}"))
            })?;
            Ok::<_, ToolError>(Mailbox::new(None, address))
        };
        let (from, to) = (address("from")?, address("recipient")?);
        let id = format!("<{}@{}>", random_id("portcullis"), from.email.domain());
        let message = Message::builder()
            .from(from)
            .to(to)
            .subject(text("subject"))
            .message_id(Some(id.clone()))
            .body(text("body").to_owned())
            .map_err(|error| ToolError::internal(error.to_string()))?;
        Ok(Self { message, id, user: arguments["user"].as_str().map(str::to_owned) })
    }

    /// The id of the message.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Sends the message to the server.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection. The message may already have been sent.
    pub(crate) async fn send(
        &self,
        http_client: &HttpClientHandle,
        judge: &Arc<GrantJudge>,
        server: &Url,
    ) -> Result<(), MailFailure> {
        let client = http_client.egress().await.map_err(MailFailure::Tool)?;
        let credentials = http_client.credentials(judge.grant()).await.map_err(MailFailure::Tool)?;
        judge.set_credentials(credentials, Arc::clone(http_client.known_secrets()));
        let password = judge.credentials().iter().find(|credential| judge.should_attach(credential, server));
        let login = match (&self.user, password) {
            (Some(user), Some(password)) => Some(Login { user: user.clone(), password: password.clone() }),
            (None, None) => None,
            (Some(_), None) => return Err(MailFailure::Tool(incomplete("a user and no secret"))),
            (None, Some(_)) => return Err(MailFailure::Tool(incomplete("a secret and no user"))),
        };
        let tls = match server.scheme() {
            "https" => Some(http_client.tls_config().await.map_err(MailFailure::Tool)?),
            _ => None,
        };
        let judged = Arc::new(MailJudge(Arc::clone(judge)));
        let stream = client.dial(judged, server.clone()).await.map_err(MailFailure::Dial)?;
        if let Ok(address) = stream.peer_addr() {
            judge.on_dialled(address);
        }
        if let Some(login) = &login {
            judge.on_attached(&login.password);
        }
        let sent = smtp::send(stream, server, tls, login.as_ref(), &self.message).await;
        sent.map_err(|error| MailFailure::Tool(smtp_error(&error, &judge.known_secrets())))
    }
}

/// Why a mail was not sent.
pub(crate) enum MailFailure {
    /// There is no connection, or the policy refuses the connection.
    Dial(portcullis_egress::FetchError),
    /// Any other failure.
    Tool(ToolError),
}

fn incomplete(what: &str) -> ToolError {
    ToolError::unavailable(format!("the mail server has {what}, so nothing was sent"))
        .with_code(ToolErrorCode::NotificationNotConfigured)
        .with_hint(
            "an operator names both: `user` in `[notify]` of the policy, and a secret with `tools = [\"send_notification\"]` for the server's host",
        )
}

fn smtp_error(error: &SmtpError, credentials: &[Credential]) -> ToolError {
    let clean = |text: String| redact_text(text, credentials);
    ToolError::failed(clean(error.to_string()))
        .with_code(error.code())
        .with_operator_detail(clean(portcullis_types::error_chain(error)))
}

/// Judges a connection to a mail server. Policies have no method for SMTP, so the connection is judged as a
/// `POST` to the server's URL.
#[derive(Debug)]
struct MailJudge(Arc<GrantJudge>);

impl Judge for MailJudge {
    fn judge_request(&self, _method: &Method, url: &Url) -> Result<(), Refusal> {
        self.0.judge_request(&Method::POST, url)
    }

    fn judge_address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal> {
        self.0.judge_address(host, port, address)
    }

    fn judge_redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal> {
        self.0.judge_redirect(from, to)
    }

    fn limits(&self) -> RequestLimits {
        self.0.limits()
    }
}
