//! `robots.txt` (RFC 9309): asked for each origin before a page of it is requested.
//!
//! The file is requested by the step that requests pages, under the same grant, and leaves a row of its own. It is a
//! stranger's text, so that a guest reads it: the parser has neither mounts nor network, and its memory and time are
//! those of a call. A parser on the client's thread, or in this process, would share memory with secrets and with other
//! agents' calls.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use portcullis_egress::{Response, Url};
use portcullis_policy::{Denial, DenialCode};
use portcullis_types::{ToolError, ToolErrorKind};
use serde_json::json;

use super::{
    fetch::REQUEST_STEP,
    steps::{Hop, HopFailure, HopTerms, OperationSteps},
};

/// The step that reads the file.
const ROBOTS_STEP: &str = "web_fetch_robots";

/// The bytes of a file that are read; the rest is ignored. It is the least that RFC 9309 asks for (section 2.5).
const MAX_ROBOTS_BYTES: usize = 500 * 1024;

/// The redirects that a request of the file follows, by RFC 9309, section 2.3.1.2, unless the policy allows fewer.
const MAX_ROBOTS_REDIRECTS: u32 = 5;

/// The origins whose files are kept. A model chooses the hosts; each file may have [`MAX_ROBOTS_BYTES`].
const MAX_KEPT_ORIGINS: usize = 64;

/// How long a file is kept (RFC 9309, section 2.4).
const MAX_KEPT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Why `robots.txt` keeps a page from being requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RobotsRefusal {
    /// A rule of the file disallows the page.
    Disallowed,
    /// The file cannot be read, for this reason, which disallows everything.
    Unreadable(String),
}

impl RobotsRefusal {
    /// The denial of this page.
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

/// The files that were read, by origin.
#[derive(Debug, Default)]
pub(crate) struct RobotsFiles(Mutex<HashMap<String, KeptFile>>);

#[derive(Debug)]
struct KeptFile {
    read_at: Instant,
    rules: Option<Bytes>,
}

impl RobotsFiles {
    /// Whether the origin's file keeps a page from being requested, and why.
    ///
    /// # Errors
    /// A failure that the page would meet as well, such as a host without an address or one that the policy refuses.
    pub(super) async fn refusal(
        &self,
        steps: &OperationSteps<'_>,
        url: &Url,
    ) -> Result<Option<RobotsRefusal>, ToolError> {
        // The refusal of a slow host must come before the call's own end.
        let now = Instant::now();
        let until = now + steps.context.deadline.saturating_duration_since(now) / 2;
        let origin = url.origin().ascii_serialization();
        let rules = match self.kept(&origin, now) {
            Some(rules) => rules,
            None => match request(steps, &origin, until).await? {
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
        let read = steps.read(ROBOTS_STEP, &json!({ "path": path }), &rules, until).await;
        let read = read.map(|output| output.details["allowed"].as_bool());
        Ok(match read {
            Ok(Some(true)) => None,
            Ok(Some(false)) => Some(RobotsRefusal::Disallowed),
            Ok(None) => Some(RobotsRefusal::Unreadable("its reader gave no answer".to_owned())),
            Err(error) if error.kind() == ToolErrorKind::Cancelled => return Err(error),
            Err(error) => Some(RobotsRefusal::Unreadable(error.to_string())),
        })
    }

    /// What is kept of an origin's file; none if it must be requested.
    fn kept(&self, origin: &str, now: Instant) -> Option<Option<Bytes>> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.get(origin)?;
        (now.saturating_duration_since(file.read_at) < MAX_KEPT_AGE).then(|| file.rules.clone())
    }

    /// Keeps a file in place of the oldest one, where there are too many.
    fn keep(&self, origin: String, rules: Option<Bytes>, now: Instant) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_KEPT_ORIGINS && !files.contains_key(&origin) {
            let oldest = files.iter().min_by_key(|(_, file)| file.read_at).map(|(origin, _)| origin.clone());
            oldest.and_then(|origin| files.remove(&origin));
        }
        files.insert(origin, KeptFile { read_at: now, rules });
    }
}

/// Requests an origin's file: the rules, if it has any.
async fn request(
    steps: &OperationSteps<'_>,
    origin: &str,
    until: Instant,
) -> Result<Result<Option<Bytes>, RobotsRefusal>, ToolError> {
    let mut url = format!("{origin}/robots.txt");
    for followed in 0..=MAX_ROBOTS_REDIRECTS {
        let terms = HopTerms { followed, refusal: None };
        match steps.hop(REQUEST_STEP, &url, terms, until).await {
            Ok(Hop::Answer(response)) => return Ok(rules(&response)),
            Ok(Hop::LeadsTo(next)) => url = next.to_string(),
            Err(HopFailure { error, at_redirect }) => {
                let is_page_too = followed == 0 && !at_redirect && fails_for_the_page_too(&error);
                return match is_page_too || error.kind() == ToolErrorKind::Cancelled {
                    true => Err(error),
                    false => Ok(Err(RobotsRefusal::Unreadable(error.to_string()))),
                };
            }
        }
    }
    Ok(Err(RobotsRefusal::Unreadable(format!("more than {MAX_ROBOTS_REDIRECTS} redirects"))))
}

/// The rules of an answer, by RFC 9309, section 2.3.1: a file of 2xx has some, one of 4xx is none, and all else says that
/// the rules are not known.
fn rules(response: &Response) -> Result<Option<Bytes>, RobotsRefusal> {
    let status = response.status;
    if status.is_client_error() {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(RobotsRefusal::Unreadable(format!("status {}", status.as_u16())));
    }
    // One byte more tells the reader that the last line is cut. A copy, since a slice would keep the whole body in memory.
    let read = &response.body[..response.body.len().min(MAX_ROBOTS_BYTES + 1)];
    Ok((!read.is_empty()).then(|| Bytes::copy_from_slice(read)))
}

/// Whether the failure is not one of the file alone: the policy refuses the host, the client takes no request, or there
/// is no connection.
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
        assert_eq!(files.kept("https://a.test", last), Some(text("rules")));
        assert_eq!(files.kept("https://b.test", last), Some(None));
        assert_eq!(files.kept("https://a.test", now + MAX_KEPT_AGE), None);
        assert_eq!(files.kept("https://a.test:8443", now), None);
    }

    #[test]
    fn the_oldest_file_makes_room() {
        let (files, start) = (RobotsFiles::default(), Instant::now());
        let at = |index: usize| start + Duration::from_secs(index as u64);
        let origin = |index: usize| format!("https://{index}.test");
        for index in 0..=MAX_KEPT_ORIGINS {
            files.keep(origin(index), None, at(index));
        }
        assert_eq!(files.kept(&origin(0), start), None);
        assert_eq!(files.kept(&origin(1), start), Some(None));
        // A file that is read anew takes no further place.
        files.keep(origin(1), text("rules"), at(1));
        assert_eq!(files.kept(&origin(2), start), Some(None));
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
