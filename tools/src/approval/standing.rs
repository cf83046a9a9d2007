//! Standing approvals: rules that an approver adds to the operator's policy, so that the same command needs no further
//! approval.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    io,
    sync::{Mutex, PoisonError},
};

use portcullis_policy::{CommandRules, RequestedSubject};
use serde::Serialize;
use thiserror::Error;

use super::ApprovalRequest;
use crate::BootstrapError;

/// The rules that a standing approval of a request would write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StandingOffer {
    /// The rules for `[shell] unasked`: one for each program of the command, with exactly its words.
    pub rules: Vec<String>,
    /// The policy file that gets the rules.
    pub file: String,
}

/// The reason why rules were not written into the operator's policy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuleWriteError {
    /// The policy is the shipped one, which has no file.
    #[error("the policy is the shipped one")]
    Shipped,
    /// The file cannot be read or replaced.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The file has no section `[shell]`.
    #[error("it has no section `[shell]`")]
    NoSection,
    /// The policy has no shell for the tier of the sandbox.
    #[error("it has no shell")]
    NoShell,
    /// The policy cannot be used with the rules, or is not as the operator expects.
    #[error(transparent)]
    Policy(#[from] BootstrapError),
    /// Another part of the policy takes the rules away.
    #[error("an overlay or the section of the sandbox tier takes the rules away")]
    TakenAway,
    /// A writer of an embedding program has another reason.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
}

/// Writes rules into the operator's policy. The command line implements it, and an embedding program may.
pub trait RuleWriter: Send + Sync {
    /// The policy file's name, for people. `None` if these rules cannot be written or would have no effect, for example
    /// because a workspace's overlay requires an approval of every command.
    fn file_for(&self, rules: &[String]) -> Option<String>;

    /// Adds the rules to `[shell] unasked` of the file.
    ///
    /// # Errors
    /// [`RuleWriteError`]. The file is then unchanged.
    fn write(&self, rules: &[String]) -> Result<(), RuleWriteError>;
}

/// The rules that approvers have added since startup. The policy in force was loaded at startup and lacks
/// them.
pub(crate) struct StandingApprovals {
    writer: Box<dyn RuleWriter>,
    added_rules: Mutex<BTreeSet<String>>,
}

impl StandingApprovals {
    pub(crate) fn new(writer: Box<dyn RuleWriter>) -> Self {
        Self { writer, added_rules: Mutex::default() }
    }

    /// Returns the standing approval to offer for a request. `None` unless the request is for a confined
    /// shell command that no flow rule stopped, and the operator's policy can hold the rules.
    pub(crate) fn offer(&self, request: &ApprovalRequest) -> Option<StandingOffer> {
        let rules = rules_for(request)?;
        let file = self.writer.file_for(&rules)?;
        Some(StandingOffer { rules, file })
    }

    /// Writes the rules, and applies them to later requests.
    pub(crate) fn keep(&self, offer: &StandingOffer) -> Result<(), RuleWriteError> {
        self.writer.write(&offer.rules)?;
        self.added().extend(offer.rules.iter().cloned());
        Ok(())
    }

    /// Whether rules that were added since the start cover the request.
    pub(crate) fn covers(&self, request: &ApprovalRequest) -> bool {
        let added = self.added();
        !added.is_empty()
            && rules_for(request).is_some_and(|rules| rules.iter().all(|rule| added.contains(rule)))
    }

    fn added(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.added_rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for StandingApprovals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandingApprovals").field("added", &*self.added()).finish_non_exhaustive()
    }
}

/// Returns the exact rules for the commands of a request.
fn rules_for(request: &ApprovalRequest) -> Option<Vec<String>> {
    let grant = &request.grant;
    if grant.shell.is_none() || grant.flow.is_some() || request.unconfined || !request.steps.is_empty() {
        return None;
    }
    let commands = grant.subjects.iter().filter_map(|subject| match subject {
        RequestedSubject::Command { command, .. } => Some(command.as_str()),
        RequestedSubject::Path { .. } | RequestedSubject::Url { .. } => None,
    });
    let rules: Vec<String> =
        commands.map(CommandRules::exact_rules).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    (!rules.is_empty()).then_some(rules)
}
