//! The secrets that were read, until the process ends: no response may repeat one, also after its value or its entry in
//! the policy has changed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portcullis_egress::{Credential, Url};
use portcullis_policy::{HostRule, UrlHost};

/// The most values that are remembered. Each reload of a policy whose secrets have changed adds some; the oldest goes
/// first.
const MAX_KNOWN_SECRETS: usize = 1_024;

/// The secrets that were read. Clones of an [`Arc`] of it, and lists that are shared, see the same ones.
#[derive(Debug, Default)]
pub(crate) struct KnownSecrets {
    /// Shared by registries that follow one another.
    list: Mutex<Arc<Mutex<Vec<KnownSecret>>>>,
}

/// A secret, with the hosts that its policy sends it to.
#[derive(Debug, Clone)]
pub(super) struct KnownSecret {
    pub(super) credential: Credential,
    pub(super) hosts: BTreeSet<HostRule>,
}

impl KnownSecrets {
    /// Remembers a secret. One that is known with the same value and hosts is not added again.
    pub(super) fn add(&self, secret: KnownSecret) {
        let shared = self.shared();
        let mut known = lock(&shared);
        add(&mut known, secret);
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<Credential> {
        lock(&self.shared()).iter().map(|known| known.credential.clone()).collect()
    }

    /// Whether a host may know one: by any scheme and port, since what one server of a host has got another one may
    /// repeat.
    pub(super) fn reached(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().and_then(|host| UrlHost::parse(host).ok()) else { return true };
        lock(&self.shared()).iter().any(|known| known.hosts.iter().any(|rule| rule.covers_host(&host)))
    }

    /// Remembers what others remember, from now on together with them, and keeps its own.
    pub(crate) fn share_with(&self, others: &Self) {
        let theirs = others.shared();
        let mine = std::mem::replace(&mut *lock(&self.list), Arc::clone(&theirs));
        if !Arc::ptr_eq(&mine, &theirs) {
            let mine = std::mem::take(&mut *lock(&mine));
            let mut theirs = lock(&theirs);
            mine.into_iter().for_each(|secret| add(&mut theirs, secret));
        }
    }

    fn shared(&self) -> Arc<Mutex<Vec<KnownSecret>>> {
        Arc::clone(&lock(&self.list))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(known: &mut Vec<KnownSecret>, secret: KnownSecret) {
    let is_same = |other: &KnownSecret| {
        other.credential.has_value_of(&secret.credential) && other.hosts.is_superset(&secret.hosts)
    };
    if known.iter().any(is_same) {
        return;
    }
    if known.len() == MAX_KNOWN_SECRETS {
        known.remove(0);
    }
    known.push(secret);
}

#[cfg(test)]
mod tests {
    use portcullis_egress::SecretValue;

    use super::*;

    fn secret(value: &str, host: &str) -> KnownSecret {
        let value = SecretValue::new(value.as_bytes().to_vec()).expect("a value");
        KnownSecret {
            credential: Credential::new("s", &value, "authorization", ("Bearer ", "")).expect("a credential"),
            hosts: [host.parse().expect("a rule")].into(),
        }
    }

    fn url(text: &str) -> Url {
        text.parse().expect("a URL")
    }

    #[test]
    fn shared_lists_know_the_same_secrets_both_ways() {
        let (before, after) = (KnownSecrets::default(), KnownSecrets::default());
        before.add(secret("value-one", "https://a.example"));
        after.add(secret("value-two", "https://b.example"));
        after.share_with(&before);
        after.share_with(&before);
        before.add(secret("value-three", "https://a.example"));
        after.add(secret("value-one", "https://a.example"));
        assert_eq!((before.all().len(), after.all().len()), (3, 3));
    }

    #[test]
    fn a_host_is_reached_by_every_scheme_and_port() {
        let known = KnownSecrets::default();
        assert!(!known.reached(&url("https://a.example/")));
        known.add(secret("value-one", "https://a.example"));
        known.add(secret("value-two", "https://*.b.example"));
        for (text, expected) in [
            ("https://a.example/", true),
            ("http://a.example:8080/", true),
            ("https://sub.a.example/", false),
            ("http://x.b.example/", true),
            ("https://b.example/", false),
        ] {
            assert_eq!(known.reached(&url(text)), expected, "{text}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_beyond_the_bound() {
        let known = KnownSecrets::default();
        for number in 0..=MAX_KNOWN_SECRETS {
            known.add(secret(&format!("value-{number:05}"), "https://a.example"));
        }
        let all = known.all();
        assert_eq!(all.len(), MAX_KNOWN_SECRETS);
        assert!(
            !all.iter().any(|it| it.has_value_of(&secret("value-00000", "https://a.example").credential))
        );
    }
}
