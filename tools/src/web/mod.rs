//! The network, through one gate, and `web_fetch`: an operation of two steps. The first requests the address and has no mount; the second turns the
//! bytes into text in a guest that has neither mounts nor network.
//!
//! `tool` is the tool that a model sees, `fetch` makes the two calls, each through the whole pipeline. `gate` starts the
//! host's HTTP client when it is first needed, `judge` answers its questions by the grant of the call, and `request` makes
//! one request through both, with the secrets that `secrets` reads. `declared_hosts` are those of a module's tool, whose
//! requests take the same way.

mod declared_hosts;
mod fetch;
mod gate;
mod judge;
mod request;
mod secrets;
mod tool;

pub(crate) use declared_hosts::DeclaredHosts;
pub(crate) use fetch::{FetchTerms, FetchedResponse};
pub(crate) use gate::{EgressGate, GateTerms};
pub(crate) use judge::GrantJudge;
pub(crate) use request::{RequestFailure, USER_AGENT, request, secrets_for};
pub(crate) use secrets::SecretPlace;
pub use secrets::{SecretError, TakenVariables};
pub(crate) use tool::{RequestStep, URL, WebFetch, request_step, tool};
