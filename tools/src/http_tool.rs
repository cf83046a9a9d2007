//! HTTP tools: each call is one request to the URL in the tool's configuration. The host makes the request,
//! so the policy's rules for hosts, addresses, methods, redirects, sizes and secrets apply to it.

use std::{fmt, time::Duration};

use bytes::Bytes;
use portcullis_egress::{HeaderMap, HeaderName, HeaderValue, Url, is_reserved_header};
use portcullis_policy::{
    HttpMethod, InvalidUrl, MAX_URL_BYTES, OutputBytes, PinStatus, ToolDescriptor, ToolOrigin,
    parse_request_url,
};
use portcullis_types::{
    FunctionDecl, SafetyTier, ToolArgs, ToolError, ToolMeta, ToolPolicy, escape_for_display,
};
use serde_json::Value;
use thiserror::Error;

use crate::{registered::parse_name, registry::RegistryError};

/// The methods that an HTTP tool may have.
pub const HTTP_TOOL_METHODS: [HttpMethod; 5] =
    [HttpMethod::Get, HttpMethod::Post, HttpMethod::Put, HttpMethod::Patch, HttpMethod::Delete];

/// The headers that carry credentials. A configuration must not set them: the policy attaches secrets.
const CREDENTIAL_HEADERS: [&str; 2] = ["authorization", "cookie"];

const CONTENT_TYPE: &str = "content-type";

/// A tool whose calls are requests.
#[derive(Debug, Clone)]
pub struct HttpTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// A name for people. Default: the tool's own name.
    pub label: Option<String>,
    /// The tier. `None` counts as side-effecting, but calls may run concurrently with others.
    pub tier: Option<SafetyTier>,
    /// Whether every call needs an approval.
    pub policy: ToolPolicy,
    /// The request that each call makes.
    pub target: HttpTarget,
    /// The timeout of a whole call: name resolution, connections, redirects, response. The policy may shorten
    /// it.
    pub timeout: Duration,
    /// Hints for the registry.
    pub meta: ToolMeta,
}

impl HttpTool {
    /// Creates a tool with this declaration and request: no required approval, a timeout of 30 s, and the
    /// tier side-effecting unless the method is safe.
    #[must_use]
    pub fn new(decl: FunctionDecl, target: HttpTarget) -> Self {
        Self {
            decl,
            label: None,
            // A side-effecting tier makes calls run one at a time.
            tier: (!target.method.is_safe()).then_some(SafetyTier::SideEffecting),
            policy: ToolPolicy::Auto,
            target,
            timeout: portcullis_types::DEFAULT_TIMEOUT,
            meta: ToolMeta::default(),
        }
    }

    /// Returns the descriptor that the policy judges the tool by.
    pub(crate) fn descriptor(&self) -> Result<ToolDescriptor, RegistryError> {
        let name = parse_name(&self.decl.name, &self.decl.name)?;
        Ok(ToolDescriptor {
            name,
            declared_tier: self.tier,
            declared_policy: self.policy,
            declared_timeout: Some(self.timeout),
            declared_max_output: self.meta.output_cap_bytes.map(OutputBytes),
            roles: Vec::new(),
            origin: ToolOrigin::Http,
            pin_status: PinStatus::Unpinned,
        })
    }
}

/// The validated request of an HTTP tool: URL, method, headers.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpTarget {
    url: Url,
    method: HttpMethod,
    headers: HeaderMap,
}

