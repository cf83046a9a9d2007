//! The way to a target: to one of its judged addresses, or through the operator's proxy.

use std::net::SocketAddr;

use tokio::{net::TcpStream, time::timeout};

use crate::{
    FetchError, Judge, Limits,
    address::{JudgedAddresses, judge_unresolved},
    attempts::dial,
    exchange::Form,
    fetch::Client,
    proxy::{self, Proxy},
    target::{Scheme, Target},
};

/// A judged way. Nothing is connected yet.
#[derive(Debug)]
pub(crate) struct Route<'c> {
    /// The target's addresses, or the proxy's.
    addresses: JudgedAddresses,
    proxy: Option<&'c Proxy>,
}

impl<'c> Route<'c> {
    /// Has everything judged that is known of the target's addresses. Behind a proxy no name of a target is resolved
    /// here: where names lead is the proxy's knowledge, and its machine may be the only one with name servers.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait for the name servers.
    pub(crate) async fn of(
        client: &'c Client,
        target: &Target,
        judge: &dyn Judge,
        limits: &Limits,
    ) -> Result<Self, FetchError> {
        let proxy = client.proxy.as_ref();
        let addresses = match proxy {
            None => JudgedAddresses::of(target, &client.resolver, judge, limits).await?,
            Some(proxy) => {
                judge_unresolved(target, judge)?;
                JudgedAddresses::of_proxy(proxy, &client.resolver, limits).await?
            }
        };
        Ok(Self { addresses, proxy })
    }

    /// Connects for a request. A proxy is asked for a tunnel where the target speaks TLS, which so stays between it and
    /// us.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        limits: &Limits,
    ) -> Result<(SocketAddr, TcpStream), FetchError> {
        match target.scheme {
            Scheme::Http => self.dial(target, limits).await,
            Scheme::Https => self.tunnel(target, limits).await,
        }
    }

    /// Connects so that every byte reaches the target.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn tunnel(
        &self,
        target: &Target,
        limits: &Limits,
    ) -> Result<(SocketAddr, TcpStream), FetchError> {
        let (address, mut tcp) = self.dial(target, limits).await?;
        if self.proxy.is_some() {
            let opened = timeout(limits.connect, proxy::open_tunnel(&mut tcp, target)).await;
            opened.unwrap_or_else(|_elapsed| {
                Err(FetchError::ConnectTimeout { host: target.host.clone(), limit: limits.connect })
            })?;
        }
        Ok((address, tcp))
    }

    async fn dial(&self, target: &Target, limits: &Limits) -> Result<(SocketAddr, TcpStream), FetchError> {
        match self.proxy {
            None => dial(&target.host, target.port, &self.addresses, limits).await,
            Some(proxy) => dial(&proxy.host, proxy.port, &self.addresses, limits).await,
        }
    }
}

/// How a request to the target is written.
pub(crate) fn form(client: &Client, target: &Target) -> Form {
    match (&client.proxy, target.scheme) {
        (Some(_), Scheme::Http) => Form::Absolute,
        _ => Form::Origin,
    }
}

/// Has the address of a kept connection judged for the next request.
pub(crate) fn judge_kept(
    client: &Client,
    target: &Target,
    judge: &dyn Judge,
    address: SocketAddr,
) -> Result<(), FetchError> {
    match &client.proxy {
        None => Ok(judge.address(&target.host, target.port, address.ip())?),
        Some(_) => judge_unresolved(target, judge),
    }
}
