//! The route to a target: to one of its judged addresses, or through the operator's proxy.

use std::net::SocketAddr;

use tokio::{net::TcpStream, time::timeout};

use crate::{
    FetchError, Judge, RequestLimits,
    address::{JudgedAddresses, judge_unresolved},
    attempts::dial,
    exchange::RequestTargetForm,
    fetch::FetchClient,
    proxy::{self, Proxy},
    target::{Scheme, Target},
};

/// A judged route, before anything is connected.
#[derive(Debug)]
pub(crate) struct Route<'c> {
    /// The target's addresses, or the proxy's.
    addresses: JudgedAddresses,
    proxy: Option<&'c Proxy>,
}

impl<'c> Route<'c> {
    /// Asks the judge about the target's known addresses. Behind a proxy, the target's name is not resolved
    /// here: the proxy resolves it, and only the proxy's machine may have name servers.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn judge(
        client: &'c FetchClient,
        target: &Target,
        judge: &dyn Judge,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let proxy = client.proxy.as_ref();
        let addresses = match proxy {
            None => JudgedAddresses::resolve(target, &client.resolver, judge, limits).await?,
            Some(proxy) => {
                judge_unresolved(target, judge)?;
                JudgedAddresses::resolve_proxy(proxy, &client.resolver, limits).await?
            }
        };
        Ok(Self { addresses, proxy })
    }

    /// Connects for a request. For `https` behind a proxy, opens a tunnel, so that TLS runs between this
    /// client and the target.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        limits: &RequestLimits,
    ) -> Result<(SocketAddr, TcpStream), FetchError> {
        match target.scheme {
            Scheme::Http => self.dial(target, limits).await,
            Scheme::Https => self.tunnel(target, limits).await,
        }
    }

    /// Connects so that every byte reaches the target: behind a proxy, through a tunnel.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn tunnel(
        &self,
        target: &Target,
        limits: &RequestLimits,
    ) -> Result<(SocketAddr, TcpStream), FetchError> {
        let (address, mut tcp) = self.dial(target, limits).await?;
        if self.proxy.is_some() {
            let open_result = timeout(limits.connect_timeout, proxy::open_tunnel(&mut tcp, target)).await;
            open_result.unwrap_or_else(|_elapsed| {
                Err(FetchError::ConnectTimeout { host: target.host.clone(), limit: limits.connect_timeout })
            })?;
        }
        Ok((address, tcp))
    }

    async fn dial(
        &self,
        target: &Target,
        limits: &RequestLimits,
    ) -> Result<(SocketAddr, TcpStream), FetchError> {
        match self.proxy {
            None => dial(&target.host, target.port, &self.addresses, limits).await,
            Some(proxy) => dial(&proxy.host, proxy.port, &self.addresses, limits).await,
        }
    }
}

/// Returns the form of the request target for requests to this target.
pub(crate) fn form(client: &FetchClient, target: &Target) -> RequestTargetForm {
    match (&client.proxy, target.scheme) {
        (Some(_), Scheme::Http) => RequestTargetForm::Absolute,
        _ => RequestTargetForm::Origin,
    }
}

/// Asks the judge about the address of a pooled connection. Behind a proxy, asks about the target's known
/// addresses instead.
pub(crate) fn judge_pooled(
    client: &FetchClient,
    target: &Target,
    judge: &dyn Judge,
    address: SocketAddr,
) -> Result<(), FetchError> {
    match &client.proxy {
        None => Ok(judge.judge_address(&target.host, target.port, address.ip())?),
        Some(_) => judge_unresolved(target, judge),
    }
}
