//! Extractors of bodies and parameters. Their refusals have the form of the interface's own errors.

use std::time::Duration;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use portcullis_store::{AgeCursor, PageRequest};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;

use crate::error::{ApiError, ErrorCode};

/// The default of `limit`, in items.
pub(super) const DEFAULT_LIMIT: u32 = 50;

/// The maximum number of items of a page: the limit of the store.
pub(super) const MAX_LIMIT: u32 = portcullis_store::limits::MAX_PAGE_ROWS;

/// The timeout of a request's body: 10 s.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// The maximum number of characters of a name.
pub(super) const MAX_NAME: usize = 80;

/// The body of a request, as JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reading = axum::Json::<T>::from_request(request, state);
        // Without a timeout, a slow client could hold a connection forever.
        let late = |_elapsed| ApiError::new(ErrorCode::RequestTimeout, "the body did not arrive within 10 s");
        let axum::Json(value) = tokio::time::timeout(BODY_DEADLINE, reading).await.map_err(late)??;
        Ok(Self(value))
    }
}

/// The query parameters of a request.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let axum::extract::Query(value) = axum::extract::Query::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The path parameters of a request.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let axum::extract::Path(value) = axum::extract::Path::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The requested page of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Paging {
    /// The number of items: 1 to 1,000. Default: 50.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<u32>,
    /// The cursor of the page before.
    pub(super) after: Option<String>,
}

/// Checks the number of items of a page.
///
/// # Errors
/// `invalid`.
fn limit(limit: Option<u32>) -> Result<u32, ApiError> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        Ok(limit)
    } else {
        Err(ApiError::invalid("limit", format!("a page has 1 to {MAX_LIMIT} items")))
    }
}

/// Returns the page request of a listing by age.
///
/// # Errors
/// `invalid`.
pub(super) fn by_age(count: Option<u32>, after: Option<&str>) -> Result<PageRequest<AgeCursor>, ApiError> {
    let limit = limit(count)?;
    let Some(after) = after else { return Ok(PageRequest::first(limit)) };
    // The time contains no dot, so the first dot ends it.
    let cursor = after.split_once('.').and_then(|(time, id)| Some((time.parse().ok()?, id.to_owned())));
    Ok(PageRequest::after(cursor.ok_or_else(|| bad_cursor("after"))?, limit))
}

/// Returns the page request of a listing by ordinal.
///
/// # Errors
/// `invalid`.
pub(super) fn by_ordinal(
    field: &str,
    count: Option<u32>,
    after: Option<&str>,
) -> Result<PageRequest<i64>, ApiError> {
    let limit = limit(count)?;
    let Some(after) = after else { return Ok(PageRequest::first(limit)) };
    let cursor = after.parse().ok().ok_or_else(|| bad_cursor(field))?;
    Ok(PageRequest::after(cursor, limit))
}

/// Encodes a cursor by age.
pub(super) fn age_cursor((time, id): AgeCursor) -> String {
    format!("{time}.{id}")
}

fn bad_cursor(field: &str) -> ApiError {
    ApiError::invalid(field, "this is not a cursor; take `next` of the page before")
}

/// Checks a display name.
///
/// # Errors
/// `invalid`.
pub(super) fn name(name: &str) -> Result<String, ApiError> {
    let is_name = (1..=MAX_NAME).contains(&name.chars().count())
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if is_name {
        Ok(name.to_owned())
    } else {
        let rule = "a name has 1 to 80 characters, no control character, and no blank at its ends";
        Err(ApiError::invalid("name", rule))
    }
}

/// Returns the value for one of these words.
///
/// # Errors
/// `invalid`, with the allowed words in the message.
pub(super) fn parse_word<T>(
    field: &str,
    text: &str,
    words: impl IntoIterator<Item = (&'static str, T)>,
) -> Result<T, ApiError> {
    let mut known = Vec::new();
    for (word, value) in words {
        if word == text {
            return Ok(value);
        }
        known.push(word);
    }
    let message = format!("`{}` is not one of {}", text.escape_default(), known.join(", "));
    Err(ApiError::invalid(field, message))
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body as StreamedBody, Bytes},
        http::{StatusCode, header::CONTENT_TYPE},
        response::IntoResponse as _,
    };
    use futures_util::{StreamExt as _, stream};
    use serde_json::Value;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_in_time_is_refused() {
        let head = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{\"text\": "))]);
        let request = Request::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(StreamedBody::from_stream(head.chain(stream::pending())))
            .expect("a request");
        let begin = tokio::time::Instant::now();
        let refused = Body::<Value>::from_request(request, &()).await.err().expect("refused");
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(begin.elapsed(), BODY_DEADLINE);
    }
}
