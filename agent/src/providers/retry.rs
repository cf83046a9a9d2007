//! Decides when a request is sent again: after a transport fault, too many requests, or a fault of the
//! provider, and only while no piece of the response has been passed on.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::RETRY_AFTER};

use super::ProviderLimits;
use crate::ProviderError;

#[derive(Debug)]
pub(super) struct FailedRequest {
    /// The provider error of the request.
    pub(super) error: ProviderError,
    pub(super) retry: RetryAdvice,
}

/// Whether a retry could succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryAdvice {
    /// No: a retry would most likely fail the same way.
    Never,
    /// Yes.
    Later,
    /// Yes, after the time that the provider names.
    After(Duration),
}

impl FailedRequest {
    /// Creates a failure that is not retried.
    pub(super) fn permanent(error: ProviderError) -> Self {
        Self { error, retry: RetryAdvice::Never }
    }

    /// Creates a failure that is retried.
    pub(super) fn retryable(error: ProviderError) -> Self {
        Self { error, retry: RetryAdvice::Later }
    }

    /// Returns the pause before the retry, or `None` for no retry. `attempts` counts the requests so far.
    pub(super) fn wait(&self, attempts: u32, limits: &ProviderLimits, random: u32) -> Option<Duration> {
        if attempts > limits.retries {
            return None;
        }
        match self.retry {
            RetryAdvice::Never => None,
            // A wait past the limit means no retry, because the provider would refuse an earlier one again.
            RetryAdvice::After(wait) => (wait <= limits.retry_wait_max).then_some(wait),
            RetryAdvice::Later => {
                let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
                let wait = limits.retry_wait.saturating_mul(doubled).min(limits.retry_wait_max);
                // Jitter of up to a half, so that clients that failed together do not retry together.
                Some(wait.mul_f64(1.0 - 0.5 * f64::from(random) / f64::from(u32::MAX)))
            }
        }
    }
}

/// Reads when the provider accepts a retry (`Retry-After`, RFC 9110, section 10.2.3): after some seconds, or
/// at a date.
pub(super) fn read_retry_after(headers: &HeaderMap, now: SystemTime) -> RetryAdvice {
    let Some(text) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()) else {
        return RetryAdvice::Later;
    };
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return RetryAdvice::After(Duration::from_secs(seconds));
    }
    match httpdate::parse_http_date(text.trim()) {
        // A date in the past allows an immediate retry.
        Ok(date) => RetryAdvice::After(date.duration_since(now).unwrap_or_default()),
        // An unreadable header counts as missing.
        Err(_) => RetryAdvice::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderErrorKind;

    fn limits() -> ProviderLimits {
        ProviderLimits {
            retries: 3,
            retry_wait: Duration::from_secs(1),
            retry_wait_max: Duration::from_secs(3),
            ..ProviderLimits::default()
        }
    }

    fn failure(retry: RetryAdvice) -> FailedRequest {
        FailedRequest { error: ProviderError::new(ProviderErrorKind::Server, "x"), retry }
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_ends() {
        let wait = |made| failure(RetryAdvice::Later).wait(made, &limits(), 0);
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!([1, 2, 3, 4, u32::MAX].map(wait), [seconds(1), seconds(2), seconds(3), None, None]);
        let half = failure(RetryAdvice::Later).wait(1, &limits(), u32::MAX);
        assert_eq!(half, Some(Duration::from_millis(500)));
        let endless = ProviderLimits { retries: u32::MAX, ..limits() };
        assert_eq!(failure(RetryAdvice::Later).wait(1_000_000, &endless, 0), seconds(3));
    }

    #[test]
    fn a_provider_is_not_asked_earlier_than_it_says() {
        let wait = |seconds| failure(RetryAdvice::After(Duration::from_secs(seconds))).wait(1, &limits(), 7);
        assert_eq!(wait(0), Some(Duration::ZERO));
        assert_eq!(wait(3), Some(Duration::from_secs(3)));
        assert_eq!(wait(4), None);
        assert_eq!(wait(u64::MAX), None);
        assert_eq!(failure(RetryAdvice::Never).wait(1, &limits(), 0), None);
    }

    #[test]
    fn a_wait_is_read_as_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().expect("a value"));
            read_retry_after(&headers, now)
        };
        assert_eq!(read("5"), RetryAdvice::After(Duration::from_secs(5)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), RetryAdvice::After(Duration::from_secs(7)));
        assert_eq!(read("Sat, 06 Nov 1993 08:49:37 GMT"), RetryAdvice::After(Duration::ZERO));
        for text in ["-1", "soon", "", "99999999999999999999999"] {
            assert_eq!(read(text), RetryAdvice::Later, "{text}");
        }
        assert_eq!(read_retry_after(&HeaderMap::new(), now), RetryAdvice::Later);
    }
}
