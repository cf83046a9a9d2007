//! The addresses that a request may dial: all of the host's, each of them judged.

use std::net::SocketAddr;

use crate::{
    FetchError, Judge, RequestLimits,
    resolve::Resolver,
    target::{Place, Target},
};

/// Addresses that the judge let through. Only this file makes one, and only these addresses are dialled.
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
        let found = match &target.place {
            Place::Address(address) => vec![*address],
            Place::Name(name) => resolver
                .addresses(name)
                .await
                .map_err(|source| FetchError::NameUnresolved { host: target.host.clone(), source })?,
        };
        if found.len() > limits.addresses {
            return Err(FetchError::TooManyAddresses { host: target.host.clone(), limit: limits.addresses });
        }
        for address in &found {
            judge.address(&target.host, target.port, *address)?;
        }
        Ok(Self(found.into_iter().map(|address| SocketAddr::new(address, target.port)).collect()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().copied()
    }
}
