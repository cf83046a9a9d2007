//! Errors of calls: ten kinds, stable in name and exit code.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

crate::word_enum! {
    /// The kinds of [`ToolError`]. Callers match on these, never on text.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum ToolErrorKind {
        /// The arguments do not fit the tool's schema.
        InvalidArguments = "invalid_arguments",
        /// There is no such tool, or the tool did not find its subject.
        NotFound = "not_found",
        /// The tool reported a failure, or crashed.
        Failed = "failed",
        /// A memory, output, queue or other limit was reached.
        ResourceLimit = "resource_limit",
        /// There were too many calls in the last minute.
        RateLimited = "rate_limited",
        /// The caller cancelled the call.
        Cancelled = "cancelled",
        /// A fault of the runtime itself. The cause is for the operator; the model gets a generic sentence.
        Internal = "internal",
        /// Policy or approval refused the call.
        Denied = "denied",
        /// The deadline passed.
        Timeout = "timeout",
        /// Something that the tool needs is missing.
        Unavailable = "unavailable",
    }
}

impl ToolErrorKind {
    /// The exit code of the command line: 3 for a denial, 4 for a timeout, 5 for unavailable, else 1.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Denied => 3,
            Self::Timeout => 4,
            Self::Unavailable => 5,
            _ => 1,
        }
    }
}

/// Why a call has no result, in words that a model may read.
///
/// [`Display`](fmt::Display) shows the model's message. [`ToolError::operator_detail`] is only for the operator
/// and is never serialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredError")]
pub struct ToolError {
    kind: ToolErrorKind,
    code: Cow<'static, str>,
    message: String,
    hint: Option<String>,
    #[serde(skip)]
    operator_detail: Option<String>,
}

/// The serialized form of a [`ToolError`]. An `internal` error always gets the message
/// [`ToolError::INTERNAL_MESSAGE`], so a forged frame cannot pass its own text to a model.
#[derive(Deserialize)]
struct StoredError {
    kind: ToolErrorKind,
    code: String,
    message: String,
    hint: Option<String>,
}

impl From<StoredError> for ToolError {
    fn from(StoredError { kind, code, message, hint }: StoredError) -> Self {
        let message = match kind {
            ToolErrorKind::Internal => Self::INTERNAL_MESSAGE.to_owned(),
            _ => message,
        };
        Self { kind, code: code.into(), message, hint, operator_detail: None }
    }
}

impl ToolError {
    /// The message that a model gets for every [`ToolErrorKind::Internal`].
    pub const INTERNAL_MESSAGE: &'static str = "An internal error occurred while executing the tool";

    /// Creates an error with a message for the model. If the kind is `internal`, the message goes to the
    /// operator instead, as with [`ToolError::internal`].
    #[must_use]
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        if kind == ToolErrorKind::Internal {
            // Defence in depth: the text of an internal error must never reach a model.
            return Self::internal(message);
        }
        Self {
            kind,
            code: Cow::Borrowed(kind.as_str()),
            message: message.into(),
            hint: None,
            operator_detail: None,
        }
    }

    /// The arguments do not fit the tool's schema.
    #[must_use]
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::InvalidArguments, message)
    }

    /// The subject was not found.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::NotFound, message)
    }

    /// The tool failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Failed, message)
    }

    /// A limit was reached.
    #[must_use]
    pub fn resource_limit(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::ResourceLimit, message)
    }

    /// The policy or an approval refused the call.
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Denied, message)
    }

    /// The deadline passed.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Timeout, message)
    }

    /// The caller cancelled the call.
    #[must_use]
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Cancelled, message)
    }

    /// Something that the tool needs is missing.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Unavailable, message)
    }

    /// A fault of the runtime itself. The model reads [`ToolError::INTERNAL_MESSAGE`], and the operator reads the
    /// detail.
    #[must_use]
    pub fn internal(detail: impl Into<String>) -> Self {
        Self {
            kind: ToolErrorKind::Internal,
            code: Cow::Borrowed("internal"),
            message: Self::INTERNAL_MESSAGE.to_owned(),
            hint: None,
            operator_detail: Some(detail.into()),
        }
    }

    /// Sets a code more precise than the kind's name: one of [`ToolErrorCode`](crate::ToolErrorCode), of a denial
    /// such as `mount_read_only`, or a tool's own.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = code.into();
        self
    }

    /// Adds a hint that says what to do instead.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a cause that only the operator sees.
    #[must_use]
    pub fn with_operator_detail(mut self, detail: impl Into<String>) -> Self {
        self.operator_detail = Some(detail.into());
        self
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> ToolErrorKind {
        self.kind
    }

    /// The stable code; by default the kind's name.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The message for a model, without the hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The hint that says what to do instead, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The cause, which is only for the operator's log.
    #[must_use]
    pub fn operator_detail(&self) -> Option<&str> {
        self.operator_detail.as_deref()
    }
}

