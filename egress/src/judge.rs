//! The judge of requests, which represents the policy and the grant.
//!
//! An implementation makes the decisions. This module defines when it is asked.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::Method;
use url::Url;

use crate::{Credential, RequestLimits};

/// Decides about one request and its redirects. A thread of [`crate::Egress`] calls it, so each method must return
/// immediately, without I/O.
pub trait Judge: Send + Sync {
    /// Decides whether a request may be made. Called for each request, even after a redirect, before the host's name is
    /// resolved. The scheme is `http` or `https`, and there is no user information. A tunnel has the method `CONNECT`
    /// and the URL `https://host:port/`, whose host is never an address. A dial has `CONNECT` and the caller's
    /// unchecked URL.
    ///
    /// # Errors
    /// A [`Refusal`] if the request must not be made.
    fn judge_request(&self, method: &Method, url: &Url) -> Result<(), Refusal>;

    /// Decides whether `address` may be connected to as `host`. Called for every address of a name before any
    /// of them is dialled, and for a host that is written as an address. One refusal refuses the request, so
    /// a name with a public and a private address is refused. Also called for the address of a reused
    /// connection, whose name is not resolved again.
    ///
    /// Behind a proxy, which resolves names itself, called only for hosts that are addresses, and with the loopback
    /// addresses for `localhost` and the names below it.
    ///
    /// `host` is the URL's host as [`Url::host_str`] writes it, an IPv6 address in brackets.
    ///
    /// # Errors
    /// A [`Refusal`] if the address must not be connected to.
    fn judge_address(&self, host: &str, port: u16, address: IpAddr) -> Result<(), Refusal>;

    /// Receives the address of the connection that a request is about to use, or of the attempt that failed
    /// last. Behind a proxy it is the proxy's address. For audit rows. Default: does nothing.
    fn on_dialled(&self, _address: SocketAddr) {}

    /// Decides whether a redirect may be followed. Called before [`Self::judge_request`] is called for its target.
    ///
    /// # Errors
    /// A [`Refusal`] if the redirect must not be followed.
    fn judge_redirect(&self, from: &Url, to: &Url) -> Result<(), Refusal>;

    /// Returns the secrets that [`Self::should_attach`] is asked about. Called for each request. Default: none.
    fn credentials(&self) -> &[Credential] {
        &[]
    }

    /// Returns the secrets that are redacted. Called when a response or a piece of a stream arrives, because
    /// a secret may become known after the request was sent. Default: [`Self::credentials`].
    fn known_secrets(&self) -> Vec<Credential> {
        self.credentials().to_vec()
    }

    /// Decides whether the request to `url` carries a credential. Called for each credential, after all other checks of
    /// the request and when its connection is open, and again after each redirect. Default: `false`.
    fn should_attach(&self, _credential: &Credential, _url: &Url) -> bool {
        false
    }

    /// Decides whether the host of `url` may have received one of the secrets, from this request or any
    /// other. Called only for a request that asks for a partial response, and for a partial response. Both
    /// are refused for such a host. Default: whether [`Self::should_attach`] holds for any credential.
    fn may_repeat_a_secret(&self, url: &Url) -> bool {
        self.credentials().iter().any(|credential| self.should_attach(credential, url))
    }

    /// Receives each credential before the request that carries it is sent. Default: does nothing.
    fn on_attached(&self, _credential: &Credential) {}

    /// Returns the identity of the grant, under which connections are pooled. Called for each request, even
    /// after a redirect. Default: `None`, so that each request opens a new connection.
    fn pool_identity(&self) -> Option<PoolIdentity> {
        None
    }

    /// Returns the limits of the request. For requests, called before all other methods, by the caller and by the
    /// thread.
    fn limits(&self) -> RequestLimits;
}

/// The identity of a grant. Requests whose judges return equal identities may reuse each other's connections.
/// An identity must therefore contain everything by which two grants can differ: where requests may go, which
/// secrets they carry, and on whose behalf they are made.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PoolIdentity(Arc<str>);

impl PoolIdentity {
    /// Creates an identity. Its text is compared, and never sent or shown.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for PoolIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolIdentity(..)")
    }
}

/// A judge's refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The stable code of the rule, for callers and audit rows.
    pub code: &'static str,
    /// The reason in words, for the model. It contains no host path and no secret.
    pub reason: String,
}
