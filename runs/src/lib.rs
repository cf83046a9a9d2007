//! Runs that another process can resume: drives agent loops over a store.
//!
//! The state of a run is stored after each step, and each call is stored before its first effect and after
//! its end. If a process dies, another process repeats the interrupted step. A call that has finished keeps
//! its result. A call that may be repeated runs again. For any other call, the model is told that its effects
//! are unknown.
//!
//! | file | what it is |
//! |---|---|
//! | `run_driver.rs` | a process that drives runs, and how another process knows whether it lives |
//! | `runs.rs` | starts and resumes runs |
//! | `driven.rs` | a run that this process drives: the loop's store, and its lease |
//! | `executor.rs` | runs the calls of a driven run, each at most once |
//! | `external.rs` | keeps the calls of external tools in the store, and takes their late results |
//! | `client_calls.rs` | the same for clients that have no loop here |
//! | `store_changes.rs` | waits for changes of the store |
//! | `approver.rs` | asks through the store, so that another process can answer |
//! | `stepwise.rs` | takes single steps, for a caller that decides elsewhere which comes next |
//! | `step.rs` | the input and the outcome of a single step |
//! | `turn.rs`, `turn_results.rs` | a turn's calls, each run on its own: their results until the turn's step |
//! | `recorded_model.rs` | a row of the audit log for each request to a model |
//! | `state.rs` | the state of a run as it is stored |
//! | `id.rs` | the id of a run |
//! | `clock.rs` | the time of the store's rows |
//! | `pages.rs` | reads all pages of a listing |
//! | `export.rs` | all that the store has about a run, as one document |
//! | `error.rs` | why a run cannot be driven |
#![forbid(unsafe_code)]

mod approver;
mod client_calls;
mod clock;
mod driven;
mod error;
mod executor;
mod export;
mod external;
mod id;
mod pages;
mod recorded_model;
mod run_driver;
mod runs;
mod state;
mod step;
mod stepwise;
mod store_changes;
mod turn;
mod turn_results;

pub use approver::{APPROVAL_TTL, ApprovalRequestFn, StoredApprover, approval_id};
pub use client_calls::ClientCalls;
pub use clock::now;
pub use driven::{DrivenRun, LEASE_RENEWAL_INTERVAL, LEASE_TTL, LeaseWatch};
pub use error::RunError;
pub use executor::StoredExecutor;
pub use export::RunExport;
pub use external::{StoredExternalCalls, late_result_text, take_late_result};
pub use id::RunId;
pub use pages::all_rows;
pub use recorded_model::{ModelIdentity, RecordedModel};
pub use run_driver::RunDriver;
pub use runs::{Continuation, InheritedContext, RunSubject, Runs};
pub use state::{RunTotals, StoredState};
pub use step::{NextCall, NextStepInput, RunPosition, StepCallOutcome, StepOutcome};
pub use stepwise::{RunApprovalRequestFn, StepParts, Stepper};
pub use turn::SkipReason;

/// Re-exported: the store of the runs.
pub use portcullis_store as store;
