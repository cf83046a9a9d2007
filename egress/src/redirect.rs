//! The request that follows a redirect (RFC 9110, 15.4), or the reason why none does.

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use url::Url;

use crate::{FetchError, Request};

/// Whether this response redirects the request. A redirect status without `Location` is an ordinary response.
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

/// The next request. Only harmless headers follow to another origin. An allow list is used, since a deny list
/// would miss custom credential headers. A body stays with its origin.
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
        other => return Err(FetchError::Scheme { scheme: other.to_owned() }),
    }
    let is_same_origin = url.origin() == request.url.origin();
    let mut next = request.clone();
    next.url = url;
    if becomes_get(&request.method, status) {
        next.method = Method::GET;
        next.body.clear();
        for name in [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING] {
            next.headers.remove(name);
        }
    } else if !is_same_origin && !next.body.is_empty() {
        return Err(FetchError::RedirectBody { host: host() });
    }
    if !is_same_origin {
        next.headers = next
            .headers
            .iter()
            .filter(|(name, value)| HARMLESS.contains(name) && !value.is_sensitive())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
    }
    Ok(next)
}

/// The target, relative to the redirecting address. `None` if there are several `Location` headers.
fn location(from: &Url, headers: &HeaderMap) -> Option<Url> {
    let mut values = headers.get_all(header::LOCATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    from.join(str::from_utf8(value.as_bytes()).ok()?).ok()
}

/// 303 asks for `GET`. After 301 and 302, clients turn `POST` into `GET` (RFC 9110, 15.4.2).
fn becomes_get(method: &Method, status: StatusCode) -> bool {
    match status {
        StatusCode::SEE_OTHER => !matches!(*method, Method::GET | Method::HEAD),
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        _ => false,
    }
}

const HARMLESS: [HeaderName; 5] = [
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

    fn to(location: &str) -> HeaderMap {
        [(header::LOCATION, HeaderValue::from_str(location).unwrap())].into_iter().collect()
    }

    #[track_caller]
    fn check(location: &str, expected: Result<&str, &str>) {
        let next = follow(&request(Method::GET), StatusCode::FOUND, &to(location));
        let found = next.as_ref().map(|next| next.url.as_str()).map_err(FetchError::code);
        assert_eq!(found, expected, "{location}");
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
        let same = follow(&request(Method::GET), StatusCode::FOUND, &to("/d")).unwrap();
        assert_eq!(same.headers.len(), 4);
        for other in ["https://two.test/", "https://one.test:8443/", "https://sub.one.test/"] {
            let next = follow(&request(Method::GET), StatusCode::FOUND, &to(other)).unwrap();
            assert_eq!(next.headers.keys().collect::<Vec<_>>(), [header::ACCEPT], "{other}");
        }
    }

    #[test]
    fn a_body_is_sent_again_to_its_own_origin_only() {
        let post = |status, location| follow(&request(Method::POST), status, &to(location));
        let seen = post(StatusCode::SEE_OTHER, "https://two.test/").unwrap();
        assert_eq!((seen.method, seen.body.len()), (Method::GET, 0));
        let same = post(StatusCode::TEMPORARY_REDIRECT, "/d").unwrap();
        assert_eq!((same.method, same.body.len()), (Method::POST, 4));
        let error = post(StatusCode::PERMANENT_REDIRECT, "https://two.test/").unwrap_err();
        assert_eq!(error.code(), "redirect_body");
    }

    #[test]
    fn two_locations_are_no_target() {
        let mut headers = to("/d");
        headers.append(header::LOCATION, HeaderValue::from_static("/e"));
        let error = follow(&request(Method::GET), StatusCode::FOUND, &headers).unwrap_err();
        assert_eq!(error.code(), "redirect_invalid");
        assert!(!is_redirect(StatusCode::FOUND, &HeaderMap::new()));
        assert!(!is_redirect(StatusCode::NOT_MODIFIED, &headers));
    }
}
