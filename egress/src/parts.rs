//! Parts of a response: refused where a secret could come back cut in two.
//!
//! Redaction finds whole values in one body. A server that echoes its request and honours ranges would give each half of
//! a secret to a request of its own.

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::{FetchError, Judge, Request};

/// Refuses a request for a part of a response, where its host may know a secret.
pub(crate) fn refuse_request(judge: &dyn Judge, request: &Request) -> Result<(), FetchError> {
    match ASK_FOR_A_PART.iter().find(|name| request.headers.contains_key(*name)) {
        Some(name) if judge.may_repeat_a_secret(&request.url) => {
            Err(FetchError::HeaderForbidden { name: name.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a response that is a part, also one that was not asked for, where its host may know a secret.
pub(crate) fn refuse_response(
    judge: &dyn Judge,
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<(), FetchError> {
    if is_part(status, headers) && judge.may_repeat_a_secret(&request.url) {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        return Err(FetchError::ResponsePartial { host });
    }
    Ok(())
}

/// RFC 9110, sections 14.4 and 14.6, and RFC 3229. Other statuses count too: a server could send a part under any.
fn is_part(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_multipart = |value: &http::HeaderValue| {
        let name = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"multipart/byteranges")
    };
    matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::IM_USED)
        || headers.contains_key(header::CONTENT_RANGE)
        || headers.get_all(header::CONTENT_TYPE).iter().any(is_multipart)
}

/// `Request-Range` is an old name of `Range` that servers still take. `A-IM` asks for a difference (RFC 3229), of which
/// a range is one kind.
const ASK_FOR_A_PART: [HeaderName; 4] = [
    header::RANGE,
    header::IF_RANGE,
    HeaderName::from_static("request-range"),
    HeaderName::from_static("a-im"),
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(status: u16, header: Option<(&'static str, &'static str)>, expected: bool) {
        let headers = header
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let found = is_part(StatusCode::from_u16(status).unwrap(), &headers.collect());
        assert_eq!(found, expected, "{status} {header:?}");
    }

    #[test]
    fn a_part_is_known_by_status_or_header() {
        check(206, None, true);
        check(226, None, true);
        check(200, Some(("content-range", "bytes 0-9/20")), true);
        check(200, Some(("content-type", "Multipart/ByteRanges ; boundary=x")), true);
        check(200, Some(("content-type", "multipart/mixed")), false);
        check(200, None, false);
        check(416, None, false);
    }
}
