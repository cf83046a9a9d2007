//! Renders networks as keys of a profile, as the section `[egress]`, and for the summary.

use std::fmt::{self, Display, Write};

use crate::render::{quote, quoted_texts};

use super::{EgressSettings, HttpMethod, ProfileNetwork};

/// Writes `hosts` and `methods` of a profile.
pub(crate) fn write_network(out: &mut String, network: &ProfileNetwork) -> fmt::Result {
    writeln!(out, "hosts = [{}]", quoted_texts(&texts(&network.hosts)))?;
    writeln!(out, "methods = [{}]", quoted_texts(&texts(&network.methods)))
}

/// Writes `[egress]`.
pub(crate) fn write_egress(out: &mut String, egress: &EgressSettings) -> fmt::Result {
    let EgressSettings { allow_private, ca, proxy, max_response, max_redirects, robots } = egress;
    writeln!(out, "\n[egress]")?;
    writeln!(out, "allow_private = [{}]", quoted_texts(&texts(allow_private)))?;
    if let Some(ca) = ca {
        writeln!(out, "ca = {}", quote(ca))?;
    }
    if let Some(proxy) = proxy {
        writeln!(out, "proxy = {}", quote(&proxy.to_string()))?;
    }
    writeln!(out, "max_response = \"{max_response}\"\nmax_redirects = {max_redirects}")?;
    writeln!(out, "robots = \"{robots}\"")
}

/// Writes the proxy of all connections, if there is one.
pub(crate) fn write_egress_summary(out: &mut String, egress: &EgressSettings) -> fmt::Result {
    match &egress.proxy {
        Some(proxy) => writeln!(out, "\nproxy of all connections, which resolves their names\n  {proxy}"),
        None => Ok(()),
    }
}

/// Formats the network of a profile in one line. Empty for a profile without a network.
pub(crate) fn network_summary(network: Option<&ProfileNetwork>) -> String {
    let Some(network) = network else { return String::new() };
    let methods: Vec<&str> = network.methods.iter().copied().map(HttpMethod::as_str).collect();
    format!(", {} by {}", texts(&network.hosts).join(", "), methods.join(", "))
}

fn texts<T: Display>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}
