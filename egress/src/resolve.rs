//! Name resolution by the hosts file, then by the machine's name servers over TCP.
//!
//! The configuration is read before the thread is confined. Names are resolved as written, without the
//! machine's search domains. Answers are not cached, because each request judges the addresses that it dials.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
    },
    net::runtime::TokioRuntimeProvider,
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::parse_resolv_conf,
};

use crate::{EgressError, FetchError};

/// The configuration of name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// The name servers, asked over TCP (RFC 7766) in this order. If empty, only the names of [`Self::hosts`]
    /// can be resolved.
    pub servers: Vec<SocketAddr>,
    /// The text of a hosts file (hosts(5)). Its names are resolved without a server.
    pub hosts: String,
    /// The timeout of a server's answer. Default: 5 s.
    pub timeout: Duration,
}

impl DnsConfig {
    /// Reads `/etc/resolv.conf` (resolv.conf(5)) and `/etc/hosts`, which may be absent.
    ///
    /// # Errors
    /// [`EgressError::NameServers`] if `/etc/resolv.conf` cannot be read or names no server. [`EgressError::Hosts`] if
    /// `/etc/hosts` exists and cannot be read.
    pub fn read_system() -> Result<Self, EgressError> {
        Self::read(Path::new(SERVERS_FILE), Path::new(HOSTS_FILE))
    }

    fn read(servers: &Path, hosts: &Path) -> Result<Self, EgressError> {
        let unread = |source| EgressError::NameServers { source };
        let text = fs::read(servers).map_err(|source| unread(source.into()))?;
        let (config, options) = parse_resolv_conf(text).map_err(unread)?;
        let servers =
            config.name_servers().iter().map(|server| SocketAddr::new(server.ip, DNS_PORT)).collect();
        Ok(Self { servers, hosts: read_hosts(hosts)?, timeout: options.timeout })
    }

    /// Reads the configuration like [`Self::read_system`], but without name servers if `/etc/resolv.conf` is
    /// missing, cannot be read, or names none. Also returns that reason. Addresses and the names of
    /// `/etc/hosts` can then be reached, and other names fail ([`crate::FetchError::NoNameServers`]).
    ///
    /// # Errors
    /// [`EgressError::Hosts`] if `/etc/hosts` exists and cannot be read.
    pub fn read_available() -> Result<(Self, Option<EgressError>), EgressError> {
        Self::read_available_in(Path::new(SERVERS_FILE), Path::new(HOSTS_FILE))
    }

