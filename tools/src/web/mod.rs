//! The network, through one gate, and the operations `web_fetch` and `web_search` of two steps. The first makes a request
//! and has no mount; the second turns the bytes into text in a guest that has neither mounts nor network.
//!
//! - `tool`, `search_tool`: the tools that a model sees; `request_step`: their first step.
//! - `fetch`, `search`: make the calls of the two steps, each through the whole pipeline, by `steps`.
//! - `query`: the wishes of a search; `provider`: the request of a search in each provider's words.
//! - `gate` starts the host's HTTP client when it is first needed, `judge` answers its questions by the grant of the call,
//!   and `request` makes one request through both, with the secrets that `secrets` reads.
//! - `declared_hosts`: the hosts of a module's tool, whose requests take the same way.

mod declared_hosts;
mod fetch;
mod gate;
mod judge;
mod provider;
mod query;
mod request;
mod request_step;
mod search;
mod search_tool;
mod secrets;
mod steps;
mod tool;

pub(crate) use declared_hosts::DeclaredHosts;
pub(crate) use gate::{EgressGate, GateTerms};
pub(crate) use judge::GrantJudge;
pub(crate) use request::{RequestFailure, USER_AGENT, failure, request, secrets_for, stream};
pub(crate) use request_step::{BODY, Redirects, RequestStep, URL, request_step};
pub(crate) use search_tool::{WebSearch, search_form, search_web, web_search};
pub(crate) use secrets::SecretPlace;
pub use secrets::{SecretError, TakenVariables};
pub(crate) use steps::{FetchedResponse, WebTerms};
pub(crate) use tool::{PAGE, WebFetch, tool};