/// Omits the query and the values of headers, each of which may hold a secret.
impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("method", &self.method)
            .field("origin", &self.url.origin().ascii_serialization())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A mistake in the request of an HTTP tool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidHttpTarget {
    /// The text is not a URL that a policy could allow.
    #[error(transparent)]
    Url(InvalidUrl),
    /// The method is none of [`HTTP_TOOL_METHODS`].
    #[error("unknown method; use GET, POST, PUT, PATCH or DELETE")]
    Method,
    /// The text is not a valid header name.
    #[error("`{}` is not a valid header name", escape_for_display(name))]
    HeaderName {
        /// The header's name, as it is written.
        name: String,
    },
    /// The value contains control characters, such as line breaks.
    #[error("its value has control characters")]
    HeaderValue {
        /// The header's name, as it is written.
        name: String,
    },
    /// The host sets this header itself, because it belongs to the connection or the framing.
    #[error("the host sets this header itself; leave it out")]
    ReservedHeader {
        /// The header's name, as it is written.
        name: String,
    },
    /// The header carries a credential.
    #[error(
        "a credential is not part of a configuration; write it as a secret of the policy, with this header and the tool's name: `[secrets.NAME]`"
    )]
    CredentialHeader {
        /// The header's name, as it is written.
        name: String,
    },
    /// The header is given twice. Names differ at most in case.
    #[error("the header is given twice")]
    RepeatedHeader {
        /// The header's name, in lower case.
        name: String,
    },
    /// The header names a content type other than the one that is sent.
    #[error("{}", content_type_fault(*has_body))]
    ContentType {
        /// Whether a request with the method has a body.
        has_body: bool,
    },
}

impl InvalidHttpTarget {
    /// Returns the key of `execution` that has the mistake, such as `url` or `headers.Host`.
    #[must_use]
    pub fn location(&self) -> String {
        match self {
            Self::Url(_) => "url".to_owned(),
            Self::Method => "method".to_owned(),
            Self::HeaderName { name }
            | Self::HeaderValue { name }
            | Self::ReservedHeader { name }
            | Self::CredentialHeader { name }
            | Self::RepeatedHeader { name } => format!("headers.{}", escape_for_display(name)),
            Self::ContentType { .. } => format!("headers.{CONTENT_TYPE}"),
        }
    }
}

fn content_type_fault(has_body: bool) -> &'static str {
    if has_body {
        "the arguments are sent as JSON; write `application/json` or leave it out"
    } else {
        "a request with this method has no body, and so no type of it; leave it out"
    }
}

impl HttpTarget {
    /// Validates the parts of a request. Header values are sent verbatim, without any substitution.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn new<'h>(
        url: &str,
        method: HttpMethod,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Self, Vec<InvalidHttpTarget>> {
        let mut faults = Vec::new();
        let url = parse_request_url(url).map_err(|error| faults.push(InvalidHttpTarget::Url(error))).ok();
        if !HTTP_TOOL_METHODS.contains(&method) {
            faults.push(InvalidHttpTarget::Method);
        }
        let mut checked_headers = HeaderMap::new();
        for (name, value) in headers {
            match check_header(name, value, method) {
                Ok((name, _)) if checked_headers.contains_key(&name) => {
                    faults.push(InvalidHttpTarget::RepeatedHeader { name: name.to_string() });
                }
                Ok((name, value)) => drop(checked_headers.insert(name, value)),
                Err(fault) => faults.push(fault),
            }
        }
        match url {
            Some(url) if faults.is_empty() => Ok(Self { url, method, headers: checked_headers }),
            _ => Err(faults),
        }
    }

    /// The URL, in canonical form.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The method of the request, one of [`HTTP_TOOL_METHODS`].
    #[must_use]
    pub fn method(&self) -> HttpMethod {
        self.method
    }

