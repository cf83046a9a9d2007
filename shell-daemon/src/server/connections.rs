//! The connections of a session since its last report. Equal connections are counted together, so that many of them
//! need no more memory than one, and cannot displace others from the report.

use std::{collections::BTreeMap, net::SocketAddr};

use parking_lot::{Mutex, MutexGuard};
use portcullis_egress::{TunnelEnd, TunnelReport, TunnelWatch};
use portcullis_shell_protocol::Connection;

/// The connections of one session.
#[derive(Debug, Default)]
pub(super) struct ConnectionLog(Mutex<ClientConnections>);

/// A report: the connections, and the number of connections that the report omits.
#[derive(Debug, Default)]
pub(super) struct ConnectionReport {
    pub(super) connections: Vec<Connection>,
    pub(super) omitted_connections: u64,
}

#[derive(Debug, Default)]
struct ClientConnections {
    /// Connections not yet counted as ended. Some may have ended after the last call of `count_ended`.
    open_tunnels: Vec<TunnelWatch>,
    connection_totals: BTreeMap<ConnectionKey, ConnectionTotals>,
    refused: BTreeMap<ConnectionKey, ConnectionTotals>,
    omitted_connections: u64,
}

/// The facts that must be equal for connections to be counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionKey {
    target: Option<(String, u16)>,
    address: Option<SocketAddr>,
    end: &'static str,
}

#[derive(Debug, Clone, Copy, Default)]
struct ConnectionTotals {
    count: u64,
    sent: u64,
    received: u64,
}

impl ConnectionLog {
    pub(super) fn add(&self, watch: &TunnelWatch) {
        let mut log = self.lock();
        log.count_ended();
        log.open_tunnels.push(watch.clone());
    }

    /// The connections since the last report. Open connections are included, and appear again in the next report.
    pub(super) fn report(&self) -> ConnectionReport {
        let mut log = self.lock();
        log.count_ended();
        let mut report = ClientConnections {
            open_tunnels: Vec::new(),
            connection_totals: std::mem::take(&mut log.connection_totals),
            refused: std::mem::take(&mut log.refused),
            omitted_connections: std::mem::take(&mut log.omitted_connections),
        };
        for tunnel in
            log.open_tunnels.iter().map(TunnelWatch::report).filter(|tunnel| tunnel.target.is_some())
        {
            report.count(tunnel, OPEN);
        }
        let all = report.connection_totals.into_iter().chain(report.refused);
        ConnectionReport {
            connections: all.map(|(key, totals)| message(key, totals)).collect(),
            omitted_connections: report.omitted_connections,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ClientConnections> {
        self.0.lock()
    }
}

impl ClientConnections {
    /// Counts the connections that have ended, and keeps the open ones.
    fn count_ended(&mut self) {
        for watch in std::mem::take(&mut self.open_tunnels) {
            let tunnel = watch.report();
            match tunnel.end.as_ref().map(TunnelEnd::as_str) {
                Some(end) => self.count(tunnel, end),
                None => self.open_tunnels.push(watch),
            }
        }
    }

    fn count(&mut self, tunnel: TunnelReport, end: &'static str) {
        let counted = match &tunnel.end {
            Some(TunnelEnd::Refused { .. }) => &mut self.refused,
            _ => &mut self.connection_totals,
        };
        let key = ConnectionKey { target: tunnel.target, address: tunnel.address, end };
        if counted.len() >= MAX_REPORTED_KINDS && !counted.contains_key(&key) {
            self.omitted_connections += 1;
            return;
        }
        let totals = counted.entry(key).or_default();
        totals.count += 1;
        totals.sent += tunnel.sent;
        totals.received += tunnel.received;
    }
}

fn message(key: ConnectionKey, totals: ConnectionTotals) -> Connection {
    let (host, port) = key.target.unwrap_or_default();
    Connection {
        host,
        port: port.into(),
        address: key.address.map(|address| address.ip().to_string()).unwrap_or_default(),
        count: totals.count,
        sent: totals.sent,
        received: totals.received,
        end: key.end.to_owned(),
    }
}

/// The end of a connection that is still open.
const OPEN: &str = "open";

/// The maximum number of kinds of opened connections in one report, and of refused ones.
const MAX_REPORTED_KINDS: usize = 32;
