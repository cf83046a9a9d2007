//! The options of `portcullis serve`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{ModuleOptions, StoreOptions};
use crate::client_config::ConfigClient;

/// Serve the tools to a client of the Model Context Protocol.
///
/// Without --http one client is served on standard input and output. Most clients start a server in this way;
/// `--print-config` prints what they need for that. The server's own messages go to standard error.
///
/// Each call is checked, decided, confined and recorded, under the client's name. If a call needs an approval, the
/// client asks its user (elicitation). If the client does not support that, the call is denied.
///
/// A hangup (SIGHUP) reads policy and modules again. Clients are notified if that changes the tools. The server ends
/// with its client or on Ctrl-C. A second Ctrl-C ends it immediately, without waiting for running calls.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis serve --print-config claude-code
  portcullis serve --workspace ~/work
  portcullis serve --http 127.0.0.1:8808")]
pub(crate) struct ServeOptions {
    /// Serve any number of clients by streamable HTTP at this address, such as `127.0.0.1:8808`. The path is /mcp.
    ///
    /// Each request needs the token, as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "ADDR", conflicts_with = "print_config")]
    pub(crate) http: Option<SocketAddr>,

    /// The file with the token of HTTP clients, readable only by its owner.
    ///
    /// Default: a token that is made once and kept in the state folder. Its path is printed.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,

    /// Allow an address that other machines can reach. There is no encryption: put a proxy with TLS in front.
    #[arg(long, requires = "http")]
    pub(crate) allow_remote: bool,

    /// A further host name that HTTP clients may use for this server, beside localhost. May be given several times.
    #[arg(long = "allow-host", value_name = "HOST", requires = "http")]
    pub(crate) allow_hosts: Vec<String>,

    /// An origin of web pages that may call this server, such as `http://localhost:6274`. May be given several times;
    /// by default no web page may.
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origins: Vec<String>,

    /// Approve all calls in advance, without asking.
    ///
    /// This answers the policy's questions. Calls that the policy denies stay denied.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Print the configuration by which a client starts this server for this workspace, and exit.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) print_config: Option<ConfigClient>,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}
