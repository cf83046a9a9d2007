//! Why a call gave no result: the ten kinds, stable in name and exit code.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// The kinds of [`ToolError`]; callers match on these, never on text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The arguments are not what the tool takes.
    InvalidArguments,
    /// No such tool, or the thing that the tool looked for is not there.
    NotFound,
    /// The tool ran and reports a failure, or broke off.
    Failed,
    /// A memory, output, queue or other limit was reached.
    ResourceLimit,
    /// Too many calls in the last minute.
    RateLimited,
    /// The caller gave the call up.
    Cancelled,
    /// A fault on our side. Its cause is for the operator; the model gets one generic sentence.
    Internal,
    /// Policy or approval refused the call.
    Denied,
    /// The deadline passed.
    Timeout,
    /// What the tool needs to run safely is not there.
    Unavailable,
}

impl ToolErrorKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::InvalidArguments,
        Self::NotFound,
        Self::Failed,
        Self::ResourceLimit,
        Self::RateLimited,
        Self::Cancelled,
        Self::Internal,
        Self::Denied,
        Self::Timeout,
        Self::Unavailable,
    ];

    /// The stable name, as in JSON and audit rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::NotFound => "not_found",
            Self::Failed => "failed",
            Self::ResourceLimit => "resource_limit",
            Self::RateLimited => "rate_limited",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
        }
    }

    /// What the command line exits with: 3 for a denial, 4 for a time-out, 5 for what is unavailable,
    /// else 1.
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

impl fmt::Display for ToolErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a call gave no result, in words a model may read.
///
/// [`Display`](fmt::Display) shows the model's message; [`ToolError::operator_detail`] is the part that
/// only an operator may see, and nothing serialises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    kind: ToolErrorKind,
    code: Cow<'static, str>,
    message: String,
    hint: Option<String>,
    operator_detail: Option<String>,
}

impl ToolError {
    /// The one sentence that stands for every [`ToolErrorKind::Internal`] before a model
    /// (specification 000, "Error Handling Contract").
    pub const INTERNAL_MESSAGE: &'static str = "An internal error occurred while executing the tool";

    /// An error of a kind, with a message for the model. For `internal` use [`ToolError::internal`]:
    /// this constructor takes the message of that kind as the operator's detail as well.
    #[must_use]
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        if kind == ToolErrorKind::Internal {
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

    /// The arguments are not what the tool takes.
    #[must_use]
    pub fn invalid_arguments(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::InvalidArguments, message)
    }

    /// What was looked for is not there.
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

    /// Refused by policy or approval.
    #[must_use]
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Denied, message)
    }

    /// The deadline passed.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Timeout, message)
    }

    /// The caller gave up.
    #[must_use]
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Cancelled, message)
    }

    /// What the tool needs is not there.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Unavailable, message)
    }

    /// A fault on our side: the model reads [`ToolError::INTERNAL_MESSAGE`], the operator the detail.
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

    /// The same error under a finer code than its kind's name, such as `mount_read_only`.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = code.into();
        self
    }

    /// The same error with a line that says what would be right.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with a cause that only the operator sees.
    #[must_use]
    pub fn with_operator_detail(mut self, detail: impl Into<String>) -> Self {
        self.operator_detail = Some(detail.into());
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ToolErrorKind {
        self.kind
    }

    /// The stable code; the kind's name where there is no finer one.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The message that a model may read, without the hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The cause, for the operator's log alone.
    #[must_use]
    pub fn operator_detail(&self) -> Option<&str> {
        self.operator_detail.as_deref()
    }
}

impl ToolError {
    /// How a model is told of the error (specification 004, "Validation and Self-Correction").
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

/// An I/O error is the operator's: its text may name what the model must not know. A tool that wants to
/// tell the model more maps it on purpose.
impl From<std::io::Error> for ToolError {
    fn from(error: std::io::Error) -> Self {
        Self::internal(error.to_string())
    }
}

/// As for I/O errors; the causes are the operator's too.
impl From<Box<dyn std::error::Error + Send + Sync>> for ToolError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::internal(crate::chain(&*error))
    }
}

macro_rules! operators_errors {
    ($($ty:ty),* $(,)?) => {$(
        /// As for I/O errors.
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
    fn an_internal_error_shows_its_detail_to_nobody_but_the_operator() {
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
            assert_eq!(serde_json::to_value(kind).expect("serialises"), kind.as_str());
        }
    }
}
