//! Operations: tools that are made of steps. To the policy a step is a tool with an entry and a grant; to all
//! others it does not exist.

/// A tool that is made of steps, so that no single grant holds the access of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The tool's name.
    pub name: &'static str,
    /// The names of its steps, reserved for them.
    pub steps: &'static [&'static str],
}

impl Operation {
    /// All operations of this build.
    pub const ALL: &[Self] = &[Self::VAULT_COPYTO, Self::WEB_FETCH, Self::WEB_SEARCH, Self::SEARCH_WEB];

    /// Copies a file out of the vault: one step reads there, the other writes elsewhere.
    pub const VAULT_COPYTO: Self =
        Self { name: "vault_copyto", steps: &["vault_copyto_read", "vault_copyto_write"] };

    /// Fetches from the web: one step makes a request, the others read `robots.txt` and the body without any access; PDF
    /// files have a step of their own for that.
    pub const WEB_FETCH: Self = Self {
        name: "web_fetch",
        steps: &["web_fetch_request", "web_fetch_robots", "web_fetch_read", "web_fetch_read_pdf"],
    };

    /// Searches the web: one step asks the provider, the other reads the answer without any access.
    pub const WEB_SEARCH: Self =
        Self { name: "web_search", steps: &["web_search_request", "web_search_read"] };

    /// [`Self::WEB_SEARCH`] in the words of specification 001.
    pub const SEARCH_WEB: Self = Self { name: "search_web", steps: Self::WEB_SEARCH.steps };

    /// Whether this names an operation, or a step of one, that is there only with a provider in `[search]`.
    #[must_use]
    pub fn needs_search_provider(name: &str) -> bool {
        let searches = [Self::WEB_SEARCH, Self::SEARCH_WEB];
        searches.iter().any(|operation| operation.name == name || operation.steps.contains(&name))
    }

    /// The first operation with the same steps as the operation of this name; none if there is no such operation.
    pub(crate) fn first_with_steps_of(name: &str) -> Option<&'static Self> {
        let named = Self::ALL.iter().find(|operation| operation.name == name)?;
        Self::ALL.iter().find(|operation| operation.steps == named.steps)
    }

    /// Whether this is the name of a step.
    #[must_use]
    pub fn has_step(name: &str) -> bool {
        Self::ALL.iter().any(|operation| operation.steps.contains(&name))
    }
}
