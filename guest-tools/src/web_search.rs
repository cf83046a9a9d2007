//! The read step of `web_search`: receives the answer of a provider, and returns its results.
//!
//! It has no mount and no network, so that an answer which takes it over gains nothing.

mod answer;
mod duckduckgo;
mod refusal;
mod results;
#[cfg(test)]
mod tests;

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, tool, transfer};

use self::{
    answer::SearchProvider,
    results::{ResultFilter, choose, list},
};

/// Reads the answer that the host sends. A step of `web_search`.
#[tool(tier = ReadOnly, timeout = "30s", profile = Nothing, deny_unknown)]
pub async fn web_search_read(
    ctx: &ToolContext,
    /// The interface of the provider.
    #[arg(one_of("searxng", "brave", "tavily", "google", "duckduckgo"))]
    provider: &str,
    /// The status of the answer. From 400 on, the result is what the provider says of the error.
    status: u16,
    /// The most results.
    max_results: u32,
    /// The host that results must be on or below.
    site: Option<&str>,
    /// The date that results must not be older than, as `2026-01-31`, where their date is known.
    since: Option<&str>,
) -> Result<ToolOutput, ToolError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = transfer::receive(ctx)? {
        bytes.extend_from_slice(&chunk);
    }
    if status >= 400 {
        return Ok(ToolOutput::text(refusal::message(&bytes)));
    }
    let provider = SearchProvider::of(provider);
    let answer = provider.read(&bytes).map_err(ToolError::failed)?;
    let terms = ResultFilter { max_results: usize::try_from(max_results).unwrap_or(usize::MAX), site, since };
    Ok(list(&choose(&answer.found, terms), &answer.silent))
}
