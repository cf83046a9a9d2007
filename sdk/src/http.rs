//! Requests by HTTP, which the host makes for the tool.
//!
//! A tool has no sockets. It declares the hosts that it wants to reach, the operator's policy grants hosts to its
//! profile, and the host process makes each request to a host that is in both lists:
//!
//! ```
//! use portcullis_sdk::{ToolError, http, serde::Deserialize, tool};
//! # use portcullis_sdk::DeclaredTool as _;
//!
//! #[derive(Deserialize)]
//! #[serde(crate = "portcullis_sdk::serde")]
//! struct Weather {
//!     degrees: f64,
//! }
//!
//! /// Tells the temperature of a place.
//! #[tool(tier = ReadOnly, timeout = "10s", hosts = ["api.weather.example"])]
//! async fn temperature(place: &str) -> Result<String, ToolError> {
//!     let url = format!("https://api.weather.example/v1/now?place={}", http::encode(place));
//!     let weather: Weather = http::get(&url)?.error_for_status()?.json()?;
//!     Ok(format!("{} °C", weather.degrees))
//! }
//! # assert_eq!(temperature_tool().declaration().hosts, ["https://api.weather.example"]);
//! ```
//!
//! A request blocks the tool and counts towards the call's timeout. The end of the call closes its
//! connections. The host resolves and checks names, follows redirects that are both granted and declared,
//! speaks TLS, and decompresses bodies. It sets `Host`, `Content-Length` and the headers of the connection.
//!
//! # Bodies
//!
//! The tool gets a [`Response`] as soon as the head has arrived, and reads the body as the server sends it. A
//! read waits until there are bytes. A tool can therefore follow a feed of events, such as lines of JSON:
//!
//! ```
//! use std::io::{BufRead as _, BufReader};
//!
//! use portcullis_sdk::{ToolError, http, serde_json::{self, Value}, tool};
//! # use portcullis_sdk::testing::{FakeResponse, call, with_http};
//!
//! /// Waits until a build has ended, and tells how.
//! #[tool(tier = ReadOnly, timeout = "60s", hosts = ["ci.example"])]
//! async fn build_result(number: u32) -> Result<String, ToolError> {
//!     let feed = http::get(&format!("https://ci.example/builds/{number}/events"))?.error_for_status()?;
//!     for line in BufReader::new(feed).lines() {
//!         let event: Value = serde_json::from_str(&line.map_err(http::HttpError::from)?)?;
//!         if let Some(result) = event["result"].as_str() {
//!             // The rest of the feed is not waited for: the response is dropped, and its connection closed.
//!             return Ok(result.to_owned());
//!         }
//!     }
//!     Err("the feed has ended before the build".into())
//! }
//! # let feed = "{\"step\": \"compile\"}\n{\"result\": \"passed\"}\n{\"late\": 1}\n";
//! # let ask = || call(&build_result_tool(), r#"{"number": 7}"#);
//! # let output = with_http(move |_, _| FakeResponse::new(200, feed), ask).expect("a result");
//! # assert_eq!(output.joined_text(), "passed");
//! ```
//!
//! - A body has at most the `max_response` bytes of the operator's policy (10 MiB by default). The limit holds for the
//!   bytes before decompression and for the bytes after it. A larger body breaks off with `response_too_large` or
//!   `decoded_too_large`, and so does a body without an end.
//! - The call's deadline holds for the body, and the tool's own computation counts towards it too. While the
//!   tool does not read, backpressure stops the server.
//! - A body can break off at any point: by a limit, by the deadline, or by the server. The read then returns an
//!   [`io::Error`], which `From` converts to an [`HttpError`] with the code. The bytes before the error are intact. A
//!   read of 0 bytes is the end of a complete body.
//! - A call has at most 8 open responses. A response is open until it is read to its end or dropped.
//!
//! [`io::Error`]: std::io::Error
//!
//! Outside a sandbox, such as in a native test, there is no network. Requests fail with `unavailable`, unless
//! [`testing::with_http`](crate::testing::with_http) gives the answers.

#[cfg(target_family = "wasm")]
mod import;
mod response;

#[cfg(not(target_family = "wasm"))]
pub(crate) mod fake;
#[cfg(not(target_family = "wasm"))]
use fake as import;

use std::{fmt, io};

use portcullis_types::{HttpFailure, HttpRequestHead, HttpResult, ToolError, ToolErrorCode};

pub use response::Response;

/// Requests an address by `GET`.
///
/// # Errors
/// See [`Request::send`].
pub fn get(url: &str) -> Result<Response, HttpError> {
    Request::new("GET", url).send()
}

