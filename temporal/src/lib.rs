//! Runs that Temporal drives. Each model call and each tool call is an activity, and the state stays in the
//! store.
//!
//! A workflow `AgentRun` chooses the steps of a run. Workers take them through the same functions as the
//! single-process driver ([`portcullis_runs::Stepper`](https://docs.rs/portcullis-runs)). Temporal stores
//! ids, names of steps and tools, and the messages that people send it. The conversation, arguments and
//! results are in the store, which all workers open.
//!
//! This crate is empty without the feature `sdk`, so that only builds with a worker compile Temporal's SDK.
//!
//! | file | what it is |
//! |---|---|
//! | `workflow_payloads.rs` | the workflow's input, its signals, its query and its outcome |
//! | `workflow.rs` | the workflow: which step comes next |
//! | `activity_payloads.rs` | what the workflow and its activities tell each other |
//! | `activities.rs` | the activities: each takes one step |
//! | `failures.rs` | which failures are tried again, and when |
//! | `heartbeat.rs` | heartbeats of an activity, and its cancellation |
//! | `placement.rs` | which task queue runs a tool |
//! | `server.rs` | the connection to the server |
//! | `worker.rs` | a process that takes steps |
//! | `search_attributes.rs` | the search attributes of a run |
//! | `error.rs` | why a worker cannot work |
#![forbid(unsafe_code)]

#[cfg(feature = "sdk")]
mod activities;
#[cfg(feature = "sdk")]
mod activity_payloads;
#[cfg(feature = "sdk")]
mod error;
#[cfg(feature = "sdk")]
mod failures;
#[cfg(feature = "sdk")]
mod heartbeat;
#[cfg(feature = "sdk")]
mod placement;
#[cfg(feature = "sdk")]
mod search_attributes;
#[cfg(feature = "sdk")]
mod server;
#[cfg(feature = "sdk")]
mod worker;
#[cfg(feature = "sdk")]
#[expect(
    missing_docs,
    missing_debug_implementations,
    unnameable_types,
    reason = "the SDK's macros generate such items for the workflow, its signals and its query"
)]
mod workflow;
#[cfg(feature = "sdk")]
mod workflow_payloads;

#[cfg(feature = "sdk")]
pub use self::{
    error::WorkerError,
    placement::{InvalidPlacement, Placement},
    server::{Address, InvalidAddress, connect},
    worker::{RunWorker, WorkerSettings},
    workflow::AgentRun,
    workflow_payloads::{MAX_TEXT_BYTES, RunOutcome, RunStatusReport},
};
