//! The trusted certificates for the verification of servers. They are read before a thread is confined.

use std::{io, path::Path, sync::Arc};

use portcullis_confine::bounded::{self, FinalSymlink};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::EgressError;

/// The maximum size of a file with further certificates: 1 MiB.
pub const MAX_CA_BYTES: u64 = 1 << 20;

/// Reads a file with further certificates, for [`TrustedRoots::read`]. The open does not block, because a
/// FIFO in the file's place would block the caller forever.
///
/// # Errors
/// If the file cannot be read, is not a regular file, or has more than [`MAX_CA_BYTES`].
pub fn read_ca_file(path: &Path) -> io::Result<Vec<u8>> {
    bounded::read_bytes(bounded::open_regular(path, FinalSymlink::Follow)?, MAX_CA_BYTES)
}

/// The trusted certificates. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TrustedRoots(Arc<RootCertStore>);

/// Whether the machine's certificates are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemRoots {
    /// The machine's certificates are trusted. `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them.
    Trust,
    /// Only certificates that the caller adds are trusted.
    Ignore,
}

impl TrustedRoots {
    /// Reads the machine's certificates, and adds those of `extra_ca_pems`, which are texts in PEM form (RFC 7468). An
    /// unreadable certificate of the machine is skipped, as in other programs; in `extra_ca_pems` it is an error.
    ///
    /// # Errors
    /// [`EgressError::Root`] for one of `extra_ca_pems`, and [`EgressError::NoRoots`] if no certificate remains.
    pub fn read(system: SystemRoots, extra_ca_pems: &[&[u8]]) -> Result<Self, EgressError> {
        let mut store = RootCertStore::empty();
        if system == SystemRoots::Trust {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        for text in extra_ca_pems {
            for (index, certificate) in CertificateDer::pem_slice_iter(text).enumerate() {
                let certificate =
                    certificate.map_err(|source| EgressError::Root { index, source: source.into() })?;
                store
                    .add(certificate)
                    .map_err(|source| EgressError::Root { index, source: source.into() })?;
            }
        }
        if store.is_empty() {
            return Err(EgressError::NoRoots);
        }
        Ok(Self(Arc::new(store)))
    }

    /// Creates an empty set of certificates, for threads that only dial. Every `https` request fails.
    #[must_use]
    pub fn empty() -> Self {
        Self(Arc::new(RootCertStore::empty()))
    }

    /// Returns the TLS settings of a client that speaks its own protocol over a connection of [`crate::Egress::dial`].
    ///
    /// # Errors
    /// [`EgressError::Tls`] if the TLS library has no usable version.
    pub fn tls_config(&self) -> Result<Arc<ClientConfig>, EgressError> {
        let mut config = ClientConfig::clone(&*self.client_config()?);
        config.alpn_protocols.clear();
        Ok(Arc::new(config))
    }

    /// Returns the TLS settings: TLS 1.2 and 1.3, and HTTP/1.1 only. TLS sessions are not resumed, because a
    /// session ticket would tell a server that two requests come from one process, even under different
    /// grants.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, EgressError> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| EgressError::Tls { source })?
            .with_root_certificates(Arc::clone(&self.0))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_certificate_at_all_is_an_error() {
        assert!(matches!(TrustedRoots::read(SystemRoots::Ignore, &[]), Err(EgressError::NoRoots)));
        assert!(matches!(TrustedRoots::read(SystemRoots::Ignore, &[b"text"]), Err(EgressError::NoRoots)));
    }

    #[test]
    fn certificates_are_read_from_a_regular_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (file, fifo) = (folder.path().join("file"), folder.path().join("fifo"));
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_ca_file(&file).unwrap(), b"text");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        for refused in [&fifo, folder.path()] {
            assert_eq!(read_ca_file(refused).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{refused:?}");
        }
        assert_eq!(read_ca_file(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_damaged_extra_certificate_is_an_error() {
        let text: &[u8] = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = TrustedRoots::read(SystemRoots::Ignore, &[text]).unwrap_err();
        assert!(matches!(error, EgressError::Root { index: 0, .. }), "{error}");
    }
}
