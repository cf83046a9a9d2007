//! `robots.txt` (RFC 9309), which is read for each origin before a page of the origin is requested.
//!
//! The request step of `web_fetch` requests the file under the same grant, with its own audit row. The file
//! is untrusted text, so a guest parses it, without mounts or network and with a call's limits of memory and
//! time. A parser on the client's thread, or elsewhere in this process, would share memory with secrets and
//! with the calls of other agents.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_egress::{Response, Url};
use portcullis_policy::{Denial, DenialCode};
use portcullis_types::{ToolError, ToolErrorKind};
use serde_json::json;

use super::{
    fetch::REQUEST_STEP,
    operation_steps::{OperationSteps, RequestOptions, RequestOutcome, StepRequestFailure},
};

/// The step that reads the file.
const ROBOTS_STEP: &str = "web_fetch_robots";

/// The maximum number of bytes that are read of a file: 500 KiB, the minimum that RFC 9309 requires (section
/// 2.5). The rest is ignored.
const MAX_ROBOTS_BYTES: usize = 500 * 1024;

/// The maximum number of redirects for the file (RFC 9309, section 2.3.1.2), unless the policy allows fewer.
const MAX_ROBOTS_REDIRECTS: u32 = 5;

/// The maximum number of origins in the cache. A model chooses the hosts, and each file can have [`MAX_ROBOTS_BYTES`].
const MAX_KEPT_ORIGINS: usize = 64;

/// How long a file stays in the cache: 24 hours (RFC 9309, section 2.4).
const MAX_KEPT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Why `robots.txt` forbids a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RobotsRefusal {
    /// A rule of the file disallows the page.
    Disallowed,
    /// The file cannot be read, for this reason. Then no page of the origin may be requested.
    Unreadable(String),
}

impl RobotsRefusal {
    /// Returns the denial for this page.
    pub(crate) fn denial(&self, url: &Url) -> Denial {
        let file = format!("{}/robots.txt", url.origin().ascii_serialization());
        let (code, reason) = match self {
            Self::Disallowed => {
                (DenialCode::RobotsDisallowed, format!("`{file}` disallows it for programs such as this one"))
            }
            Self::Unreadable(reason) => (
                DenialCode::RobotsUnreadable,
                format!("`{file}` cannot be read ({reason}), which disallows all pages of the host"),
            ),
        };
        Denial {
            code,
            rule: "egress.robots".to_owned(),
            subject: url.to_string(),
            hint: format!(
                "{reason}; an operator allows it with `robots = \"ignore\"` under `[egress]` in the policy"
            ),
        }
    }
}

/// The cache of `robots.txt` files, by origin.
#[derive(Debug, Default)]
pub(crate) struct RobotsFiles(Mutex<HashMap<String, CachedFile>>);

/// The cached rules of an origin.
#[derive(Debug, PartialEq, Eq)]
enum CachedRules {
    /// The file is cached: its rules, if it has any.
    Known(Option<Bytes>),
    /// The file must be requested.
    Unknown,
}

#[derive(Debug)]
struct CachedFile {
    read_at: Instant,
    rules: Option<Bytes>,
}

impl RobotsFiles {
    /// Returns why the origin's file forbids a request. `None` if the file allows it.
    ///
    /// # Errors
    /// A failure that would also affect the page's request, such as a host without an address or a host that
    /// the policy refuses.
    pub(super) async fn refusal(
        &self,
        steps: &OperationSteps<'_>,
        url: &Url,
    ) -> Result<Option<RobotsRefusal>, ToolError> {
        // The file gets half of the time, so that a slow host is refused before the call's own deadline.
        let now = Instant::now();
        let robots_deadline = now + steps.context.deadline.saturating_duration_since(now) / 2;
        let origin = url.origin().ascii_serialization();
        let rules = match self.cached_rules(&origin, now) {
            CachedRules::Known(rules) => rules,
            CachedRules::Unknown => match request(steps, &origin, robots_deadline).await? {
                Ok(rules) => {
                    self.keep(origin, rules.clone(), now);
                    rules
                }
                Err(refusal) => return Ok(Some(refusal)),
            },
        };
        let Some(rules) = rules else { return Ok(None) };
        let path =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let reader_result = steps.read(ROBOTS_STEP, &json!({ "path": path }), &rules, robots_deadline).await;
        let is_allowed = reader_result.map(|output| output.details["allowed"].as_bool());
        Ok(match is_allowed {
            Ok(Some(true)) => None,
            Ok(Some(false)) => Some(RobotsRefusal::Disallowed),
            Ok(None) => Some(RobotsRefusal::Unreadable("its reader gave no answer".to_owned())),
            // A cancellation says nothing about the file.
            Err(error) if error.kind() == ToolErrorKind::Cancelled => return Err(error),
            Err(error) => Some(RobotsRefusal::Unreadable(error.to_string())),
        })
    }

    /// Looks up an origin in the cache.
    fn cached_rules(&self, origin: &str, now: Instant) -> CachedRules {
        let files = self.0.lock();
        match files.get(origin) {
            Some(file) if now.saturating_duration_since(file.read_at) < MAX_KEPT_AGE => {
                CachedRules::Known(file.rules.clone())
            }
            Some(_) | None => CachedRules::Unknown,
        }
    }