/// Encodes a text as a part of a path or a query. All characters but letters, digits, `-`, `.`, `_` and `~` become
/// `%XX` (RFC 3986, section 2.1).
#[must_use]
pub fn encode(text: &str) -> String {
    use std::fmt::Write as _;

    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A request, which [`Request::send`] sends.
#[derive(Debug, Clone)]
#[must_use = "a request that is not sent does nothing"]
pub struct Request {
    head: HttpRequestHead,
    body: Vec<u8>,
}

impl Request {
    /// A request without headers and body. `method` is in upper case, such as `GET` or `POST`.
    pub fn new(method: &str, url: &str) -> Self {
        let head = HttpRequestHead { method: method.to_owned(), url: url.to_owned(), headers: Vec::new() };
        Self { head, body: Vec::new() }
    }

    /// Adds a header. Headers of the connection are refused when the request is sent.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body, of at most [`MAX_HTTP_BODY_BYTES`](portcullis_types::MAX_HTTP_BODY_BYTES).
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to a value as JSON, and the header `Content-Type`.
    ///
    /// # Errors
    /// `request_invalid` if the value cannot be written as JSON.
    pub fn json(self, value: &impl serde::Serialize) -> Result<Self, HttpError> {
        let body = serde_json::to_vec(value).map_err(|error| HttpError::invalid(&error.to_string()))?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// Sends the request, and waits for the head of the response. The body is then read from the [`Response`]. A status
    /// of 400 or above is not an error here.
    ///
    /// # Errors
    /// [`HttpError`] with the host's reason: the request is not granted or not declared, or it failed.
    pub fn send(self) -> Result<Response, HttpError> {
        let head = serde_json::to_vec(&self.head).map_err(|error| HttpError::invalid(&error.to_string()))?;
        match import::send(&head, &self.body) {
            HttpResult::Ok(head) => Ok(Response::new(head)),
            HttpResult::Error(fault) => Err(HttpError(fault)),
        }
    }
}

/// The reason why there is no response, or why its body broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpError(HttpFailure);

impl HttpError {
    fn invalid(reason: &str) -> Self {
        Self::new(ToolErrorCode::RequestInvalid, reason)
    }

    fn new(code: ToolErrorCode, message: &str) -> Self {
        let kind = portcullis_types::GuestErrorKind::Failed;
        Self(HttpFailure { kind, code: code.to_string(), message: message.to_owned() })
    }

    /// Returns the stable code, such as `host_not_granted` or `name_unresolved`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.0.code
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for HttpError {}

/// Converts the error of a read to the reason why the body broke off. Any other error becomes `response_invalid`, such
/// as the error for text that is not UTF-8.
impl From<io::Error> for HttpError {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(|other| Self::new(ToolErrorCode::ResponseInvalid, &other.to_string()))
    }
}

impl From<HttpError> for ToolError {
    fn from(error: HttpError) -> Self {
        Self::new(error.0.kind.into(), error.0.message).with_code(error.0.code)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use portcullis_types::ToolErrorKind;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{FakeResponse, with_http};

    #[test]
    fn outside_a_sandbox_there_is_no_network() {
        let error = get("https://a.example/").expect_err("no network");
        assert_eq!(error.code(), "unavailable");
        assert_eq!(ToolError::from(error).kind(), ToolErrorKind::Unavailable);
    }

    #[test]
    fn a_response_is_read_in_any_way() {
        let answers = |request: &HttpRequestHead, body: &[u8]| {
            assert_eq!((request.method.as_str(), body), ("POST", &br#"{"n":1}"#[..]));
            FakeResponse::new(201, r#"{"m": [1, 2]}"#).header("X-Kind", "json")
        };
        let send = || {
            let request = Request::new("POST", "https://a.example/").json(&json!({"n": 1})).expect("JSON");
            request.send().expect("answered")
        };
        with_http(answers, || {
            let response = send();
            assert_eq!((response.status(), response.header("x-kind")), (201, Some("json")));
            assert_eq!(response.json::<Value>().expect("JSON"), json!({"m": [1, 2]}));
            assert_eq!(send().text().expect("text"), r#"{"m": [1, 2]}"#);
            let mut first_bytes = [0; 2];
            send().read_exact(&mut first_bytes).expect("reads");
            assert_eq!(&first_bytes, br#"{""#);
        });
    }

    #[test]
    fn a_status_becomes_an_error_only_if_asked() {
        with_http(
            |_, _| FakeResponse::new(404, "no such place"),
            || {
                assert_eq!(get("https://a.example/").expect("answered").status(), 404);
                let error = get("https://a.example/").and_then(Response::error_for_status).expect_err("404");
                assert_eq!(
                    (error.code(), error.to_string().as_str()),
                    ("http_status", "the server answered 404")
                );
                let json_error =
                    get("https://a.example/").expect("answered").json::<Value>().expect_err("no JSON");
                assert_eq!(json_error.code(), "response_invalid");
            },
        );
    }

    #[test]
    fn the_error_of_a_read_has_the_reason() {
        let fault = HttpError::new(ToolErrorCode::Stopped, "the host serves no more requests");
        let error = io::Error::other(fault.clone());
        assert_eq!(HttpError::from(error), fault);
        let error = io::Error::new(io::ErrorKind::InvalidData, "no UTF-8");
        assert_eq!(HttpError::from(error).code(), "response_invalid");
    }

    #[test]
    fn a_text_is_encoded_for_paths_and_queries() {
        assert_eq!(encode("São Paulo&x=/~1"), "S%C3%A3o%20Paulo%26x%3D%2F~1");
    }
}
