//! HTTP requests between a guest and its host, with heads as JSON and bodies sent separately.

use serde::{Deserialize, Serialize};

use crate::GuestErrorKind;

/// The name of the module from which guests import the functions for requests.
pub const HTTP_IMPORT: &str = "portcullis_http";

/// The maximum size of a request's head as JSON: 64 KiB.
pub const MAX_HTTP_HEAD_BYTES: usize = 64 << 10;

/// The maximum size of a request's body: 1 MiB minus the head's limit, so that both fit the HTTP
/// client's own limit.
pub const MAX_HTTP_BODY_BYTES: usize = (1 << 20) - MAX_HTTP_HEAD_BYTES;

/// The maximum number of bytes of a response's body that one read returns: 64 KiB.
pub const MAX_HTTP_READ_BYTES: usize = 64 << 10;

/// A request without its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequestHead {
    /// The method in capitals, such as `GET`.
    pub method: String,
    /// The URL, with its scheme.
    pub url: String,
    /// Further headers, in the order in which they are sent. The host sets the connection's headers itself.
    pub headers: Vec<(String, String)>,
}

/// A response without its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpResponseHead {
    /// The handle for reading the body. It is valid only in this call.
    pub body: u32,
    /// The status, such as 200.
    pub status: u16,
    /// The final URL, after all redirects.
    pub url: String,
    /// The headers whose values are text.
    pub headers: Vec<(String, String)>,
}

/// The failure of a request. A response with an error status is not a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpFailure {
    /// The kind of failure, as a guest may report it.
    pub kind: GuestErrorKind,
    /// The stable code, such as `host_not_granted` or `tls_failed`.
    pub code: String,
    /// The reason for the model and the tool.
    pub message: String,
}

/// The host's reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpResult {
    /// There is a response. Its body is read in pieces.
    Ok(HttpResponseHead),
    /// There is no response.
    Error(HttpFailure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_their_form_on_the_wire() {
        let head = HttpResponseHead {
            body: 1,
            status: 200,
            url: "https://a.example/".to_owned(),
            headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
        };
        let text = serde_json::to_string(&HttpResult::Ok(head.clone())).expect("JSON");
        assert_eq!(
            text,
            r#"{"ok":{"body":1,"status":200,"url":"https://a.example/","headers":[["content-type","text/plain"]]}}"#
        );
        assert_eq!(serde_json::from_str::<HttpResult>(&text).expect("an answer"), HttpResult::Ok(head));
        let fault = r#"{"error":{"kind":"denied","code":"host_not_granted","message":"m"}}"#;
        assert!(matches!(serde_json::from_str(fault), Ok(HttpResult::Error(_))));
        serde_json::from_str::<HttpRequestHead>(r#"{"method":"GET","url":"u","headers":[],"proxy":"x"}"#)
            .expect_err("an unknown key");
    }
}