    /// The configured headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether this is the tool's URL, ignoring the query.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        // The query carries the arguments, so it differs from call to call.
        let without_query = |mut url: Url| {
            url.set_query(None);
            url
        };
        parse_request_url(url).is_ok_and(|url| without_query(url) == without_query(self.url.clone()))
    }

    /// Returns the URL with the arguments appended to its query: strings, numbers and booleans as they are,
    /// lists and objects as JSON. An argument that is `null` is left out. If the arguments go in the body,
    /// the URL is unchanged.
    ///
    /// # Errors
    /// `invalid_arguments` if the URL becomes longer than the maximum.
    pub(crate) fn url_with(&self, args: &ToolArgs) -> Result<Url, ToolError> {
        let mut url = self.url.clone();
        if has_body(self.method) {
            return Ok(url);
        }
        let members = args.value().as_object().into_iter().flatten();
        let mut given = members.filter(|(_, value)| !value.is_null()).peekable();
        if given.peek().is_some() {
            let mut pairs = url.query_pairs_mut();
            for (name, value) in given {
                match value {
                    Value::String(text) => pairs.append_pair(name, text),
                    value => pairs.append_pair(name, &value.to_string()),
                };
            }
        }
        let bytes = url.as_str().len();
        if bytes > MAX_URL_BYTES {
            let message = format!(
                "the arguments are sent in a URL, which would have {bytes} bytes; it may have {MAX_URL_BYTES}"
            );
            return Err(ToolError::invalid_arguments(message));
        }
        Ok(url)
    }

    /// Returns the body of a request with these arguments; `None` if they go in the query.
    pub(crate) fn body_with(&self, args: &ToolArgs) -> Option<Bytes> {
        has_body(self.method).then(|| Bytes::copy_from_slice(args.text().as_bytes()))
    }
}

/// Whether the arguments are the body of a request with this method. A body of `GET` or `DELETE` has no defined meaning
/// (RFC 9110, sections 9.3.1 and 9.3.5).
fn has_body(method: HttpMethod) -> bool {
    matches!(method, HttpMethod::Post | HttpMethod::Put | HttpMethod::Patch)
}

fn check_header(
    name: &str,
    value: &str,
    method: HttpMethod,
) -> Result<(HeaderName, HeaderValue), InvalidHttpTarget> {
    let written = || name.to_owned();
    let parsed_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_invalid| InvalidHttpTarget::HeaderName { name: written() })?;
    if is_reserved_header(&parsed_name) {
        return Err(InvalidHttpTarget::ReservedHeader { name: written() });
    }
    if CREDENTIAL_HEADERS.contains(&parsed_name.as_str()) {
        return Err(InvalidHttpTarget::CredentialHeader { name: written() });
    }
    let parsed_value = HeaderValue::from_str(value)
        .map_err(|_invalid| InvalidHttpTarget::HeaderValue { name: written() })?;
    if parsed_name.as_str() == CONTENT_TYPE && !(has_body(method) && is_json(value)) {
        return Err(InvalidHttpTarget::ContentType { has_body: has_body(method) });
    }
    Ok((parsed_name, parsed_value))
}

