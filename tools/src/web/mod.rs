//! `web_fetch`: an operation of two steps. The first requests the address and has no mount; the second turns the
//! bytes into text in a guest that has neither mounts nor network.
//!
//! `tool` is the tool that a model sees, `fetch` makes the two calls, each through the whole pipeline. `gate` starts the
//! host's HTTP client when it is first needed, and `judge` answers its questions by the grant of the call.

mod fetch;
mod gate;
mod judge;
mod tool;

pub(crate) use fetch::{FetchTerms, FetchedResponse};
pub(crate) use gate::{EgressGate, GateTerms};
pub(crate) use judge::GrantJudge;
pub(crate) use tool::{RequestStep, URL, WebFetch, request_step, tool};
