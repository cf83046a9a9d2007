//! The addresses that a request may dial: those of the host, after the judge has allowed all of them, or
//! those of the operator's proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    FetchError, Judge, RequestLimits,
    proxy::Proxy,
    resolve::Resolver,
    target::{HostKind, Target},
};

/// Addresses that may be dialled. Only this module creates the value, and only its addresses are dialled.
#[derive(Debug)]
pub(crate) struct JudgedAddresses(Vec<SocketAddr>);

impl JudgedAddresses {
    /// Resolves the target's host once, and asks the judge about every address. One refusal refuses all: a name with
    /// both public and private addresses is an attack (DNS rebinding) or a mistake.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn resolve(
        target: &Target,
        resolver: &Resolver,
        judge: &dyn Judge,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let addresses_found = addresses(&target.host, &target.kind, resolver, limits).await?;
        for address in &addresses_found {
            judge.judge_address(&target.host, target.port, *address)?;
        }
        Ok(Self::interleaved(addresses_found, target.port))
    }

    /// Resolves the proxy's host. The judge is not asked about its addresses, since the operator has named the proxy.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn resolve_proxy(
        proxy: &Proxy,
        resolver: &Resolver,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let proxy_addresses = addresses(&proxy.host, &proxy.kind, resolver, limits).await?;
        Ok(Self::interleaved(proxy_addresses, proxy.port))
    }

    /// Returns IPv6 and IPv4 addresses in turn, IPv6 first, each in the resolver's order (RFC 8305, section
    /// 4). A family without a route then costs one attempt instead of one for each of its addresses.
    fn interleaved(addresses_found: Vec<IpAddr>, port: u16) -> Self {
        let (ipv6, ipv4): (Vec<_>, Vec<_>) = addresses_found.into_iter().partition(IpAddr::is_ipv6);
        let (mut ipv6_addresses, mut ipv4_addresses) = (ipv6.into_iter(), ipv4.into_iter());
        let mut ordered = Vec::with_capacity(ipv6_addresses.len() + ipv4_addresses.len());
        loop {
            let pair = [ipv6_addresses.next(), ipv4_addresses.next()];
            if pair == [None, None] {
                return Self(ordered);
            }
            ordered.extend(pair.into_iter().flatten().map(|address| SocketAddr::new(address, port)));
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = SocketAddr> {
        self.0.iter().copied()
    }
}

/// Asks the judge about the addresses of a target that a proxy resolves, as far as they are known without a
/// name server. `localhost` and the names below it always resolve to the loopback device (RFC 6761, section
/// 6.3), here that of the proxy's machine.
pub(crate) fn judge_unresolved(target: &Target, judge: &dyn Judge) -> Result<(), FetchError> {
    let known_addresses = match &target.kind {
        HostKind::Address(address) => vec![*address],
        HostKind::Name(name) if is_local(name) => {
            vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        HostKind::Name(_) => Vec::new(),
    };
    for address in known_addresses {
        judge.judge_address(&target.host, target.port, address)?;
    }
    Ok(())
}

/// Returns whether a name, in lower case as in URLs, leads to the loopback device.
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

async fn addresses(
    host: &str,
    kind: &HostKind,
    resolver: &Resolver,
    limits: &RequestLimits,
) -> Result<Vec<IpAddr>, FetchError> {
    let resolved = match kind {
        HostKind::Address(address) => vec![*address],
        HostKind::Name(name) => resolver.addresses(host, name).await?,
    };
    if resolved.len() > limits.addresses {
        return Err(FetchError::TooManyAddresses { host: host.to_owned(), limit: limits.addresses });
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_ipv6_comes_first() {
        let resolved = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3"];
        let resolved = resolved.iter().map(|text| text.parse().unwrap()).collect();
        let ordered: Vec<String> = JudgedAddresses::interleaved(resolved, 443)
            .iter()
            .map(|address| address.ip().to_string())
            .collect();
        assert_eq!(ordered, ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(JudgedAddresses::interleaved(Vec::new(), 443).iter().count(), 0);
    }

    #[test]
    fn names_of_the_loopback_device_are_known() {
        for name in ["localhost", "a.localhost", "a.b.localhost"] {
            assert!(is_local(name), "{name}");
        }
        for name in ["notlocalhost", "localhost.test", "localhost.localdomain.test"] {
            assert!(!is_local(name), "{name}");
        }
    }
}