/// Whether a content type is JSON (RFC 6839, section 3.1, for the suffix).
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(method: HttpMethod, url: &str) -> HttpTarget {
        HttpTarget::new(url, method, []).expect("a request")
    }

    #[track_caller]
    fn check_query(url: &str, arguments: &Value, expected: &str) {
        let args = ToolArgs::parse(&arguments.to_string()).expect("JSON");
        let get = target(HttpMethod::Get, url);
        assert_eq!(get.url_with(&args).expect("short").as_str(), expected);
        assert_eq!(get.body_with(&args), None);
    }

    #[test]
    fn arguments_of_a_get_are_in_the_query_after_its_own() {
        check_query("https://a.example/x", &json!({}), "https://a.example/x");
        check_query("https://a.example/x?", &json!({"a": null}), "https://a.example/x?");
        check_query(
            "https://a.example/x?key=1&q=y#part",
            &json!({"q": "Paris & Rome", "n": 3, "f": 1.5, "on": true, "off": null}),
            "https://a.example/x?key=1&q=y&f=1.5&n=3&on=true&q=Paris+%26+Rome",
        );
        check_query(
            "https://a.example/",
            &json!({"list": [1, "a&b"], "of": {"x": {"y": []}}}),
            "https://a.example/?list=%5B1%2C%22a%26b%22%5D&of=%7B%22x%22%3A%7B%22y%22%3A%5B%5D%7D%7D",
        );
        check_query(
            "https://a.example/",
            &json!({"a&b=c#d": "../?x=1\r\nHost: evil", "": "%00"}),
            "https://a.example/?=%2500&a%26b%3Dc%23d=..%2F%3Fx%3D1%0D%0AHost%3A+evil",
        );
    }

    #[test]
    fn other_methods_send_the_arguments_as_their_body() {
        let args = ToolArgs::parse(r#"{"n": 340282366920938463463374607431768211455}"#).expect("JSON");
        for method in [HttpMethod::Post, HttpMethod::Put, HttpMethod::Patch] {
            let target = target(method, "https://a.example/x?a=b");
            assert_eq!(target.url_with(&args).expect("short").as_str(), "https://a.example/x?a=b");
            assert_eq!(target.body_with(&args).as_deref(), Some(args.text().as_bytes()), "no digit is lost");
        }
        let delete = target(HttpMethod::Delete, "https://a.example/x");
        let args = ToolArgs::parse(r#"{"id": 7}"#).expect("JSON");
        assert_eq!(delete.url_with(&args).expect("short").as_str(), "https://a.example/x?id=7");
        assert_eq!(delete.body_with(&args), None);
    }

    #[test]
    fn arguments_that_do_not_fit_a_url_are_refused() {
        let args = ToolArgs::parse(&json!({"q": "x".repeat(MAX_URL_BYTES)}).to_string()).expect("JSON");
        let error = target(HttpMethod::Get, "https://a.example/").url_with(&args).expect_err("too long");
        assert!(error.to_string().contains("8192"), "{error}");
    }

    #[track_caller]
    fn check_faults(url: &str, method: HttpMethod, headers: &[(&str, &str)], locations: &[&str]) {
        let faults = HttpTarget::new(url, method, headers.iter().copied())
            .map_err(|faults| faults.iter().map(InvalidHttpTarget::location).collect::<Vec<_>>());
        assert_eq!(faults.err().unwrap_or_default(), locations, "{url} {headers:?}");
    }

    #[test]
    fn all_mistakes_are_reported_with_their_locations() {
        let get = HttpMethod::Get;
        for url in [
            "",
            "a.example",
            "ftp://a.example/",
            "https://u:p@a.example/",
            "https://a.example/\n",
            "file:///x",
        ] {
            check_faults(url, get, &[], &["url"]);
        }
        check_faults("https://a.example/", HttpMethod::Head, &[], &["method"]);
        check_faults(
            "x",
            HttpMethod::Options,
            &[("A B", "x"), ("X-A", "1\r\nX-B: 2"), ("Host", "h"), ("Transfer-Encoding", "chunked")],
            &["url", "method", "headers.A B", "headers.X-A", "headers.Host", "headers.Transfer-Encoding"],
        );
        check_faults(
            "https://a.example/",
            get,
            &[("Authorization", "Bearer {secret}"), ("cookie", "a=b"), ("X-A", "1"), ("x-a", "2")],
            &["headers.Authorization", "headers.cookie", "headers.x-a"],
        );
        check_faults(
            "https://a.example/",
            get,
            &[("Content-Type", "application/json")],
            &["headers.content-type"],
        );
        let post = HttpMethod::Post;
        check_faults(
            "https://a.example/",
            post,
            &[("Content-Type", "text/plain")],
            &["headers.content-type"],
        );
        check_faults("https://a.example/", post, &[("Content-Type", "application/vnd.a+json; v=1")], &[]);
        check_faults("https://a.example/", get, &[("User-Agent", "mine"), ("X-Key", "${HOME}")], &[]);
    }

    #[test]
    fn debug_output_has_neither_query_nor_values() {
        let target =
            HttpTarget::new("https://a.example/p?key=hidden", HttpMethod::Get, [("X-Key", "hidden")]);
        let text = format!("{:?}", target.expect("a request"));
        assert!(!text.contains("hidden") && text.contains("x-key"), "{text}");
    }
}
