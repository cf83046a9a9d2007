//! The request that follows a redirect (RFC 9110, section 15.4), or the reason why the redirect is refused.

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use url::Url;

use crate::{FetchError, Request};

/// Returns whether this response redirects the request. A redirect status without `Location` is an ordinary
/// response.
pub(crate) fn is_redirect(status: StatusCode, headers: &HeaderMap) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    ) && headers.contains_key(header::LOCATION)
}

/// Returns the next request. Only [`KEPT_ACROSS_ORIGINS`] headers are sent to another origin: an allowlist,
/// because a denylist would miss custom credential headers. A body is sent only to its own origin.
pub(crate) fn follow(
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Request, FetchError> {
    let host = || request.url.host_str().unwrap_or_default().to_owned();
    let mut url =
        location(&request.url, headers).ok_or_else(|| FetchError::RedirectInvalid { host: host() })?;
    url.set_fragment(None);
    match url.scheme() {
        "http" if request.url.scheme() == "https" => {
            return Err(FetchError::RedirectDowngrade { host: host() });
        }
        "http" | "https" => {}
        scheme => return Err(FetchError::Scheme { scheme: scheme.to_owned() }),
    }
    let is_same_origin = url.origin() == request.url.origin();
    let mut next_request = request.clone();
    next_request.url = url;
    if becomes_get(&request.method, status) {
        next_request.method = Method::GET;
        next_request.body.clear();
        // These headers describe the body that was just dropped (RFC 9110, section 15.4).
        for name in [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING] {
            next_request.headers.remove(name);
        }
    } else if !is_same_origin && !next_request.body.is_empty() {
        return Err(FetchError::RedirectBody { host: host() });
    }
    if !is_same_origin {
        next_request.headers = next_request
            .headers
            .iter()
            .filter(|(name, value)| KEPT_ACROSS_ORIGINS.contains(name) && !value.is_sensitive())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
    }
    Ok(next_request)
}

/// Returns the target, resolved against the redirecting URL. `None` if there is not exactly one valid `Location`
/// header.
fn location(base: &Url, headers: &HeaderMap) -> Option<Url> {
    let mut values = headers.get_all(header::LOCATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    base.join(str::from_utf8(value.as_bytes()).ok()?).ok()
}

/// Returns whether the next request becomes a `GET`: after 303 unless the method is `HEAD`, and for `POST`
/// after 301 and 302 (RFC 9110, section 15.4.2).
fn becomes_get(method: &Method, status: StatusCode) -> bool {
    match status {
        StatusCode::SEE_OTHER => !matches!(*method, Method::GET | Method::HEAD),
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        _ => false,
    }
}

const KEPT_ACROSS_ORIGINS: [HeaderName; 5] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONTENT_TYPE,
    header::USER_AGENT,
];

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;

    fn request(method: Method) -> Request {
        let mut request = Request::get("https://one.test/a/b?c".parse().unwrap());
        for (name, value) in
            [(header::AUTHORIZATION, "Bearer x"), (header::COOKIE, "x"), (header::ACCEPT, "text/html")]
        {
            request.headers.insert(name, HeaderValue::from_static(value));
        }
        request.headers.insert("x-api-key", HeaderValue::from_static("x"));
        if method == Method::POST {
            request.body = Bytes::from_static(b"body");
            request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }
        request.method = method;
        request
    }

    fn location_headers(location: &str) -> HeaderMap {
        [(header::LOCATION, HeaderValue::from_str(location).unwrap())].into_iter().collect()
    }

    #[track_caller]
    fn check(location: &str, expected: Result<&str, &str>) {
        let next_request = follow(&request(Method::GET), StatusCode::FOUND, &location_headers(location));
        let next_url = next_request.as_ref().map(|request| request.url.as_str()).map_err(FetchError::code);
        assert_eq!(next_url, expected, "{location}");
    }

    #[test]
    fn a_target_is_relative_and_never_leaves_https() {
        check("d", Ok("https://one.test/a/d"));
        check("/d#e", Ok("https://one.test/d"));
        check("//two.test/", Ok("https://two.test/"));
        check("http://one.test/", Err("redirect_downgrade"));
        check("file:///etc/passwd", Err("scheme_forbidden"));
        check("javascript:alert(1)", Err("scheme_forbidden"));
        check("https://", Err("redirect_invalid"));
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let same_origin = follow(&request(Method::GET), StatusCode::FOUND, &location_headers("/d")).unwrap();
        assert_eq!(same_origin.headers.len(), 4);
        for other_origin in ["https://two.test/", "https://one.test:8443/", "https://sub.one.test/"] {
            let next_request =
                follow(&request(Method::GET), StatusCode::FOUND, &location_headers(other_origin)).unwrap();
            assert_eq!(next_request.headers.keys().collect::<Vec<_>>(), [header::ACCEPT], "{other_origin}");
        }
    }

    #[test]
    fn a_body_is_sent_again_to_its_own_origin_only() {
        let post = |status, location| follow(&request(Method::POST), status, &location_headers(location));
        let after_see_other = post(StatusCode::SEE_OTHER, "https://two.test/").unwrap();
        assert_eq!((after_see_other.method, after_see_other.body.len()), (Method::GET, 0));
        let same_origin = post(StatusCode::TEMPORARY_REDIRECT, "/d").unwrap();
        assert_eq!((same_origin.method, same_origin.body.len()), (Method::POST, 4));
        let error = post(StatusCode::PERMANENT_REDIRECT, "https://two.test/").unwrap_err();
        assert_eq!(error.code(), "redirect_body");
    }

    #[test]
    fn two_locations_are_not_a_target() {
        let mut headers = location_headers("/d");
        headers.append(header::LOCATION, HeaderValue::from_static("/e"));
        let error = follow(&request(Method::GET), StatusCode::FOUND, &headers).unwrap_err();
        assert_eq!(error.code(), "redirect_invalid");
        assert!(!is_redirect(StatusCode::FOUND, &HeaderMap::new()));
        assert!(!is_redirect(StatusCode::NOT_MODIFIED, &headers));
    }
}
