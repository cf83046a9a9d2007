//! A notification, and the arguments of the step that delivers it.

use portcullis_policy::NotifySettings;
use portcullis_types::{ToolError, ToolErrorCode};
use serde_json::{Value, json};

use super::super::{BODY, URL};

/// The maximum length of a recipient, in characters.
pub(super) const MAX_RECIPIENT_CHARS: usize = 254;

/// The maximum length of a subject, in characters.
pub(super) const MAX_SUBJECT_CHARS: usize = 200;

/// The maximum length of a message, in characters: Slack truncates longer ones.
pub(super) const MAX_BODY_CHARS: usize = 40_000;

/// The maximum length of a message to Discord, in characters (<https://docs.discord.com/developers/resources/message>).
const MAX_DISCORD_CHARS: usize = 2_000;

/// A message and its recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notification {
    method: Method,
    recipient: String,
    subject: String,
    body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Email,
    Slack,
    Discord,
}

/// A service that accepts messages by HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Slack,
    Discord,
}

impl Service {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Slack => "Slack",
            Self::Discord => "Discord",
        }
    }
}

/// How a message is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessageDelivery {
    /// With the request step.
    Request { service: Service, arguments: Value },
    /// With the step that sends by a mail server.
    Mail { arguments: Value },
}

impl MessageDelivery {
    /// The arguments of the step.
    pub(super) fn arguments(&self) -> &Value {
        match self {
            Self::Request { arguments, .. } | Self::Mail { arguments } => arguments,
        }
    }
}

impl Notification {
    /// Parses arguments that fit the tool's schema.
    ///
    /// # Errors
    /// `invalid_arguments` for texts that the service does not accept.
    pub(super) fn parse(arguments: &Value) -> Result<Self, ToolError> {
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let method = match arguments["method"].as_str() {
            Some("slack") => Method::Slack,
            Some("discord") => Method::Discord,
            _ => Method::Email,
        };
        let notification =
            Self { method, recipient: text("recipient"), subject: text("subject"), body: text("body") };
        let (field, problem) = match method {
            _ if notification.subject.chars().any(char::is_control) => ("subject", "it must be one line"),
            Method::Slack if !is_id(&notification.recipient) => {
                ("recipient", "a recipient of Slack is the ID of a channel or user, as `C0123456789`")
            }
            Method::Discord if !notification.recipient.bytes().all(|byte| byte.is_ascii_digit()) => {
                ("recipient", "a recipient of Discord is the ID of a channel, in digits")
            }
            Method::Discord if notification.discord_text().chars().count() > MAX_DISCORD_CHARS => {
                ("body", "a message of Discord has at most 2,000 characters, with the subject")
            }
            _ => return Ok(notification),
        };
        Err(ToolError::invalid_arguments(format!("field '{field}': {problem}")))
    }

    /// Returns how to deliver the message.
    ///
    /// # Errors
    /// `unavailable` with the code `notification_not_configured` if the policy does not name the service.
    pub(super) fn delivery(&self, settings: &NotifySettings) -> Result<MessageDelivery, ToolError> {
        match self.method {
            Method::Slack => {
                let url = settings.slack.as_ref().ok_or_else(|| not_configured("slack"))?;
                let body = json!({ "channel": self.recipient, "text": self.slack_text() });
                let arguments = json!({ URL: url.to_string(), BODY: body.to_string() });
                Ok(MessageDelivery::Request { service: Service::Slack, arguments })
            }
            Method::Discord => {
                let url = settings.discord.as_ref().ok_or_else(|| not_configured("discord"))?.to_string();
                let url = format!("{}/channels/{}/messages", url.trim_end_matches('/'), self.recipient);
                // Otherwise a message could notify everyone on a server.
                let body = json!({ "content": self.discord_text(), "allowed_mentions": { "parse": [] } });
                let arguments = json!({ URL: url, BODY: body.to_string() });
                Ok(MessageDelivery::Request { service: Service::Discord, arguments })
            }
            Method::Email => {
                let email = settings.email.as_ref().ok_or_else(|| not_configured("email"))?;
                let mut arguments = json!({
                    "server": email.server.as_url().as_str(),
                    "from": email.from.as_str(),
                    "recipient": self.recipient,
                    "subject": self.subject,
                    "body": self.body,
                });
                if let Some(user) = &email.user {
                    arguments["user"] = user.as_str().into();
                }
                Ok(MessageDelivery::Mail { arguments })
            }
        }
    }

