//! [`ApiError`]: why a request was refused. [`GatewayError`]: why the gateway does not serve.
//! [`GatewayRequestError`]: why a request without a connection has no answer.

use axum::{
    Json,
    extract::rejection::{JsonRejection, PathRejection, QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use portcullis_runs::RunError;
use portcullis_store::StoreError;
use portcullis_tools::RegistryError;
use serde::Serialize;
use thiserror::Error;
use utoipa::ToSchema;

/// Why the gateway cannot serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The store cannot be used.
    #[error("the gateway cannot read or write its store")]
    Store(#[from] StoreError),
    /// The runs of the store cannot be driven.
    #[error("the runs of the store cannot be driven")]
    Runs(#[from] RunError),
    /// The system provides no random bytes.
    #[error("the system provides no random bytes")]
    Random {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A tool of the gateway cannot be registered.
    #[error("a tool of the gateway cannot be registered")]
    Tool(#[from] RegistryError),
}

/// Why [`Gateway::request`](crate::Gateway::request) has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatewayRequestError {
    /// The method, the path or the token cannot be a part of a request.
    #[error("the request cannot be built")]
    Invalid(#[source] axum::http::Error),
    /// The body of the response is too large.
    #[error("the response cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The gateway refused the request.
    #[error("{status}: {body}")]
    Refused {
        /// The status of HTTP.
        status: StatusCode,
        /// The body of the response: the code and the message in JSON.
        body: String,
    },
}

/// Why a request was refused, as the client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    code: ErrorCode,
    message: String,
    field: Option<String>,
}

/// The code of an error, with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    /// 400: the request is malformed.
    BadRequest,
    /// 401: there is no token, or the token is unknown.
    Unauthorized,
    /// 403: the token does not allow this.
    Forbidden,
    /// 404: there is no such resource, or the caller may not see it.
    NotFound,
    /// 405: the path has no such method.
    MethodNotAllowed,
    /// 408: the body of the request did not arrive in time.
    RequestTimeout,
    /// 409: the state of the resource does not allow this.
    Conflict,
    /// 410: the resource has expired or is closed.
    Gone,
    /// 413: the request is too large.
    TooLarge,
    /// 415: the content type of the body is not JSON.
    UnsupportedMediaType,
    /// 422: a value is not allowed.
    Invalid,
    /// 429: a limit of the store, of messages in a minute or of open streams is reached.
    TooMany,
    /// 503: the store does not answer.
    Unavailable,
    /// 500: a fault of the gateway. The operator's log has the cause.
    Internal,
}

impl ErrorCode {
    fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The body of a refusal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetails,
}

/// Why a request was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetails {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    /// The key of the body, or the parameter, that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None }
    }

    pub(crate) fn not_found(resource: &str, id: &str) -> Self {
        // The id is the caller's text and may contain control characters.
        Self::new(ErrorCode::NotFound, format!("there is no {resource} `{}`", id.escape_default()))
    }

    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorCode::Invalid, message) }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Forbidden, message)
    }

    /// Returns the message for the client.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Creates the error for a fault of the gateway. Logs the cause, which the client must not read.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "a request failed");
        Self::new(ErrorCode::Internal, "a fault of the gateway; its log has the cause")
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::NotFound { .. } => Self::new(ErrorCode::NotFound, message),
            StoreError::AlreadyExists { .. }
            | StoreError::Conflict { .. }
            | StoreError::OtherHash { .. }
            | StoreError::StillOpen { .. }
            | StoreError::Ended { .. } => Self::conflict(message),
            StoreError::Limit(_) => Self::new(ErrorCode::TooMany, message),
            StoreError::Name { .. } | StoreError::Nul { .. } => Self::new(ErrorCode::BadRequest, message),
            // The cause can name hosts and tables, so only the log gets it.
            error if error.failure().is_some() => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the store does not answer");
                Self::new(ErrorCode::Unavailable, "the store does not answer; try again")
            }
            error => Self::internal(&error),
        }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            error => Self::internal(&error),
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        Self::internal(&error)
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        Self::internal(&error)
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let code = match rejection.status() {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::UnsupportedMediaType,
            StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
            StatusCode::UNPROCESSABLE_ENTITY => ErrorCode::Invalid,
            _ => ErrorCode::BadRequest,
        };
        Self::new(code, rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(ErrorCode::BadRequest, rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(ErrorCode::BadRequest, rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { code, message, field } = self;
        let body = Json(ErrorBody { error: ErrorDetails { code, message, field } });
        let mut response = (code.status(), body).into_response();
        // RFC 9110 requires a challenge with every 401.
        if code == ErrorCode::Unauthorized {
            let scheme = axum::http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
