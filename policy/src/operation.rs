//! Operations: tools that are made of steps. A step is a tool to the policy, with an entry and a grant of its
//! own, and to nobody else.

/// A tool that is made of steps, so that no grant holds what all of them hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The tool's name.
    pub name: &'static str,
    /// The names of its steps. No other tool may have one of them.
    pub steps: &'static [&'static str],
}

impl Operation {
    /// All operations of this build.
    pub const ALL: &[Self] = &[Self::VAULT_COPYTO];

    /// Copies a file out of the vault: one step reads there, the other writes elsewhere.
    pub const VAULT_COPYTO: Self =
        Self { name: "vault_copyto", steps: &["vault_copyto_read", "vault_copyto_write"] };

    /// Whether a name is that of a step.
    #[must_use]
    pub fn has_step(name: &str) -> bool {
        Self::ALL.iter().any(|operation| operation.steps.contains(&name))
    }
}