    fn read_available_in(servers: &Path, hosts: &Path) -> Result<(Self, Option<EgressError>), EgressError> {
        match Self::read(servers, hosts) {
            Ok(config) => Ok((config, None)),
            Err(reason @ EgressError::NameServers { .. }) => {
                Ok((Self { hosts: read_hosts(hosts)?, ..Self::with_servers(Vec::new()) }, Some(reason)))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads `/etc/hosts`, which may be absent, without name servers: for addresses and the names of this machine.
    ///
    /// # Errors
    /// [`EgressError::Hosts`] if `/etc/hosts` exists and cannot be read.
    pub fn read_hosts() -> Result<Self, EgressError> {
        Ok(Self { hosts: read_hosts(Path::new(HOSTS_FILE))?, ..Self::with_servers(Vec::new()) })
    }

    /// Returns these name servers with a time limit of 5 s, without a hosts file.
    #[must_use]
    pub fn with_servers(servers: Vec<SocketAddr>) -> Self {
        Self { servers, hosts: String::new(), timeout: Duration::from_secs(5) }
    }
}

fn read_hosts(path: &Path) -> Result<String, EgressError> {
    match fs::read(path) {
        // Bytes that are not UTF-8 are expected only in comments.
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(EgressError::Hosts { source }),
    }
}

/// The resolver of one thread.
pub(crate) struct Resolver {
    hosts: Hosts,
    servers: TokioResolver,
    has_servers: bool,
}

impl Resolver {
    pub(crate) fn build(config: &DnsConfig) -> Result<Self, EgressError> {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(config.hosts.as_bytes()).map_err(|source| EgressError::Hosts { source })?;
        let servers = config.servers.iter().map(|server| {
            let mut connection = ConnectionConfig::tcp();
            connection.port = server.port();
            NameServerConfig::new(server.ip(), true, vec![connection])
        });
        let resolver_config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let mut options = ResolverOpts::default();
        options.timeout = config.timeout;
        options.attempts = 1;
        // EDNS negotiates the size of datagrams, which are not used here.
        options.edns0 = false;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Never;
        // Each request judges the addresses that it dials, so no answer is reused.
        options.cache_size = 0;
        let servers = TokioResolver::builder_with_config(resolver_config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
            .map_err(|source| EgressError::Resolver { source })?;
        Ok(Self { hosts, servers, has_servers: !config.servers.is_empty() })
    }

    /// Resolves a name once, to all its addresses. `host` is the name as errors show it.
    ///
    /// # Cancellation
    /// Dropping the future ends the wait. A late answer has no effect.
    pub(crate) async fn addresses(&self, host: &str, name: &str) -> Result<Vec<IpAddr>, FetchError> {
        let unresolved = |source| FetchError::NameUnresolved { host: host.to_owned(), source };
        // The trailing dot makes the name absolute, so that no search domain is tried.
        let name = Name::from_ascii(format!("{name}.")).map_err(|source| unresolved(source.into()))?;
        let listed: Vec<IpAddr> = [RecordType::A, RecordType::AAAA]
            .into_iter()
            .filter_map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind)))
            .flat_map(|lookup| {
                lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .collect();
        if !listed.is_empty() {
            return Ok(listed);
        }
        if !self.has_servers {
            return Err(FetchError::NoNameServers { host: host.to_owned() });
        }
        Ok(self.servers.lookup_ip(name).await.map_err(unresolved)?.iter().collect())
    }
}

const DNS_PORT: u16 = 53;
const SERVERS_FILE: &str = "/etc/resolv.conf";
const HOSTS_FILE: &str = "/etc/hosts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hosts_file_ask_no_server() {
        let config = DnsConfig {
            hosts: "# comment\n192.0.2.1 one.test alias.test\n2001:db8::1 one.test\n".to_owned(),
            ..DnsConfig::with_servers(Vec::new())
        };
        let resolver = Resolver::build(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let addresses = |name| runtime.block_on(resolver.addresses(name, name));
        let both_addresses: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(addresses("one.test").unwrap(), both_addresses);
        assert_eq!(addresses("ALIAS.test").unwrap(), both_addresses[..1]);
        // The configuration names no server, so none is asked.
        assert_eq!(addresses("other.test").unwrap_err().code(), "no_name_servers");
    }

    #[test]
    fn a_machine_without_name_servers_has_its_hosts_file() {
        let folder = tempfile::tempdir().unwrap();
        let (servers, hosts) = (folder.path().join("resolv.conf"), folder.path().join("hosts"));
        let read_config = || DnsConfig::read_available_in(&servers, &hosts).unwrap();
        // Neither file exists.
        let (config, reason) = read_config();
        assert_eq!(config, DnsConfig::with_servers(Vec::new()));
        assert!(matches!(reason, Some(EgressError::NameServers { .. })));
        fs::write(&hosts, "192.0.2.1 one.test").unwrap();
        for text in ["", "search test\noptions timeout:3\n", "# nameserver 192.0.2.53\n"] {
            fs::write(&servers, text).unwrap();
            let (config, reason) = read_config();
            assert!(config.servers.is_empty() && config.hosts.contains("one.test"), "{text:?}");
            assert!(matches!(reason, Some(EgressError::NameServers { .. })), "{text:?}");
        }
        fs::write(&servers, "nameserver 192.0.2.53\n").unwrap();
        let (config, reason) = read_config();
        assert_eq!(config.servers, ["192.0.2.53:53".parse().unwrap()]);
        assert!(reason.is_none());
    }
}
