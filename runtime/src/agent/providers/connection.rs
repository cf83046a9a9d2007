//! The HTTP client: whom it trusts, and that it follows nobody elsewhere.

use std::sync::Arc;

use reqwest::{Client, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

use super::{ProviderLimits, settings};
use crate::agent::{ProviderError, ProviderErrorKind};

/// Makes a client for one address.
///
/// It follows no redirect, which would take key and conversation to another host. A proxy of the environment
/// (`HTTPS_PROXY`, `NO_PROXY`) is used, but never on the way to this machine. HTTP/1.1 alone is spoken: an
/// answer that is given up closes its connection, and so ends the work at the other end as well.
pub(super) fn client(address: &Url, limits: &ProviderLimits) -> Result<Client, ProviderError> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(trust(address)?)
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(limits.connect)
        .user_agent(concat!("portcullis/", env!("CARGO_PKG_VERSION")));
    if settings::is_this_machine(address) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| wrong("cannot make an HTTP client").with_source(error.without_url()))
}

/// The certificates that the machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others). A plain
/// address needs none, so that a local model is reached from a container that has none.
fn trust(address: &Url) -> Result<ClientConfig, ProviderError> {
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("cannot set up TLS").with_source(error))?;
    if address.scheme() != "https" {
        return Ok(versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let trusting = versions
        .with_platform_verifier()
        .map_err(|error| wrong("cannot read the certificates that this machine trusts").with_source(error))?;
    Ok(trusting.with_no_client_auth())
}

fn wrong(message: &str) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Configuration, message)
}
