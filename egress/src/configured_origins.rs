//! [`ConfiguredOrigins`]: a judge that allows the origins that the operator has configured.

use std::{collections::BTreeSet, net::IpAddr};

use http::Method;
use url::Url;

use crate::{Judge, Refusal, RequestLimits};

/// A [`Judge`] that allows requests to configured origins, at any address, and refuses redirects. It is for a
/// client whose own settings name the origins, such as a model's provider or a witness of the audit log.
#[derive(Debug)]
pub struct ConfiguredOrigins {
    allowed: BTreeSet<(String, u16)>,
    limits: RequestLimits,
}

impl ConfiguredOrigins {
    /// Creates the judge for the origins of these URLs, with the limits of each request.
    #[must_use]
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a Url>, limits: RequestLimits) -> Self {
        Self { allowed: urls.into_iter().filter_map(origin_of).collect(), limits }
    }

    /// Returns the ports of the origins.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        self.allowed.iter().map(|(_, port)| *port).collect()
    }
}

fn origin_of(url: &Url) -> Option<(String, u16)> {
    Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
}

impl Judge for ConfiguredOrigins {
    fn judge_request(&self, _method: &Method, url: &Url) -> Result<(), Refusal> {
        if origin_of(url).is_some_and(|origin| self.allowed.contains(&origin)) {
            Ok(())
        } else {
            Err(Refusal {
                code: "origin_not_configured",
                reason: "this host and port are not in the client's settings".to_owned(),
            })
        }
    }

    fn judge_address(&self, _host: &str, _port: u16, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn judge_redirect(&self, _from: &Url, _to: &Url) -> Result<(), Refusal> {
        Err(Refusal { code: "redirect_refused", reason: "no redirect is followed".to_owned() })
    }

    fn limits(&self) -> RequestLimits {
        self.limits.clone()
    }
}
