//! The read step of `web_search`: receives a provider's answer, and returns its results.
//!
//! The step has neither a mount nor a network, so an answer that exploits a bug of the guest reaches nothing.

mod duckduckgo;
mod error_message;
mod response;
mod results;
#[cfg(test)]
mod tests;

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, tool, transfer};

use self::{
    response::ResponseFormat,
    results::{ResultFilter, choose_results, list},
};

/// Reads the answer that the host sends. A step of `web_search`.
#[tool(tier = ReadOnly, timeout = "30s", profile = Nothing, deny_unknown)]
pub async fn web_search_read(
    ctx: &ToolContext,
    /// The interface of the provider.
    #[arg(one_of("searxng", "brave", "tavily", "google", "duckduckgo"))]
    provider: &str,
    /// The HTTP status of the answer. From 400 on, the result is the provider's error message.
    status: u16,
    /// The largest number of results.
    max_results: u32,
    /// The host of the results; hosts below it count.
    site: Option<&str>,
    /// The earliest date of results whose date is known, as `2026-01-31`.
    since: Option<&str>,
) -> Result<ToolOutput, ToolError> {
    let bytes = transfer::receive_all(ctx)?;
    if status >= 400 {
        return Ok(ToolOutput::text(error_message::message(&bytes)));
    }
    let provider = ResponseFormat::from_name(provider);
    let answer = provider.read(&bytes).map_err(|error| ToolError::failed(error.to_string()))?;
    let filter =
        ResultFilter { max_results: usize::try_from(max_results).unwrap_or(usize::MAX), site, since };
    Ok(list(&choose_results(&answer.results, filter), &answer.unresponsive))
}
