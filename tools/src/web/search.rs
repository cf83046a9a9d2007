//! One search: requests the provider's response, then runs a guest that reads it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use portcullis_types::{ToolArgs, ToolError, ToolErrorCode, ToolOutput};
use serde_json::{Value, json};

use super::{
    operation_steps::{OperationSteps, add_source, is_reported_by_guest, refused_by_status},
    provider,
    query::SearchQuery,
    search_tool::{SearchToolVariant, WebSearchBackend},
};
use crate::{
    call::{Caller, OperationContext},
    registry::ToolRegistry,
};

/// The names of the steps.
const REQUEST_STEP: &str = "web_search_request";
const READ_STEP: &str = "web_search_read";

impl WebSearchBackend {
    /// Returns the arguments of the request step. They are computed before anything runs, so that the URL is
    /// judged and shown to the approver.
    ///
    /// # Errors
    /// `invalid_arguments`, as in [`SearchQuery::parse`].
    pub(crate) fn request_arguments(&self, arguments: &Value) -> Result<ToolArgs, ToolError> {
        let query = SearchQuery::parse(arguments, self.variant, Timestamp::now())?;
        let request = provider::request(&self.settings, &query).to_string();
        ToolArgs::parse(&request).map_err(|error| ToolError::internal(error.to_string()))
    }

    /// Searches by calling both steps.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection and stops the guest.
    pub(crate) fn run<'a>(
        &'a self,
        steps: Option<&'a Arc<ToolRegistry>>,
        arguments: &'a Value,
        context: OperationContext,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        // Boxed, because the future of a step's call has the same type as the future that contains this one.
        Box::pin(async move {
            let query = SearchQuery::parse(arguments, self.variant, Timestamp::now())?;
            let steps = OperationSteps::new(steps, context, caller)?;
            let request = provider::request(&self.settings, &query);
            let response = steps.request(REQUEST_STEP, &request).await.map_err(explain_redirect)?;
            let mut reader_arguments = json!({
                "provider": self.settings.provider,
                "status": response.status.as_u16(),
                "max_results": query.max_results,
            });
            if let Some(site) = &query.site {
                reader_arguments["site"] = site.as_str().into();
            }
            if let Some(since) = query.since {
                reader_arguments["since"] = since.date.to_string().into();
            }
            let outcome =
                steps.read(READ_STEP, &reader_arguments, &response.body, steps.context.deadline).await;
            // For an error status, the guest returns the provider's message. If the guest failed, the error
            // has only the status.
            let provider_text = outcome.as_ref().map(ToolOutput::joined_text).unwrap_or_default();
            if let Some(error) = refused_by_status("the provider", &response, &provider_text) {
                return Err(error);
            }
            let mut output = outcome.map_err(|error| {
                if is_reported_by_guest(&error) {
                    error.with_code(ToolErrorCode::AnswerUnexpected)
                } else {
                    error
                }
            })?;
            add_source(&mut output, &response);
            if let Value::Object(details) = &mut output.details {
                details.insert("provider".to_owned(), self.settings.provider.as_str().into());
            }
            Ok(match self.variant {
                SearchToolVariant::Own => output,
                SearchToolVariant::Specification001 => as_data(output),
            })
        })
    }
}

/// Explains a refused redirect, and names the setting that would allow it.
fn explain_redirect(error: ToolError) -> ToolError {
    if error.code() != "too_many_redirects" {
        return error;
    }
    ToolError::failed("the provider answered with a redirect, and a search follows none")
        .with_code(error.code().to_owned())
        .with_hint("`url` of `[search]` in the policy must be the address that answers")
}

/// Converts the output to a result of `search_web`: only data, without dates. The guest has read untrusted
/// bytes, so every value is treated as plain text.
fn as_data(output: ToolOutput) -> ToolOutput {
    let text = |result: &Value, key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let results: Vec<Value> = output.details["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|result| {
            json!({
                "title": text(result, "title"),
                "url": text(result, "url"),
                "snippet": text(result, "snippet"),
            })
        })
        .collect();
    ToolOutput::structured(json!({ "results": results })).with_details(output.details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_a_guests_data_are_used() {
        for (details, expected) in [
            (json!("text"), json!([])),
            (json!({ "results": {"a": 1} }), json!([])),
            (
                json!({ "results": [5, {"title": ["x"], "url": "https://a.example/", "more": 1}] }),
                json!([
                    {"title": "", "url": "", "snippet": ""},
                    {"title": "", "url": "https://a.example/", "snippet": ""},
                ]),
            ),
        ] {
            let output = as_data(ToolOutput::default().with_details(details));
            assert_eq!(output.structured, Some(json!({ "results": expected })));
        }
    }
}
