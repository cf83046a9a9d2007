//! Builds the request of a search in each provider's format. The sources are the documentation of SearXNG's
//! search API, Brave's Web Search API, Tavily's Search API and Google's Custom Search JSON API (`cse.list`).
//! DuckDuckGo documents no API; its page accepts the fields of its own form.

use portcullis_policy::{SearchProvider, SearchSettings};
use serde_json::{Value, json};

use super::{
    query::{DateRange, SearchQuery},
    request_step::{BODY, URL},
};

/// The maximum number of results that Google returns for one request.
const MAX_GOOGLE_RESULTS: u32 = 10;

/// Returns the arguments of the request step for a search.
pub(super) fn request(settings: &SearchSettings, query: &SearchQuery) -> Value {
    let number = query.max_results.to_string();
    let site = query.site.as_ref().map(|site| site.as_str());
    // All of these providers support the operator `site:`.
    let with_site = match site {
        Some(site) => format!("{} site:{site}", query.text),
        None => query.text.clone(),
    };
    let mut url = settings.url.as_url().clone();
    match settings.provider {
        SearchProvider::Searxng => {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("q", &with_site).append_pair("format", "json");
            if let Some(range) = query.since.and_then(range_of) {
                pairs.append_pair("time_range", range);
            }
        }
        SearchProvider::Brave => {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("q", &with_site).append_pair("count", &number);
            pairs.append_pair("result_filter", "web").append_pair("text_decorations", "false");
            if let Some(DateRange { date, today }) = query.since {
                pairs.append_pair("freshness", &format!("{date}to{today}"));
            }
        }
        SearchProvider::Google => {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("cx", settings.engine.as_deref().unwrap_or_default());
            pairs.append_pair("q", &query.text);
            pairs.append_pair("num", &query.max_results.min(MAX_GOOGLE_RESULTS).to_string());
            if let Some(site) = site {
                pairs.append_pair("siteSearch", site).append_pair("siteSearchFilter", "i");
            }
            if let Some(since) = query.since {
                // `d[N]` selects the last N days, so one more day includes the date itself.
                pairs.append_pair("dateRestrict", &format!("d{}", since.days() + 1));
            }
        }
        SearchProvider::Duckduckgo => {
            let mut pairs = url.query_pairs_mut();
            pairs.append_pair("q", &with_site);
            if let Some(DateRange { date, today }) = query.since {
                pairs.append_pair("df", &format!("{date}..{today}"));
            }
        }
        SearchProvider::Tavily => {
            let mut body = json!({ "query": query.text, "max_results": query.max_results });
            if let Some(site) = site {
                body["include_domains"] = json!([site]);
            }
            if let Some(since) = query.since {
                body["start_date"] = since.date.to_string().into();
            }
            return json!({ URL: url.as_str(), BODY: body.to_string() });
        }
    }
    json!({ URL: url.as_str() })
}

/// Returns SearXNG's shortest time range that includes the date. `None` if even the longest
/// range is too short.
fn range_of(since: DateRange) -> Option<&'static str> {
    match since.days() {
        ..1 => Some("day"),
        1..28 => Some("month"),
        28..365 => Some("year"),
        365.. => None,
    }
}

#[cfg(test)]
mod tests {
    use portcullis_policy::{LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use portcullis_types::SandboxTier;

    use super::{super::search_tool::SearchToolVariant, *};

    /// Returns the arguments of the request step for a search with these settings.
    fn provider_request(settings: &str, arguments: &Value) -> (String, Value) {
        let text = format!("version = 1\n[search]\n{settings}");
        let operator = PolicySource { name: "p", text: &text };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("loads");
        let now = "2026-11-24T20:00:00Z".parse().expect("a time");
        let query = SearchQuery::parse(arguments, SearchToolVariant::Own, now).expect("a query");
        let request = request(policy.search().expect("a provider"), &query);
        let body = request[BODY].as_str().map(|body| serde_json::from_str(body).expect("JSON"));
        (request[URL].as_str().expect("a URL").to_owned(), body.unwrap_or_default())
    }

    #[track_caller]
    fn check(settings: &str, plain_url: &str, full_url: &str) {
        let (url, body) = provider_request(settings, &json!({"query": "a & b=\"c\""}));
        assert_eq!((url.as_str(), body), (plain_url, Value::Null));
        let all_arguments =
            json!({"query": "q", "max_results": 20, "site": "d.example", "since": "2026-11-20"});
        assert_eq!(provider_request(settings, &all_arguments).0, full_url);
    }

    #[test]
    fn each_provider_is_asked_in_its_own_words() {
        check(
            "provider = 'searxng'\nurl = 'http://127.0.0.1:8888/search'",
            "http://127.0.0.1:8888/search?q=a+%26+b%3D%22c%22&format=json",
            "http://127.0.0.1:8888/search?q=q+site%3Ad.example&format=json&time_range=month",
        );
        check(
            "provider = 'brave'",
            "https://api.search.brave.com/res/v1/web/search?q=a+%26+b%3D%22c%22&count=5&result_filter=web&text_decorations=false",
            "https://api.search.brave.com/res/v1/web/search?q=q+site%3Ad.example&count=20&result_filter=web&text_decorations=false&freshness=2026-11-20to2026-11-24",
        );
        check(
            "provider = 'google'\nengine = '1:a'",
            "https://www.googleapis.com/customsearch/v1?cx=1%3Aa&q=a+%26+b%3D%22c%22&num=5",
            "https://www.googleapis.com/customsearch/v1?cx=1%3Aa&q=q&num=10&siteSearch=d.example&siteSearchFilter=i&dateRestrict=d5",
        );
        check(
            "provider = 'duckduckgo'",
            "https://html.duckduckgo.com/html/?q=a+%26+b%3D%22c%22",
            "https://html.duckduckgo.com/html/?q=q+site%3Ad.example&df=2026-11-20..2026-11-24",
        );
    }

    #[test]
    fn tavily_is_asked_by_a_body() {
        let tavily = "provider = 'tavily'";
        let (url, body) = provider_request(tavily, &json!({"query": "a \"b\" \\ {}"}));
        assert_eq!(url, "https://api.tavily.com/search");
        assert_eq!(body, json!({"query": "a \"b\" \\ {}", "max_results": 5}));
        let all_arguments =
            json!({"query": "q", "max_results": 20, "site": "d.example", "since": "2026-11-20"});
        let (_, body) = provider_request(tavily, &all_arguments);
        let expected = json!({
            "query": "q", "max_results": 20, "include_domains": ["d.example"], "start_date": "2026-11-20",
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn ranges_are_never_shorter_than_the_time() {
        let range = |since: &str| {
            let settings = "provider = 'searxng'\nurl = 'http://s.example/'";
            let (url, _) = provider_request(settings, &json!({"query": "q", "since": since}));
            url.split_once("time_range=").map(|(_, range)| range.to_owned())
        };
        for (since, expected) in [
            ("2026-11-24", Some("day")),
            ("2026-11-23", Some("month")),
            ("2026-10-20", Some("year")),
            ("2025-11-25", Some("year")),
            ("2025-11-24", None),
        ] {
            assert_eq!(range(since).as_deref(), expected, "{since}");
        }
    }

    #[test]
    fn longest_query_is_an_address_that_is_requested() {
        let query = "\u{1f600}".repeat(400);
        let site = format!("{0}.{0}.{0}.example", "a".repeat(63));
        let (url, _) = provider_request("provider = 'brave'", &json!({"query": query, "site": site}));
        assert!(url.len() < portcullis_policy::MAX_URL_BYTES, "{}", url.len());
    }
}
