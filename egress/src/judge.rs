//! The judge of a request, which stands for the policy and the grant.
//!
//! The judge's implementation decides. This file says when it is asked.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::Method;
use url::Url;

use crate::{Credential, RequestLimits};

/// Decides about one request and its redirects. A thread of [`crate::Egress`] calls it, so it must answer at
/// once, without I/O.
pub trait Judge: Send + Sync {
    /// Whether this request may be made. Called before each request, those after a redirect included, and before
    /// the host's name is resolved. The scheme is `http` or `https`, and there is no user information. A tunnel has
    /// the method `CONNECT` and the URL `https://host:port/`; its host is never an address.
    ///
    /// # Errors
    /// The refusal.
    fn request(&self, method: &Method, url: &Url) -> Result<(), Refusal>;

    /// Whether this address may be connected to as `host`. Called for every address of a name before any of
    /// them is dialled, and for a host that is written as an address. One refusal refuses the request: a name
    /// with a public and a private address is refused. Called too for the address of a connection that is used
    /// again, whose name is not asked anew.
    ///
    /// Behind a proxy, which resolves names itself, only hosts that are addresses are asked about, and `localhost`
    /// with the names below it, as the addresses of the loopback device.
    ///
    /// `host` is the URL's host as [`Url::host_str`] writes it, an IPv6 address in brackets.
    ///
    /// # Errors
    /// The refusal.
    fn address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal>;

    /// Called with the address of the connection that a request is about to use, or of the attempt that failed last;
    /// behind a proxy, with the proxy's. For rows. Default: nothing.
    fn dialled(&self, _address: SocketAddr) {}

    /// Whether a redirect may be followed. Called before [`Self::request`] is asked about its target.
    ///
    /// # Errors
    /// The refusal.
    fn redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal>;

    /// The secrets that [`Self::attaches`] is asked about. Called for each request. Default: none.
    fn credentials(&self) -> &[Credential] {
        &[]
    }

    /// The secrets that responses are cleaned of. Called when a response has come, since a secret may have become known
    /// while the server took its time. Default: [`Self::credentials`].
    fn known_secrets(&self) -> Vec<Credential> {
        self.credentials().to_vec()
    }

    /// Whether the request to this address carries a credential. Called for each credential once all other
    /// questions about the request are answered and a connection is open or kept, anew after each redirect. Default: no.
    fn attaches(&self, _credential: &Credential, _url: &Url) -> bool {
        false
    }

    /// Whether any request may have sent one of the secrets to the host of this address, also if this request carries
    /// none. Such a host is asked for no part of a response. Called only for range requests and partial responses. Default: whether [`Self::attaches`] holds for a credential.
    fn may_repeat_a_secret(&self, url: &Url) -> bool {
        self.credentials().iter().any(|credential| self.attaches(credential, url))
    }

    /// Called with each credential before the request that carries it is sent. Default: nothing.
    fn attached(&self, _credential: &Credential) {}

    /// The identity of the grant, for which connections are kept. Called for each request, those after a redirect
    /// included. Default: none, so that each request has a connection of its own.
    fn grant_key(&self) -> Option<GrantKey> {
        None
    }

    /// The limits of the request. Called before anything else, by the caller and by the thread.
    fn limits(&self) -> RequestLimits;
}

/// The identity of a grant. Requests whose judges give equal keys may use each other's connections, one after the
/// other, so that the key must have everything by which two grants can differ: where requests may go, which secrets
/// they carry, and on whose behalf they are made.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GrantKey(Arc<str>);

impl GrantKey {
    /// A key. Its text is compared, and never sent or shown.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for GrantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantKey(..)")
    }
}

/// A judge's refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The stable code of the rule, for callers and audit rows.
    pub code: &'static str,
    /// The reason in words, for the model: without a host path and without a secret.
    pub reason: String,
}
