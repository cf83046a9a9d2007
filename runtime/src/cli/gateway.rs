//! The options of `portcullis gateway`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{ModelChoice, ModuleOptions, StoreOptions};

/// The address where a gateway listens.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:8810";

/// Serve agents that live in spaces, and the page where people meet them.
///
/// An agent wakes when an entry arrives in its inbox: a message in one of its spaces, the result of a call, or a plan
/// that is due. It then works as `portcullis agent` does: each of its calls is checked, decided, confined and recorded.
/// Runs, spaces and messages are kept in the store, so the gateway can be stopped and started at any time.
///
/// The interface is described at /openapi.json. Each request needs a token. The operator's token is made once and kept
/// in the state folder; with it, the page or the interface makes users, agents, spaces and their tokens.
///
/// The model has the same settings as for `portcullis agent`. An agent's definition can name another model
/// of the same provider.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis gateway --demo
  portcullis gateway --model claude-sonnet-4-5 --provider anthropic
  portcullis gateway --http 127.0.0.1:8810 --store postgres:///portcullis")]
pub(crate) struct GatewayOptions {
    /// The address where the gateway listens.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADDRESS)]
    pub(crate) http: SocketAddr,

    /// Allow an address that other machines can reach. There is no encryption: put a proxy with TLS in front.
    #[arg(long)]
    pub(crate) allow_remote: bool,

    /// The file with the operator's token, readable only by its owner.
    ///
    /// Default: a token that is made once and kept in the state folder. Its path is printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A script with your own components for the page, which draw the calls of your tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) components: Option<PathBuf>,

    /// Serve a space with a scripted agent, in a folder that is removed at the end. It needs no model and no key.
    #[arg(long, conflicts_with_all = ["model", "provider", "base_url", "key_file", "store", "token_file"])]
    pub(crate) demo: bool,

    #[command(flatten)]
    pub(crate) model: ModelChoice,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}
