//! Operations: tools that consist of steps. Only the policy sees a step, as a tool with its own entry and grant.

/// A tool that consists of steps. No single grant contains the access of all steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The tool's name.
    pub name: &'static str,
    /// The names of the operation's steps. No other tool may have these names.
    pub steps: &'static [&'static str],
}

impl Operation {
    /// All operations of this build.
    pub const ALL: &[Self] =
        &[Self::VAULT_COPYTO, Self::WEB_FETCH, Self::WEB_SEARCH, Self::SEARCH_WEB, Self::SEND_NOTIFICATION];

    /// Copies a file out of the vault: one step reads the vault, the other writes elsewhere.
    pub const VAULT_COPYTO: Self =
        Self { name: "vault_copyto", steps: &["vault_copyto_read", "vault_copyto_write"] };

    /// Fetches from the web: one step makes a request, and the others read `robots.txt` and the body without
    /// any access. PDF files have a separate reading step.
    pub const WEB_FETCH: Self = Self {
        name: "web_fetch",
        steps: &["web_fetch_request", "web_fetch_robots", "web_fetch_read", "web_fetch_read_pdf"],
    };

    /// Searches the web: one step sends the query to the provider, and the other reads the answer without any
    /// access.
    pub const WEB_SEARCH: Self =
        Self { name: "web_search", steps: &["web_search_request", "web_search_read"] };

    /// [`Self::WEB_SEARCH`] under the name that programs of other systems call.
    pub const SEARCH_WEB: Self = Self { name: "search_web", steps: Self::WEB_SEARCH.steps };

    /// Sends a message to a person or a channel: one step makes a request, and the other speaks to a mail
    /// server. A call uses one of the two.
    pub const SEND_NOTIFICATION: Self =
        Self { name: "send_notification", steps: &["send_notification_request", "send_notification_mail"] };

    /// Returns whether an operation or a step of this name exists only with `[notify]`.
    #[must_use]
    pub fn needs_notify(name: &str) -> bool {
        Self::SEND_NOTIFICATION.name == name || Self::SEND_NOTIFICATION.steps.contains(&name)
    }

    /// Returns whether an operation or a step of this name exists only with a provider in `[search]`.
    #[must_use]
    pub fn needs_search_provider(name: &str) -> bool {
        let searches = [Self::WEB_SEARCH, Self::SEARCH_WEB];
        searches.iter().any(|operation| operation.name == name || operation.steps.contains(&name))
    }

    /// Returns the first operation with the same steps as the operation of this name, or `None` if there is
    /// no such operation.
    pub(crate) fn first_with_steps_of(name: &str) -> Option<&'static Self> {
        let named_operation = Self::ALL.iter().find(|operation| operation.name == name)?;
        Self::ALL.iter().find(|operation| operation.steps == named_operation.steps)
    }

    /// Returns whether this is the name of a step.
    #[must_use]
    pub fn has_step(name: &str) -> bool {
        Self::ALL.iter().any(|operation| operation.steps.contains(&name))
    }
}
