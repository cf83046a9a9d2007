//! The network of one profile, and the network part of a grant.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{EgressSettings, HostRule, HttpMethod, PrivateEndpoint, ResponseBytes};

/// The network of a profile of the effective policy. A profile without hosts has no value of this type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ProfileNetwork {
    pub(crate) hosts: BTreeSet<HostRule>,
    pub(crate) methods: BTreeSet<HttpMethod>,
}

/// The network part of a [`crate::Grant`]: the hosts that its requests may reach, and their limits.
///
/// The JSON is stable, like the grant's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkGrant {
    /// The rules of the profile. Never empty. At least one rule must cover a request.
    pub hosts: BTreeSet<HostRule>,
    /// The methods of the profile. Never empty.
    pub methods: BTreeSet<HttpMethod>,
    /// The endpoints that may be reached although their addresses are not public.
    pub allow_private: BTreeSet<PrivateEndpoint>,
    /// The maximum number of bytes of a response's body. The limit applies before decompression and again after it.
    #[serde(rename = "max_response_bytes")]
    pub max_response: ResponseBytes,
    /// The maximum number of redirects that one request follows. [`crate::Grant::judge_redirect`] counts
    /// them.
    pub max_redirects: u32,
}

impl NetworkGrant {
    /// Builds the grant of a profile's network.
    pub(crate) fn resolve(profile: &ProfileNetwork, egress: &EgressSettings) -> Self {
        let ProfileNetwork { hosts, methods } = profile.clone();
        let EgressSettings { allow_private, max_response, max_redirects, ca: _, proxy: _, robots: _ } =
            egress;
        let allow_private = allow_private.clone();
        Self { hosts, methods, allow_private, max_response: *max_response, max_redirects: *max_redirects }
    }
}
