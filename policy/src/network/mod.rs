//! The network of a policy: where a profile's requests may go, and by which rules each is judged.
//!
//! - `authority`: scheme, host and port in one canonical form.
//! - `rule`: one element of `hosts`; `method`: one of `methods`.
//! - `address`: the addresses and names that are never dialled by default.
//! - `settings`: the section `[egress]`; `profile`: the network of one profile, and of a grant; `tunnel`: that of
//!   a shell.
//! - `proxy`: the way of every connection, where the operator names one.
//! - `resolve`, `reduce`, `render`: make it from a file, take away from it, write it as text.
//! - `url_text`: the rules of a URL's text; `judge`: the decisions on requests, redirects and addresses.
//!
//! This module has only values: it resolves no name and opens no connection.

mod address;
mod authority;
mod judge;
mod method;
mod profile;
mod proxy;
mod reduce;
mod render;
mod resolve;
mod rule;
mod settings;
mod tunnel;
mod url_text;

pub use authority::{Authority, Host, HostName, InvalidHost, Scheme};
pub use judge::{JudgedAddress, JudgedRequest};
pub use method::HttpMethod;
pub use profile::NetworkGrant;
pub use proxy::{InvalidProxy, ProxyAddress};
pub use rule::{HostRule, InvalidHostRule};
pub use settings::{EgressSettings, InvalidPrivateEndpoint, PrivateEndpoint, ResponseBytes};
pub use tunnel::{InvalidTunnelRule, ShellNetwork, TunnelRule};
pub use url_text::{InvalidUrl, MAX_URL_BYTES};

pub(crate) use judge::check_url;
pub(crate) use profile::ProfileNetwork;
pub(crate) use reduce::{not_within, reduce_egress, reduce_network};
pub(crate) use render::{network_summary, write_egress, write_egress_summary, write_network};
pub(crate) use resolve::{resolve_egress, resolve_networks};
pub(crate) use settings::{MAX_REDIRECTS, MAX_RESPONSE};
pub(crate) use url_text::{authority_of, parse_url};
