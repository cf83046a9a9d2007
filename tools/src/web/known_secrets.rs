//! All secrets that were read, kept until the process exits. They are redacted from responses even after the
//! value or the policy entry has changed.

use std::collections::BTreeSet;

use portcullis_egress::{Credential, Url};
use portcullis_policy::{HostRule, UrlHost};

use crate::shared_state::SharedState;

/// The maximum number of values that are kept. Each reload of a policy with changed secrets adds some. If the
/// list is full, the oldest value is evicted.
const MAX_KNOWN_SECRETS: usize = 1_024;

/// The secrets that were read. Registries that share this list know the same secrets.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets {
    /// Shared with the registry that this one replaced, and with the one that replaces it.
    list: SharedState<Vec<KnownSecret>>,
}

/// A secret, with the hosts that the policy sends it to.
#[derive(Debug, Clone)]
pub(super) struct KnownSecret {
    pub(super) credential: Credential,
    pub(super) hosts: BTreeSet<HostRule>,
}

impl KnownSecrets {
    /// Adds a secret, unless a secret with the same value already covers its hosts.
    pub(super) fn add(&self, secret: KnownSecret) {
        add(&mut self.list.current().lock(), secret);
    }

    /// Returns all known secrets.
    pub(super) fn all(&self) -> Vec<Credential> {
        self.list.current().lock().iter().map(|secret| secret.credential.clone()).collect()
    }

    /// Whether a host may have received one of the secrets. Scheme and port do not matter, because one server
    /// of a host could repeat data that another server of the host received.
    pub(super) fn has_secret_of_host(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().and_then(|host| UrlHost::parse(host).ok()) else { return true };
        self.list
            .current()
            .lock()
            .iter()
            .any(|secret| secret.hosts.iter().any(|rule| rule.covers_host(&host)))
    }

    /// Shares the list of another registry from this call on, and merges its own secrets into it.
    pub(crate) fn share_with(&self, other: &Self) {
        self.list.share_with(&other.list, |secrets, own_secrets| {
            for secret in own_secrets {
                add(secrets, secret);
            }
        });
    }
}

fn add(secrets: &mut Vec<KnownSecret>, secret: KnownSecret) {
    let is_same = |known_secret: &KnownSecret| {
        known_secret.credential.has_value_of(&secret.credential)
            && known_secret.hosts.is_superset(&secret.hosts)
    };
    if secrets.iter().any(is_same) {
        return;
    }
    if secrets.len() == MAX_KNOWN_SECRETS {
        secrets.remove(0);
    }
    secrets.push(secret);
}

#[cfg(test)]
mod tests {
    use portcullis_egress::{HeaderAffixes, SecretValue};

    use super::*;

    fn secret(value: &str, host: &str) -> KnownSecret {
        let value = SecretValue::new(value.as_bytes().to_vec()).expect("a value");
        KnownSecret {
            credential: Credential::new(
                "s",
                &value,
                "authorization",
                HeaderAffixes { prefix: "Bearer ", suffix: "" },
            )
            .expect("a credential"),
            hosts: [host.parse().expect("a rule")].into(),
        }
    }

    fn url(text: &str) -> Url {
        text.parse().expect("a URL")
    }

    #[test]
    fn shared_lists_know_the_same_secrets_both_ways() {
        let (old_list, new_list) = (KnownSecrets::default(), KnownSecrets::default());
        old_list.add(secret("value-one", "https://a.example"));
        new_list.add(secret("value-two", "https://b.example"));
        new_list.share_with(&old_list);
        new_list.share_with(&old_list);
        old_list.add(secret("value-three", "https://a.example"));
        new_list.add(secret("value-one", "https://a.example"));
        assert_eq!((old_list.all().len(), new_list.all().len()), (3, 3));
    }

    #[test]
    fn a_host_is_reached_by_every_scheme_and_port() {
        let known_secrets = KnownSecrets::default();
        assert!(!known_secrets.has_secret_of_host(&url("https://a.example/")));
        known_secrets.add(secret("value-one", "https://a.example"));
        known_secrets.add(secret("value-two", "https://*.b.example"));
        for (text, expected) in [
            ("https://a.example/", true),
            ("http://a.example:8080/", true),
            ("https://sub.a.example/", false),
            ("http://x.b.example/", true),
            ("https://b.example/", false),
        ] {
            assert_eq!(known_secrets.has_secret_of_host(&url(text)), expected, "{text}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_beyond_the_bound() {
        let known_secrets = KnownSecrets::default();
        for number in 0..=MAX_KNOWN_SECRETS {
            known_secrets.add(secret(&format!("value-{number:05}"), "https://a.example"));
        }
        let all = known_secrets.all();
        assert_eq!(all.len(), MAX_KNOWN_SECRETS);
        assert!(!all.iter().any(|known_secret| {
            known_secret.has_value_of(&secret("value-00000", "https://a.example").credential)
        }));
    }
}
