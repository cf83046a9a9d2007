//! Approval: whether a call runs immediately, waits for a person's answer, or is refused.

use serde::{Deserialize, Serialize};

portcullis_types::word_enum! {
    /// The approval that a tool's calls need, ordered by strictness: the maximum of two values is the stricter one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Approval as "approval" {
        /// The call runs.
        Allow = "allow",
        /// The call runs if a person approves it.
        Ask = "ask",
        /// The call does not run.
        Deny = "deny",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_of_two_approvals_is_their_maximum() {
        assert_eq!(Approval::Allow.max(Approval::Ask), Approval::Ask);
        assert_eq!(Approval::Deny.max(Approval::Ask), Approval::Deny);
        for approval in Approval::ALL {
            assert_eq!(approval.as_str().parse(), Ok(approval));
        }
    }
}
