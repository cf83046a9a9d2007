//! The network of a policy: the hosts that a profile's requests may reach, and the rules that judge each request.
//!
//! - `authority`: scheme, host and port in one canonical form.
//! - `rule`: one element of `hosts`; `method`: one element of `methods`.
//! - `address`: the addresses and names that are never dialled by default.
//! - `settings`: the section `[egress]`.
//! - `profile`: the network of one profile, and of a grant; `tunnel`: the network of a shell.
//! - `proxy`: the proxy of every connection, if the operator names one.
//! - `resolve`, `reduce`, `render`: make a network from a file, reduce it, and write it as text.
//! - `url_text`: the rules for a URL's text; `judge`: the decisions on requests, redirects and addresses.
//!
//! This module contains only values: it resolves no name and opens no connection.

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

pub use authority::{Authority, HostName, InvalidHost, Scheme, UrlHost};
pub use judge::{JudgedAddress, JudgedRequest};
pub use method::HttpMethod;
pub use profile::NetworkGrant;
pub use proxy::{InvalidProxy, ProxyAddress};
pub use rule::{HostRule, InvalidHostRule};
pub use settings::{EgressSettings, InvalidPrivateEndpoint, PrivateEndpoint, ResponseBytes, Robots};
pub use tunnel::{InvalidTunnelRule, ShellNetwork, TunnelRule};
pub use url_text::{InvalidUrl, MAX_URL_BYTES, parse_request_url};

pub(crate) use judge::check_url;
pub(crate) use profile::ProfileNetwork;
pub(crate) use reduce::{reduce_egress, reduce_network, refuse_not_within};
pub(crate) use render::{network_summary, write_egress, write_egress_summary, write_network};
pub(crate) use resolve::{resolve_egress, resolve_networks};
pub(crate) use settings::{REDIRECT_BOUNDS, RESPONSE_BOUNDS};
pub(crate) use url_text::{authority_of, parse_url};
