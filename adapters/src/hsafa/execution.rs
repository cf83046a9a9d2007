//! The execution of a configured tool: `executionType`, and the request in `execution`.
//!
//! The specification sets this order. An internal tool returns its arguments. A tool with `execution.url`, of
//! any type, makes a request and returns the result immediately, even with `isAsync`. Every other tool's
//! result is submitted from outside. A type that contradicts `execution` is a mistake.

use portcullis_tools::{HTTP_TOOL_METHODS, HttpTarget, policy::HttpMethod};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::faults::Faults;

/// The keys of `execution`.
const KEYS: [&str; 3] = ["url", "method", "headers"];

portcullis_types::word_enum! {
    /// The type of a configured tool, as its configuration states it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum ExecutionType {
        /// A request to a URL.
        Gateway = "gateway",
        /// Another program submits the results.
        External = "external",
        /// A person submits the results, through a page that shows the call.
        Space = "space",
        /// A call returns its arguments.
        Internal = "internal",
    }
}

/// The action of a call of a configured tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolExecution {
    /// The call makes this request, and returns the response.
    Http(HttpTarget),
    /// The call waits for a result from outside.
    Pending,
    /// The call returns its arguments.
    Internal,
}

/// Reads the type and the execution of a configuration. Returns `None` if one of them has a mistake.
pub(super) fn read(
    item: &Map<String, Value>,
    location: &str,
    faults: &mut Faults,
) -> Option<(ExecutionType, ToolExecution)> {
    let kind = faults.text(item, "executionType", location).and_then(|word| {
        let known = ExecutionType::ALL.into_iter().find(|known| known.as_str() == word);
        known.or_else(|| {
            let names = ExecutionType::ALL.map(ExecutionType::as_str).join(", ");
            let fault = format!("`{}` is not one of {names}", word.escape_default());
            faults.add_at(location, "executionType", &fault)
        })
    });
    let target = match item.get("execution") {
        None => None,
        Some(_) if kind == Some(ExecutionType::Internal) => {
            return faults.add_at(
                location,
                "execution",
                "an internal tool has none: a call returns its arguments",
            );
        }
        Some(Value::Object(execution)) => Some(target(execution, &format!("{location}.execution"), faults)?),
        Some(_) => return faults.add_at(location, "execution", "it is not a JSON object"),
    };
    // Check the type last, so that mistakes in the request are reported too.
    let kind = kind?;
    let execution = match (kind, target) {
        (ExecutionType::Internal, _) => ToolExecution::Internal,
        (_, Some(target)) => ToolExecution::Http(target),
        (ExecutionType::Gateway, None) => {
            return faults.add_at(
                location,
                "execution.url",
                "it is missing: a `gateway` tool requests a URL; a tool whose results are submitted is `external` or `space`",
            );
        }
        (ExecutionType::External | ExecutionType::Space, None) => ToolExecution::Pending,
    };
    Some((kind, execution))
}

/// Reads the request. The default method is GET.
fn target(execution: &Map<String, Value>, location: &str, faults: &mut Faults) -> Option<HttpTarget> {
    let earlier_faults = faults.0.len();
    faults.check_keys(execution, &KEYS, location);
    let url = faults.text(execution, "url", location);
    let method = match execution.get("method") {
        None => Some(HttpMethod::Get),
        Some(Value::String(word)) => {
            let method =
                HTTP_TOOL_METHODS.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(word));
            method.or_else(|| faults.add_at(location, "method", "it is not GET, POST, PUT, PATCH or DELETE"))
        }
        Some(_) => faults.add_at(location, "method", "it is not a text"),
    };
    let mut headers = Vec::new();
    match execution.get("headers") {
        None => {}
        Some(Value::Object(members)) => {
            for (name, value) in members {
                match value {
                    Value::String(value) => headers.push((name.as_str(), value.as_str())),
                    _ => {
                        faults.add(
                            &format!("{location}.headers.{}", name.escape_default()),
                            "it is not a text",
                        );
                    }
                }
            }
        }
        Some(_) => faults.add(&format!("{location}.headers"), "it is not a JSON object"),
    }
    // Check the other parts even if the method is wrong.
    let checked = HttpTarget::new(url?, method.unwrap_or(HttpMethod::Post), headers);
    match checked {
        Ok(target) => (faults.0.len() == earlier_faults).then_some(target),
        Err(mistakes) => {
            for mistake in mistakes {
                faults.add(&format!("{location}.{}", mistake.location()), mistake.to_string());
            }
            None
        }
    }
}
