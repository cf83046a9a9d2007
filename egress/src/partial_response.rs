//! Refuses partial responses in which a secret could come back split in two.
//!
//! Redaction finds whole values in one body. A server that echoes its request and honours ranges could return
//! each half of a secret to a separate request.

use http::{HeaderMap, HeaderName, StatusCode, header};

use crate::{FetchError, Judge, Request};

/// Refuses a request for a part of a response, if its host may know a secret.
pub(crate) fn check_request(judge: &dyn Judge, request: &Request) -> Result<(), FetchError> {
    match RANGE_HEADERS.iter().find(|name| request.headers.contains_key(*name)) {
        Some(name) if judge.may_repeat_a_secret(&request.url) => {
            Err(FetchError::HeaderForbidden { name: name.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a partial response, even if none was asked for, if its host may know a secret.
pub(crate) fn check_response(
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

/// Returns whether a response is partial (RFC 9110, sections 14.4 and 14.6, and RFC 3229). Headers count
/// under any status, because a server could send a part under any status.
fn is_part(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_multipart = |value: &http::HeaderValue| {
        let name = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"multipart/byteranges")
    };
    matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::IM_USED)
        || headers.contains_key(header::CONTENT_RANGE)
        || headers.get_all(header::CONTENT_TYPE).iter().any(is_multipart)
}

/// The headers that ask for a partial response. `Request-Range` is an old name of `Range` that servers still
/// accept. `A-IM` (RFC 3229) requests a delta response, which can be a byte range.
const RANGE_HEADERS: [HeaderName; 4] = [
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
        let is_partial = is_part(StatusCode::from_u16(status).unwrap(), &headers.collect());
        assert_eq!(is_partial, expected, "{status} {header:?}");
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
