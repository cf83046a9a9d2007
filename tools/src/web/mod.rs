//! The operations `web_fetch` and `web_search`, and requests through the host's HTTP client.
//!
//! One step of an operation makes a request and has no mount. The others turn the bytes into text, in guests that
//! have neither mounts nor network.
//!
//! - `tool`, `search_tool`: the tools that a model sees; `request_step`: their first step.
//! - `fetch`, `search`: make the calls of the two steps, each through the whole pipeline, by `steps`.
//! - `robots`: asks each origin's `robots.txt` before a page is requested.
//! - `query`: the wishes of a search; `provider`: the request of a search in each provider's words.
//! - `http_client` starts the host's HTTP client when it is first needed, `judge` answers its questions by the grant of the call,
//!   and `request` makes one request through both, with the secrets that `secrets` reads; `known_secrets` remembers them.
//! - `declared_hosts`: the hosts of a module's tool, whose requests take the same way.

mod declared_hosts;
mod fetch;
mod http_client;
mod judge;
mod known_secrets;
mod provider;
mod query;
mod request;
mod request_step;
mod robots;
mod search;
mod search_tool;
mod secrets;
mod steps;
mod tool;

pub(crate) use declared_hosts::DeclaredHosts;
pub(crate) use http_client::{HttpClientConfig, HttpClientHandle};
pub(crate) use judge::{GrantJudge, Redirect};
pub(crate) use request::{RequestFailure, USER_AGENT, request, secrets_for};
pub(crate) use request_step::{BODY, Redirects, RequestStep, URL, request_step};
pub(crate) use robots::{RobotsFiles, RobotsRefusal};
pub(crate) use search_tool::{WebSearch, search_form, search_web, web_search};
pub(crate) use secrets::SecretPlace;
pub use secrets::{SecretError, TakenVariables};
pub(crate) use steps::{FetchedHop, Hop, HopTerms, RedirectRefused};
pub(crate) use tool::{PAGE, WebFetch, tool};
