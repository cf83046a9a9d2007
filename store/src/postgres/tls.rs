//! TLS to the server: rustls with ring, and the root certificates that the URL names.

use std::{io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Roots;
use crate::error::OpenError;

/// Makes the connector. The root certificates are read once, here.
pub(super) fn connector(roots: Roots) -> Result<MakeRustlsConnect, OpenError> {
    let store = match roots {
        // The connector is then unused, but the type of the pool requires one.
        Roots::Unused => RootCertStore::empty(),
        Roots::System => system_roots()?,
        Roots::File(path) => file_roots(&path)?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Roots { source: error.into() })?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn system_roots() -> Result<RootCertStore, OpenError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    // A file that cannot be read is not an error if other files have certificates.
    if store.is_empty() {
        let source = match found.errors.into_iter().next() {
            Some(error) => error.into(),
            None => io::Error::other("the system has none").into(),
        };
        return Err(OpenError::Roots { source });
    }
    Ok(store)
}

fn file_roots(path: &Path) -> Result<RootCertStore, OpenError> {
    let read = || -> Result<RootCertStore, Box<dyn std::error::Error + Send + Sync>> {
        let mut store = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path)? {
            store.add(certificate?)?;
        }
        if store.is_empty() {
            return Err("the file has none".into());
        }
        Ok(store)
    };
    read().map_err(|source| OpenError::Roots { source })
}
