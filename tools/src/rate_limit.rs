//! The rate limit of an agent's calls of a tool.

use std::{num::NonZeroU32, sync::Arc};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use portcullis_types::{ToolError, ToolErrorKind};

use crate::call::Owner;

/// The maximum number of pairs of owner and tool that are kept before idle pairs are dropped. A caller can
/// invent an agent for every call, and each pair takes a few dozen bytes.
const MAX_REMEMBERED: usize = 16_384;

/// Counts calls per agent and tool, or per run and tool if the client chose the agent's name itself.
#[derive(Debug)]
pub(crate) struct Rates {
    limiter: DefaultKeyedRateLimiter<(Owner, Arc<str>)>,
    per_minute: u32,
}

impl Rates {
    pub(crate) fn new(calls_per_minute: u32) -> Self {
        let quota = NonZeroU32::new(calls_per_minute).unwrap_or(NonZeroU32::MIN);
        Self { limiter: RateLimiter::keyed(Quota::per_minute(quota)), per_minute: calls_per_minute }
    }

    /// Counts one call, or refuses it.
    pub(crate) fn admit(&self, agent: Owner, tool: &str) -> Result<(), ToolError> {
        if self.limiter.len() > MAX_REMEMBERED {
            self.limiter.retain_recent();
        }
        self.limiter.check_key(&(agent, tool.into())).map_err(|_not_until| {
            let message = format!("more than {} calls of `{tool}` in a minute", self.per_minute);
            ToolError::new(ToolErrorKind::RateLimited, message).with_hint("wait a little, then try again")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Caller;

    #[test]
    fn each_agent_and_tool_has_its_own_allowance() {
        let rates = Rates::new(2);
        for (agent, tool) in [("a", "x"), ("a", "y"), ("b", "x")] {
            check(&rates, [&Caller::new(agent, "1"), &Caller::new(agent, "2")], tool);
        }
    }

    #[test]
    fn a_name_that_its_bearer_chose_shares_no_allowance() {
        let rates = Rates::new(2);
        let caller_of_run = |name: &str, run: &str| Caller::named_by_itself(name, run);
        check(&rates, [&caller_of_run("a", "1"), &caller_of_run("renamed", "1")], "x");
        check(&rates, [&caller_of_run("a", "2"), &caller_of_run("a", "2")], "x");
        check(&rates, [&Caller::new("a", "1"), &Caller::new("a", "2")], "x");
    }

    /// Checks that both callers share one allowance of two calls.
    #[track_caller]
    fn check(rates: &Rates, [first, second]: [&Caller; 2], tool: &str) {
        rates.admit(first.counted_as(), tool).expect("first");
        rates.admit(second.counted_as(), tool).expect("second");
        let error = rates.admit(first.counted_as(), tool).expect_err("third");
        assert_eq!(error.kind(), ToolErrorKind::RateLimited);
    }
}
