//! The addresses that a request may dial: all of the host's, each of them judged, or those of the operator's proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{
    FetchError, Judge, RequestLimits,
    proxy::Proxy,
    resolve::Resolver,
    target::{Place, Target},
};

/// Addresses that may be dialled. Only this file makes one, and only these addresses are dialled.
#[derive(Debug)]
pub(crate) struct JudgedAddresses(Vec<SocketAddr>);

impl JudgedAddresses {
    /// Resolves the target's host once, and judges every address. One refusal refuses all: a name with both
    /// public and private addresses is an attack (DNS rebinding) or a mistake.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn of(
        target: &Target,
        resolver: &Resolver,
        judge: &dyn Judge,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let found = addresses((&target.host, &target.place), resolver, limits).await?;
        for address in &found {
            judge.address(&target.host, target.port, *address)?;
        }
        Ok(Self::in_turn(found, target.port))
    }

    /// The addresses of the proxy. No judge is asked about them, since the operator has named the proxy.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn of_proxy(
        proxy: &Proxy,
        resolver: &Resolver,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let found = addresses((&proxy.host, &proxy.place), resolver, limits).await?;
        Ok(Self::in_turn(found, proxy.port))
    }

    /// IPv6 and IPv4 in turn, IPv6 first, each in the resolver's order (RFC 8305, section 4): a family without a way
    /// out costs one attempt, not one for each of its addresses.
    fn in_turn(found: Vec<IpAddr>, port: u16) -> Self {
        let (first, second): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
        let (mut first, mut second) = (first.into_iter(), second.into_iter());
        let mut ordered = Vec::with_capacity(first.len() + second.len());
        loop {
            let pair = [first.next(), second.next()];
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

/// Judges a target that a proxy resolves: as far as its addresses are known without a name server. `localhost` and the
/// names below it are the loopback device's everywhere (RFC 6761, section 6.3), here that of the proxy's machine.
pub(crate) fn judge_unresolved(target: &Target, judge: &dyn Judge) -> Result<(), FetchError> {
    let known = match &target.place {
        Place::Address(address) => vec![*address],
        Place::Name(name) if is_local(name) => {
            vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        }
        Place::Name(_) => Vec::new(),
    };
    for address in known {
        judge.address(&target.host, target.port, address)?;
    }
    Ok(())
}

/// Names of URLs are in lower case.
fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

async fn addresses(
    (host, place): (&str, &Place),
    resolver: &Resolver,
    limits: &RequestLimits,
) -> Result<Vec<IpAddr>, FetchError> {
    let found = match place {
        Place::Address(address) => vec![*address],
        Place::Name(name) => resolver.addresses(host, name).await?,
    };
    if found.len() > limits.addresses {
        return Err(FetchError::TooManyAddresses { host: host.to_owned(), limit: limits.addresses });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_ipv6_comes_first() {
        let found = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3"];
        let found = found.iter().map(|text| text.parse().unwrap()).collect();
        let ordered: Vec<String> =
            JudgedAddresses::in_turn(found, 443).iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(ordered, ["2001:db8::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(JudgedAddresses::in_turn(Vec::new(), 443).iter().count(), 0);
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