    /// Adds a file to the cache. If the cache is full, evicts the oldest file.
    fn keep(&self, origin: String, rules: Option<Bytes>, now: Instant) {
        let mut files = self.0.lock();
        if files.len() >= MAX_KEPT_ORIGINS && !files.contains_key(&origin) {
            let oldest = files.iter().min_by_key(|(_, file)| file.read_at).map(|(origin, _)| origin.clone());
            oldest.and_then(|origin| files.remove(&origin));
        }
        files.insert(origin, CachedFile { read_at: now, rules });
    }
}

/// Requests an origin's file, and returns its rules if it has any.
async fn request(
    steps: &OperationSteps<'_>,
    origin: &str,
    deadline: Instant,
) -> Result<Result<Option<Bytes>, RobotsRefusal>, ToolError> {
    let mut url = format!("{origin}/robots.txt");
    for followed in 0..=MAX_ROBOTS_REDIRECTS {
        let options = RequestOptions { redirects_followed: followed, refusal: None };
        match steps.request_one(REQUEST_STEP, &url, options, deadline).await {
            Ok(RequestOutcome::Response(response)) => return Ok(rules(&response)),
            Ok(RequestOutcome::Redirect(next_url)) => url = next_url.to_string(),
            Err(StepRequestFailure { error, is_redirect_refused }) => {
                let is_page_too = followed == 0 && !is_redirect_refused && fails_for_the_page_too(&error);
                return if is_page_too || error.kind() == ToolErrorKind::Cancelled {
                    Err(error)
                } else {
                    Ok(Err(RobotsRefusal::Unreadable(error.to_string())))
                };
            }
        }
    }
    Ok(Err(RobotsRefusal::Unreadable(format!("more than {MAX_ROBOTS_REDIRECTS} redirects"))))
}

/// Returns the rules of a response (RFC 9309, section 2.3.1). A 2xx status gives the rules, a 4xx status
/// means that there are none, and with any other status the rules are unknown.
fn rules(response: &Response) -> Result<Option<Bytes>, RobotsRefusal> {
    let status = response.status;
    if status.is_client_error() {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(RobotsRefusal::Unreadable(format!("status {}", status.as_u16())));
    }
    // One byte beyond the limit tells the reader that the last line is truncated. Copy the bytes, because a
    // slice would keep the whole body in memory.
    let file_bytes = &response.body[..response.body.len().min(MAX_ROBOTS_BYTES + 1)];
    Ok((!file_bytes.is_empty()).then(|| Bytes::copy_from_slice(file_bytes)))
}

/// Whether the page's request would fail too: the policy refuses the host, the client accepts no requests, or
/// the connection fails.
fn fails_for_the_page_too(error: &ToolError) -> bool {
    const NO_CONNECTION: [&str; 10] = [
        "name_unresolved",
        "too_many_addresses",
        "connect_failed",
        "connect_timeout",
        "tls_failed",
        "port_closed",
        "no_name_servers",
        "proxy_refused",
        "proxy_invalid",
        "proxy_broken",
    ];
    matches!(
        error.kind(),
        ToolErrorKind::Denied
            | ToolErrorKind::Unavailable
            | ToolErrorKind::Internal
            | ToolErrorKind::InvalidArguments
    ) || NO_CONNECTION.contains(&error.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rules: &str) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(rules.as_bytes()))
    }

    #[test]
    fn a_file_is_kept_for_a_day() {
        let (files, now) = (RobotsFiles::default(), Instant::now());
        files.keep("https://a.test".to_owned(), text("rules"), now);
        files.keep("https://b.test".to_owned(), None, now);
        let last = now + MAX_KEPT_AGE - Duration::from_secs(1);
        assert_eq!(files.cached_rules("https://a.test", last), CachedRules::Known(text("rules")));
        assert_eq!(files.cached_rules("https://b.test", last), CachedRules::Known(None));
        assert_eq!(files.cached_rules("https://a.test", now + MAX_KEPT_AGE), CachedRules::Unknown);
        assert_eq!(files.cached_rules("https://a.test:8443", now), CachedRules::Unknown);
    }

    #[test]
    fn the_oldest_file_makes_room() {
        let (files, first_read) = (RobotsFiles::default(), Instant::now());
        let time_of = |index: usize| first_read + Duration::from_secs(index as u64);
        let origin = |index: usize| format!("https://{index}.test");
        for index in 0..=MAX_KEPT_ORIGINS {
            files.keep(origin(index), None, time_of(index));
        }
        assert_eq!(files.cached_rules(&origin(0), first_read), CachedRules::Unknown);
        assert_eq!(files.cached_rules(&origin(1), first_read), CachedRules::Known(None));
        // Reading a file again takes no additional entry.
        files.keep(origin(1), text("rules"), time_of(1));
        assert_eq!(files.cached_rules(&origin(2), first_read), CachedRules::Known(None));
    }

    #[test]
    fn a_refusal_names_the_file_and_the_line_to_add() {
        let url: Url = "https://a.test:8443/x?y".parse().expect("a URL");
        let denial = RobotsRefusal::Disallowed.denial(&url);
        assert_eq!((denial.code.as_str(), denial.rule.as_str()), ("robots_disallowed", "egress.robots"));
        for part in ["`https://a.test:8443/robots.txt`", "`robots = \"ignore\"` under `[egress]`"] {
            assert!(denial.hint.contains(part), "{}", denial.hint);
        }
        let denial = RobotsRefusal::Unreadable("status 503".to_owned()).denial(&url);
        assert_eq!(denial.code.as_str(), "robots_unreadable");
        assert!(denial.hint.contains("(status 503)"), "{}", denial.hint);
    }
}
