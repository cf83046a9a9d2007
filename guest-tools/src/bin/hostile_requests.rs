//! Hostile guest: makes any request that its arguments describe.

use std::{io::Read as _, mem::ManuallyDrop};

use portcullis_sdk::{ToolError, http, serde_json::json, tool};

/// Sends a request, and returns the result. The declared host is replaced by a test server's, in the module's bytes.
#[tool(timeout = "30s", hosts = ["https://api.weather.example"])]
async fn requests(
    url: &str,
    #[arg(default = "GET")] method: &str,
    /// A header, as `name: value`.
    #[arg(default = "")]
    header: &str,
    /// How often.
    #[arg(default = 1)]
    times: u32,
    /// How many bytes of each body to read.
    #[arg(default = 1_000_000)]
    take: u64,
    /// The fate of each response after that: `keep` until the end of the call, `drop`, or `forget`.
    #[arg(default = "keep")]
    then: &str,
    /// A file to read before.
    #[arg(default = "")]
    first: &str,
) -> Result<String, ToolError> {
    if !first.is_empty() {
        std::fs::read(first).map_err(|error| ToolError::failed(error.to_string()))?;
    }
    let mut open = Vec::new();
    let mut responses = Vec::new();
    for _ in 0..times {
        let mut request = http::Request::new(method, url);
        if let Some((name, value)) = header.split_once(": ") {
            request = request.header(name, value);
        }
        match request.send() {
            Ok(mut response) => {
                let mut text = Vec::new();
                let read = (&mut response).take(take).read_to_end(&mut text);
                // Only the first bytes, so that the result is not cut.
                text.truncate(1_000);
                let text = String::from_utf8_lossy(&text).into_owned();
                responses.push(match read {
                    Ok(_) => json!({ "status": response.status(), "url": response.url(), "text": text }),
                    Err(error) => json!({ "broken": error.to_string() }),
                });
                match then {
                    "drop" => drop(response),
                    "forget" => {
                        let _forgotten = ManuallyDrop::new(response);
                    }
                    _ => open.push(response),
                }
            }
            Err(error) => responses.push(json!({ "code": error.code(), "message": error.to_string() })),
        }
    }
    // Only the last answers, so that the text is not cut.
    let responses = responses.split_off(responses.len().saturating_sub(20));
    Ok(json!(responses).to_string())
}

portcullis_sdk::export_tools![requests];