impl ToolError {
    /// The text for a model.
    #[must_use]
    pub fn for_model(&self) -> String {
        format!("Tool execution failed: {self}")
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ToolError {}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self::failed(message)
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self::failed(message)
    }
}

/// An I/O error becomes `internal`, because its text may contain host paths, which a model must not see. A
/// tool that wants to tell the model more must convert the error explicitly.
impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::internal(error.to_string())
    }
}

/// Converted like an I/O error. The operator's detail includes the causes.
impl From<Box<dyn std::error::Error + Send + Sync>> for ToolError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::internal(error_chain(&*error))
    }
}

/// Returns the texts of an error and all its causes, outermost first, joined by `: `.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

macro_rules! operators_errors {
    ($($ty:ty),* $(,)?) => {$(
        /// Converted like an I/O error.
        impl From<$ty> for ToolError {
            fn from(error: $ty) -> Self {
                Self::internal(error.to_string())
            }
        }
    )*};
}

operators_errors!(
    serde_json::Error,
    fmt::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::time::SystemTimeError,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_operator_sees_the_detail_of_an_internal_error() {
        for error in [
            ToolError::internal("password is hunter2"),
            ToolError::new(ToolErrorKind::Internal, "password is hunter2"),
            std::io::Error::other("password is hunter2").into(),
        ] {
            assert!(!error.to_string().contains("hunter2"));
            assert_eq!(error.message(), ToolError::INTERNAL_MESSAGE);
            assert_eq!(error.operator_detail(), Some("password is hunter2"));
        }
    }

    #[test]
    fn an_error_is_written_and_read_again_without_its_detail() {
        let denied = ToolError::denied("no").with_code("mount_read_only").with_hint("elsewhere");
        let json = serde_json::to_string(&denied.clone().with_operator_detail("hunter2")).expect("encodes");
        assert!(!json.contains("hunter2"), "{json}");
        assert_eq!(serde_json::from_str::<ToolError>(&json).expect("decodes"), denied);
        let forged = r#"{"kind": "internal", "code": "internal", "message": "hunter2", "hint": null}"#;
        let decoded: ToolError = serde_json::from_str(forged).expect("decodes");
        assert_eq!(decoded.message(), ToolError::INTERNAL_MESSAGE);
    }

    #[test]
    fn kinds_have_the_names_and_exit_codes_of_the_design() {
        let table: Vec<_> = ToolErrorKind::ALL.iter().map(|kind| (kind.as_str(), kind.exit_code())).collect();
        assert_eq!(
            table,
            [
                ("invalid_arguments", 1),
                ("not_found", 1),
                ("failed", 1),
                ("resource_limit", 1),
                ("rate_limited", 1),
                ("cancelled", 1),
                ("internal", 1),
                ("denied", 3),
                ("timeout", 4),
                ("unavailable", 5),
            ]
        );
        for kind in ToolErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("serializes"), kind.as_str());
        }
    }
}
