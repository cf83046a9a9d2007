//! Converts the response of an HTTP tool's request to the result of a call.

use portcullis_egress::Response;
use portcullis_types::{ToolError, ToolErrorCode, ToolOutput};
use serde_json::{Value, json};

use super::operation_steps::{add_source, refused_with_body};
use crate::http_tool::is_json;

/// The maximum length of a JSON text that becomes structured data: 1 MiB. A longer text stays a text, because
/// a parsed value can take many times the memory of its text.
const MAX_PARSED_BYTES: usize = 1 << 20;

/// Returns the result of a call: JSON as structured data, text as it is, and only type and
/// size of anything else.
///
/// # Errors
/// The call's error if the status is 400 or above, with the start of the body, and `response_invalid` if a
/// body is declared as JSON but is not JSON.
pub(crate) fn output_of_response(response: &Response) -> Result<ToolOutput, ToolError> {
    let content_type = response.headers.get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let text = std::str::from_utf8(&response.body).ok().filter(|_| is_text(content_type));
    if let Some(error) = refused_with_body(response, text) {
        return Err(error);
    }
    let output = match text {
        _ if response.body.is_empty() => {
            ToolOutput::text(format!("status {}, without content", response.status.as_u16()))
        }
        Some(text) => output_of_text(text, content_type)?,
        None => {
            let kind = if content_type.is_empty() { "no type" } else { content_type };
            let reason = if is_text(content_type) { "it is not UTF-8" } else { "its content is not shown" };
            ToolOutput::text(format!("{kind}, {} bytes; {reason}", response.body.len()))
        }
    };
    let mut output = output.with_details(json!({ "type": content_type }));
    add_source(&mut output, response);
    Ok(output)
}

fn output_of_text(text: &str, content_type: &str) -> Result<ToolOutput, ToolError> {
    // Some servers name no content type. Recognize their JSON, but only objects and lists:
    // `5` is also a text.
    let may_be_json = content_type.is_empty() && text.trim_start().starts_with(['{', '[']);
    if text.len() > MAX_PARSED_BYTES || !(is_json(content_type) || may_be_json) {
        return Ok(ToolOutput::text(text));
    }
    match serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) {
        Ok(value) => Ok(ToolOutput::structured(value)),
        Err(_) if may_be_json => Ok(ToolOutput::text(text)),
        Err(error) => {
            Err(ToolError::failed(format!("the server's response is not the declared JSON: {error}"))
                .with_code(ToolErrorCode::ResponseInvalid))
        }
    }
}

/// Whether a body of this type is text: text, JSON, XML, scripts and forms, or no type at all.
fn is_text(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let texts = [
        "application/xml",
        "application/javascript",
        "application/x-www-form-urlencoded",
        "application/x-ndjson",
        "application/yaml",
    ];
    essence.is_empty()
        || essence.starts_with("text/")
        || essence.ends_with("+xml")
        || is_json(&essence)
        || texts.contains(&&*essence)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::Bytes;
    use portcullis_egress::{ContentCoding, HeaderMap, HeaderValue, StatusCode};
    use portcullis_types::ToolErrorKind;

    use super::{super::operation_steps::MAX_QUOTED_BYTES, *};

    fn response(status: u16, content_type: &str, body: &[u8]) -> Response {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert("content-type", HeaderValue::from_str(content_type).expect("a value"));
        }
        Response {
            url: "https://a.example/x".parse().expect("a URL"),
            redirects: 0,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 443)),
            status: StatusCode::from_u16(status).expect("a status"),
            headers,
            body: Bytes::copy_from_slice(body),
            wire_bytes: body.len(),
            coding: ContentCoding::Identity,
            redacted: false,
        }
    }

    #[track_caller]
    fn check(content_type: &str, body: &[u8], structured: Option<Value>, text: &str) {
        let output = output_of_response(&response(200, content_type, body)).expect("a result");
        assert_eq!((output.structured.clone(), output.joined_text().as_str()), (structured, text));
        assert_eq!(output.details["status"], 200);
    }

    #[test]
    fn each_kind_of_body_has_its_form() {
        check("application/json", b"{\"a\": [1]}", Some(json!({"a": [1]})), "{\"a\":[1]}");
        check("application/problem+json; charset=utf-8", b"null", Some(Value::Null), "null");
        check("", b" [1]", Some(json!([1])), "[1]");
        check("", b"{no JSON", None, "{no JSON");
        check("text/plain", b"{\"a\": 1}", None, "{\"a\": 1}");
        check("image/svg+xml", b"<svg/>", None, "<svg/>");
        check("application/json", b"", None, "status 200, without content");
        check("image/png", b"\x89PNG", None, "image/png, 4 bytes; its content is not shown");
        check("text/plain", b"caf\xe9", None, "text/plain, 4 bytes; it is not UTF-8");
        check("application/json", b"\"\xff\"", None, "application/json, 3 bytes; it is not UTF-8");
    }

    #[test]
    fn long_json_stays_a_text() {
        let long = format!("[{}1]", "1,".repeat(MAX_PARSED_BYTES / 2));
        let output = output_of_response(&response(200, "application/json", long.as_bytes())).expect("a text");
        assert_eq!((output.structured, output.content[0].as_text()), (None, Some(&*long)));
    }

    #[test]
    fn a_declared_json_body_that_is_not_json_is_an_error() {
        let deep = "[".repeat(100_000);
        for body in ["{", "{}x", &*deep] {
            let error = output_of_response(&response(200, "application/json", body.as_bytes()));
            assert_eq!(error.expect_err("no JSON").code(), "response_invalid");
        }
    }

    #[test]
    fn an_error_status_is_an_error_with_the_start_of_the_body() {
        let long = "é".repeat(MAX_QUOTED_BYTES);
        for (status, kind) in [
            (400, ToolErrorKind::Failed),
            (404, ToolErrorKind::NotFound),
            (429, ToolErrorKind::Unavailable),
            (500, ToolErrorKind::Failed),
        ] {
            let error = output_of_response(&response(status, "text/plain", long.as_bytes()));
            let error = error.expect_err("a status");
            assert_eq!((error.kind(), error.code()), (kind, "http_status"));
            let message = error.to_string();
            assert!(message.contains(&status.to_string()) && message.contains("éé"), "{message}");
            assert!(message.len() < MAX_QUOTED_BYTES + 200, "{}", message.len());
        }
        let error = output_of_response(&response(500, "image/png", b"\x89PNG")).expect_err("a status");
        assert!(!error.to_string().contains("PNG"), "{error}");
    }
}
