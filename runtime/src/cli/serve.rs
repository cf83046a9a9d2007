//! The options of `portcullis serve`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::Modules;
use crate::client_config::ConfigClient;

/// Serve the tools to a client of the Model Context Protocol.
///
/// Without --http one client is served on standard input and output, which is how most clients start a server;
/// `--print-config` prints what they need for that. Everything that is said about the serving goes to standard error.
///
/// A call goes the way of every call: it is checked, decided, confined and recorded, under the client's name. A call
/// that needs an approval is asked about through the client, if the client takes questions (elicitation); else it is
/// denied.
///
/// A hangup (SIGHUP) reads policy and modules anew, and clients are told if that changes the tools. The server ends
/// with its client, or with Ctrl-C; pressed twice it does not wait for what its calls come to.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis serve --print-config claude-code
  portcullis serve --workspace ~/work
  portcullis serve --http 127.0.0.1:8808")]
pub(crate) struct ServeOptions {
    /// Serve any number of clients by streamable HTTP at this address, path /mcp, such as `127.0.0.1:8808`.
    ///
    /// Each request needs the token, as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "ADDR", conflicts_with = "print_config")]
    pub(crate) http: Option<SocketAddr>,

    /// The file with the token of HTTP clients, readable by its owner alone.
    ///
    /// Without it a token is made once and kept in the state folder; its path is printed.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,

    /// Allow an address that other machines can reach. There is no encryption: put a proxy with TLS in front.
    #[arg(long, requires = "http")]
    pub(crate) allow_remote: bool,

    /// A name by which HTTP clients may call this server, beside localhost; may be given several times.
    #[arg(long = "allow-host", value_name = "HOST", requires = "http")]
    pub(crate) allow_hosts: Vec<String>,

    /// An origin of web pages that may call this server, such as `http://localhost:6274`; may be given several times.
    /// Without it none may.
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    pub(crate) allow_origins: Vec<String>,

    /// Approve of every call in advance: nobody is asked.
    ///
    /// It answers the questions that the policy asks; it opens nothing that the policy denies.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Print the configuration by which a client starts this server for this workspace, and serve nobody.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) print_config: Option<ConfigClient>,

    #[command(flatten)]
    pub(crate) modules: Modules,
}
