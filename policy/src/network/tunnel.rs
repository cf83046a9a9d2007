//! The network of a shell: the hosts that its commands reach by TLS, through a forwarder that cannot read the
//! traffic.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use super::{EgressSettings, HostRule, InvalidHostRule, PrivateEndpoint, Scheme};

/// A rule of a shell's `hosts`: a [`HostRule`] with the scheme `https` and a name, such as `https://*.crates.io`. The
/// forwarder compares the server name in the first message of TLS with the rule's host. Plain HTTP has no such message,
/// and in TLS to an IP address no server name is sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelRule(HostRule);

/// A text that is not a rule of a shell's `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidTunnelRule {
    /// The text is not a rule of any `hosts`.
    #[error(transparent)]
    Rule(#[from] InvalidHostRule),
    /// The rule's scheme is `http`.
    #[error("a shell reaches hosts by TLS only; write `https://` and the host")]
    Scheme,
    /// The rule's host is an address.
    #[error(
        "the host is an IP address, so TLS has no server name to check; write `https://` and a host name"
    )]
    Address,
}

/// The network part of a [`crate::ShellGrant`], and of a sidecar of shells.
///
/// The JSON is stable, like the grant's. Deserializing runs the same checks as reading a policy file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellNetwork {
    /// The rules. Never empty in a grant. At least one rule must cover a host.
    pub hosts: BTreeSet<TunnelRule>,
    /// The endpoints that may be reached although their addresses are not public.
    pub allow_private: BTreeSet<PrivateEndpoint>,
}

impl TunnelRule {
    /// Returns the rule as a [`HostRule`].
    #[must_use]
    pub fn rule(&self) -> &HostRule {
        &self.0
    }
}

impl ShellNetwork {
    /// Builds the network of a shell with these rules, or returns `None` if there are no rules.
    pub(crate) fn resolve(hosts: &BTreeSet<TunnelRule>, egress: &EgressSettings) -> Option<Self> {
        (!hosts.is_empty())
            .then(|| Self { hosts: hosts.clone(), allow_private: egress.allow_private.clone() })
    }

    /// Returns the ports of all rules.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        self.hosts.iter().map(|rule| rule.0.port()).collect()
    }
}

impl FromStr for TunnelRule {
    type Err = InvalidTunnelRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule: HostRule = text.parse()?;
        match rule.scheme() {
            Scheme::Http => Err(InvalidTunnelRule::Scheme),
            Scheme::Https if rule.is_address() => Err(InvalidTunnelRule::Address),
            Scheme::Https => Ok(Self(rule)),
        }
    }
}

impl fmt::Display for TunnelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for TunnelRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TunnelRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shells_rule_is_https_with_a_name() {
        for text in ["https://github.com", "https://*.crates.io", "https://*", "https://localhost:8443"] {
            assert_eq!(text.parse::<TunnelRule>().expect(text).to_string(), text);
        }
        for (text, part) in [
            ("http://github.com", "by TLS only"),
            ("http://*", "by TLS only"),
            ("https://127.0.0.1:8443", "no server name to check"),
            ("https://[::1]", "no server name to check"),
            ("github.com", "begins with"),
            ("https://github.com/a", "no path"),
        ] {
            let error = text.parse::<TunnelRule>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_network_that_is_read_is_checked() {
        let network = ShellNetwork {
            hosts: ["https://*.crates.io".parse().expect("a rule")].into(),
            allow_private: ["127.0.0.1:8443".parse().expect("an endpoint")].into(),
        };
        let text = serde_json::to_string(&network).expect("json");
        assert_eq!(text, r#"{"hosts":["https://*.crates.io"],"allow_private":["127.0.0.1:8443"]}"#);
        assert_eq!(serde_json::from_str::<ShellNetwork>(&text).expect("valid"), network);
        for invalid in [text.replace("https", "http"), text.replace("127.0.0.1", "localhost")] {
            assert!(serde_json::from_str::<ShellNetwork>(&invalid).is_err(), "{invalid}");
        }
    }
}
