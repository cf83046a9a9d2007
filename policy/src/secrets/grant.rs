//! The secrets of a grant.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use crate::{Grant, HostRule, RequestedSubject, SecretName, WorkspaceSecurityPolicy, network::parse_url};

/// A secret that a call's requests carry to the secret's hosts. The JSON is stable, like the grant's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GrantedSecret {
    /// The secret's name.
    pub name: SecretName,
    /// The hosts that may receive the secret. Never empty.
    pub hosts: BTreeSet<HostRule>,
}

impl Grant {
    /// Returns whether a request to this address carries the secret of this name. The request itself is
    /// judged separately. Check again for each redirect.
    #[must_use]
    pub fn attaches_secret(&self, name: &str, url: &str) -> bool {
        self.secrets_for(url).any(|secret| secret.name.as_str() == name)
    }

    /// Returns the secrets that a request to this address carries, sorted by name. Empty if the text is not
    /// the URL of a request.
    pub fn secrets_for(&self, url: &str) -> impl Iterator<Item = &GrantedSecret> {
        let target = parse_url(url).ok().map(|(_, target)| target);
        let covers = move |secret: &&GrantedSecret| {
            target.as_ref().is_some_and(|to| secret.hosts.iter().any(|rule| rule.covers(to)))
        };
        self.secrets.iter().filter(covers)
    }

    /// Returns the secrets that requests to the addresses in the call's arguments carry, sorted by name.
    pub fn secrets_of_subjects(&self) -> impl Iterator<Item = &GrantedSecret> {
        self.secrets.iter().filter(self.applies_to_subjects())
    }

    /// Returns the other secrets of the grant. A redirect, or a request that no argument names, may carry
    /// them.
    pub fn secrets_of_other_requests(&self) -> impl Iterator<Item = &GrantedSecret> {
        let applies_to_subjects = self.applies_to_subjects();
        self.secrets.iter().filter(move |secret| !applies_to_subjects(secret))
    }

    /// Returns the secrets that requests may carry when the call starts: those for the addresses in its
    /// arguments, or all secrets if no argument names an address, because the tool then chooses its requests.
    pub fn initial_secrets(&self) -> impl Iterator<Item = &GrantedSecret> {
        let names_addresses =
            self.subjects.iter().any(|subject| matches!(subject, RequestedSubject::Url { .. }));
        let applies_to_subjects = self.applies_to_subjects();
        self.secrets.iter().filter(move |secret| !names_addresses || applies_to_subjects(secret))
    }

    fn applies_to_subjects(&self) -> impl Fn(&&GrantedSecret) -> bool {
        let urls: Vec<&str> = self
            .subjects
            .iter()
            .filter_map(|subject| match subject {
                RequestedSubject::Url { url, .. } => Some(url.as_str()),
                RequestedSubject::Path { .. } | RequestedSubject::Command { .. } => None,
            })
            .collect();
        move |secret: &&GrantedSecret| urls.iter().any(|url| self.attaches_secret(secret.name.as_str(), url))
    }
}

impl WorkspaceSecurityPolicy {
    /// Returns the secrets of a tool's grant, sorted by name.
    pub(crate) fn secrets_of(&self, tool: &str) -> Arc<[GrantedSecret]> {
        let secrets = self.effective().secrets.iter().filter(|(_, rule)| rule.applies_to_tool(tool));
        secrets.map(|(name, rule)| GrantedSecret { name: name.clone(), hosts: rule.hosts.clone() }).collect()
    }
}