    /// Formats the text for Slack, which requires references for these three characters
    /// (<https://docs.slack.dev/messaging/formatting-message-text>). Otherwise `<!channel>` would
    /// notify a whole channel.
    fn slack_text(&self) -> String {
        let text = format!("{}\n{}", self.subject, self.body);
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    fn discord_text(&self) -> String {
        format!("{}\n{}", self.subject, self.body)
    }
}

fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn not_configured(key: &str) -> ToolError {
    ToolError::unavailable(format!("no service sends messages by `{key}` here"))
        .with_code(ToolErrorCode::NotificationNotConfigured)
        .with_hint(format!("an operator names one as `{key}` in `[notify]` of the policy"))
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;

    use super::*;

    fn settings() -> NotifySettings {
        let mut settings = NotifySettings::default();
        settings.slack = "https://slack.example/post".parse().ok();
        settings.discord = "https://discord.example/api/".parse().ok();
        settings
    }

    fn delivery(arguments: &Value) -> Result<MessageDelivery, ToolError> {
        Notification::parse(arguments)?.delivery(&settings())
    }

    #[test]
    fn messages_notify_only_their_recipient() {
        let arguments = json!({
            "recipient": "123", "subject": "<!channel> @everyone", "body": "a & b", "method": "slack",
        });
        let Ok(MessageDelivery::Request { service: Service::Slack, arguments }) = delivery(&arguments) else {
            panic!("a request")
        };
        assert_eq!(arguments[URL], "https://slack.example/post");
        let body: Value = serde_json::from_str(arguments[BODY].as_str().expect("the value is a JSON string"))
            .expect("JSON");
        assert_eq!(body, json!({ "channel": "123", "text": "&lt;!channel&gt; @everyone\na &amp; b" }));
        let arguments =
            json!({ "recipient": "123", "subject": "s", "body": "@everyone", "method": "discord" });
        let Ok(MessageDelivery::Request { arguments, .. }) = delivery(&arguments) else {
            panic!("a request")
        };
        assert_eq!(arguments[URL], "https://discord.example/api/channels/123/messages");
        assert!(arguments[BODY].as_str().is_some_and(|body| body.contains("\"parse\":[]")));
    }

    #[test]
    fn recipients_and_subjects_cannot_lead_elsewhere() {
        for (recipient, subject, method) in [
            ("1/../../webhooks", "s", "discord"),
            ("12a", "s", "discord"),
            ("#general", "s", "slack"),
            ("C1&x", "s", "slack"),
            ("a@b.example", "s\r\nBcc: c@d.example", "email"),
        ] {
            let arguments =
                json!({ "recipient": recipient, "subject": subject, "body": "b", "method": method });
            let error = delivery(&arguments).expect_err("refused");
            assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{recipient} {method}");
        }
        let long =
            json!({ "recipient": "1", "subject": "s", "body": "x".repeat(2_000), "method": "discord" });
        assert_eq!(delivery(&long).expect_err("too long").kind(), ToolErrorKind::InvalidArguments);
    }

    #[test]
    fn a_service_that_is_not_configured_is_named() {
        let error =
            delivery(&json!({ "recipient": "a@b.example", "subject": "s", "body": "b" })).expect_err("none");
        assert_eq!(error.code(), "notification_not_configured");
        assert!(error.hint().is_some_and(|hint| hint.contains("`email` in `[notify]`")));
    }
}
