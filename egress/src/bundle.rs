//! The trusted certificates as one PEM text (RFC 7468), for programs that read them from a file.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::{EgressError, SystemRoots};

/// Returns the machine's certificates and those of `extra_ca_pems` in PEM form, without duplicates. Reads them like
/// [`crate::TrustedRoots::read`].
///
/// # Errors
/// See [`crate::TrustedRoots::read`].
pub fn certificate_bundle(system: SystemRoots, extra_ca_pems: &[&[u8]]) -> Result<String, EgressError> {
    let mut certificates = match system {
        SystemRoots::Trust => rustls_native_certs::load_native_certs().certs,
        SystemRoots::Ignore => Vec::new(),
    };
    for text in extra_ca_pems {
        for (index, certificate) in CertificateDer::pem_slice_iter(text).enumerate() {
            let certificate =
                certificate.map_err(|source| EgressError::Root { index, source: source.into() })?;
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(EgressError::NoRoots);
    }
    certificates.sort_unstable_by(|left, right| left.as_ref().cmp(right.as_ref()));
    certificates.dedup();
    Ok(certificates.iter().map(|certificate| pem(certificate)).collect())
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so every position is a character boundary.
        let (line, remaining) = rest.split_at(rest.len().min(LINE_CHARS));
        pem.push_str(line);
        pem.push('\n');
        rest = remaining;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// The length of a line of PEM, in characters (RFC 7468, section 2).
const LINE_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_bundle_has_each_certificate_once() {
        let make = || {
            let params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
        };
        let (first, second) = (make(), make());
        let both = format!("{first}{second}");
        let bundle = certificate_bundle(SystemRoots::Ignore, &[first.as_bytes(), both.as_bytes()]).unwrap();
        let read = |text: &str| -> Vec<Vec<u8>> {
            let all = CertificateDer::pem_slice_iter(text.as_bytes());
            let mut all: Vec<Vec<u8>> = all.map(|certificate| certificate.unwrap().to_vec()).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(read(&bundle), read(&both));
        assert!(bundle.lines().all(|line| line.len() <= LINE_CHARS));
        assert!(matches!(certificate_bundle(SystemRoots::Ignore, &[]), Err(EgressError::NoRoots)));
    }
}
