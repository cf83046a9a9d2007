//! One fetch: requests the page, then runs a guest that reads the body.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use portcullis_egress::{Response, Url};
use portcullis_policy::Robots;
use portcullis_types::{ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::{
    URL, WebFetchBackend,
    operation_steps::{
        OperationSteps, RequestOptions, RequestOutcome, add_source, is_reported_by_guest, refused_by_status,
    },
};
use crate::{
    call::{Caller, OperationContext},
    registry::ToolRegistry,
};

/// The names of the steps.
pub(super) const REQUEST_STEP: &str = "web_fetch_request";
const READ_STEP: &str = "web_fetch_read";
const READ_PDF_STEP: &str = "web_fetch_read_pdf";

impl WebFetchBackend {
    /// Fetches a page by calling the steps of the operation.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection and stops the guest.
    pub(crate) fn run<'a>(
        &'a self,
        steps: Option<&'a Arc<ToolRegistry>>,
        arguments: &'a Value,
        robots: Robots,
        context: OperationContext,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        // Boxed, because the future of a step's call has the same type as the future that contains this one.
        Box::pin(async move {
            let steps = OperationSteps::new(steps, context, caller)?;
            let response = match robots {
                Robots::Obey => self.request_as_robots_allow(&steps, arguments).await?,
                Robots::Ignore => steps.request(REQUEST_STEP, &json!({ URL: arguments.get(URL) })).await?,
            };
            // A response with an error status is not a page.
            match refused_by_status("the server", &response, "") {
                Some(error) => Err(error),
                None => read(&steps, &response, arguments).await,
            }
        })
    }

    /// Requests the page, and follows its redirects one at a time, because the `robots.txt` of each target
    /// may disallow it. The request step limits the number of redirects.
    async fn request_as_robots_allow(
        &self,
        steps: &OperationSteps<'_>,
        arguments: &Value,
    ) -> Result<Response, ToolError> {
        let url = arguments.get(URL).and_then(Value::as_str).unwrap_or_default();
        let mut url = Url::parse(url)
            .map_err(|error| ToolError::invalid_arguments(format!("field '{URL}': {error}")))?;
        let mut redirects = 0;
        loop {
            let refusal = self.robots().refusal(steps, &url).await?;
            let options = RequestOptions { redirects_followed: redirects, refusal };
            let outcome =
                steps.request_one(REQUEST_STEP, url.as_str(), options, steps.context.deadline).await;
            match outcome.map_err(|failure| failure.error)? {
                RequestOutcome::Response(response) => return Ok(Response { redirects, ..response }),
                RequestOutcome::Redirect(next_url) => (url, redirects) = (next_url, redirects + 1),
            }
        }
    }
}

/// Runs the guest that reads this kind of body. If the guest runs out of time or memory, retries with a plain
/// pass: it reads a page without the extractor, or only the first pages of a PDF file.
async fn read(
    steps: &OperationSteps<'_>,
    response: &Response,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    let content_type = header(response, "content-type").unwrap_or_default();
    let is_pdf = is_pdf(&response.body, content_type);
    let start = Instant::now();
    let end = if is_pdf { steps.context.deadline.min(start + PDF_TIMEOUT) } else { steps.context.deadline };
    // A plain pass over a PDF file follows only if memory ran out, so the first pass may use all of the time.
    let extract_deadline = if is_pdf { end } else { start + end.saturating_duration_since(start) / 2 };
    let mut outcome = Err(ToolError::internal("no pass was made"));
    for (effort, deadline) in [("extract", extract_deadline), ("plain", end)] {
        let mut reader_arguments = json!({
            "format": arguments.get("format").unwrap_or(&Value::from("markdown")),
            "effort": effort,
        });
        if !is_pdf {
            reader_arguments[URL] = response.url.as_str().into();
            reader_arguments["content_type"] = content_type.into();
        }
        let step = if is_pdf { READ_PDF_STEP } else { READ_STEP };
        outcome = steps.read(step, &reader_arguments, &response.body, deadline).await;
        match &outcome {
            // The work on pages has a budget, so a timeout comes from the structure of the file. A plain pass
            // would time out too.
            Err(error) if is_pdf && error.kind() == ToolErrorKind::Timeout => break,
            Err(error) if is_exhausted(error) => {}
            _ => break,
        }
    }
    let mut output = outcome?;
    add_source(&mut output, response);
    Ok(output)
}

/// The timeout of both passes over a PDF file together, including compiling the module in the first pass.
const PDF_TIMEOUT: Duration = Duration::from_secs(10);

/// The magic bytes of a PDF file, and the number of bytes from the start in which readers look for them.
const PDF_MARK: &[u8] = b"%PDF-";
const PDF_MARK_WITHIN: usize = 1024;

/// Whether a body is a PDF file. Magic bytes at the very start decide, whatever the header says.
/// Magic bytes further in count only if the header names PDF or no specific type, so a page that
/// quotes them is still a page.
fn is_pdf(body: &[u8], content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let may_be_pdf =
        matches!(&*essence, "" | "application/pdf" | "application/x-pdf" | "application/octet-stream");
    let start = &body[..body.len().min(PDF_MARK_WITHIN)];
    start.starts_with(PDF_MARK) || may_be_pdf && start.windows(PDF_MARK.len()).any(|bytes| bytes == PDF_MARK)
}

/// Whether the guest has exhausted its time or memory, or has trapped.
fn is_exhausted(error: &ToolError) -> bool {
    match error.kind() {
        ToolErrorKind::Timeout | ToolErrorKind::ResourceLimit => true,
        ToolErrorKind::Failed => !is_reported_by_guest(error),
        _ => false,
    }
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], content_type: &str, expected: bool) {
        assert_eq!(is_pdf(body, content_type), expected, "{content_type}");
    }

    #[test]
    fn the_first_bytes_of_a_pdf_file_win_over_the_header() {
        check(b"%PDF-1.7\n", "text/html", true);
        check(b"%PDF-1.7\n", "", true);
        check(b"<p>%PDF-1.7", "application/pdf", true);
        check(b"\xef\xbb\xbf%PDF-1.7", "Application/PDF; charset=x", true);
        check(b"%PD", "application/pdf", false);
    }

    #[test]
    fn a_page_that_quotes_the_mark_stays_a_page() {
        check(b"<!doctype html><p>%PDF-1.7", "text/html; charset=utf-8", false);
        check(b"# %PDF-1.7", "text/plain", false);
        check(&[&[b' '; PDF_MARK_WITHIN][..], b"%PDF-1.7"].concat(), "application/pdf", false);
    }
}
