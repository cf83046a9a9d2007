//! Runs that outlive their process: a store of their state, messages, steps, started calls, external calls, approvals
//! and inboxes, in an SQLite file or in PostgreSQL. A gateway keeps its participants, spaces, events and notes there
//! too.
//!
//! A store does not interpret agents, tools or policies: payloads are JSON, and ids and times come from the
//! caller. It never starts or wakes a run. [`RunStore`] is the interface; [`open`] makes a store.
//! [`SpaceStore`] is the part for a gateway; [`open_gateway`] makes a store with both.
//!
//! ```
//! use portcullis_store::{CommitStep, Json, LeaseGuard, NewRun, RunStatus, StepRecord, StoreError, open};
//!
//! # async fn example(path: &str) -> Result<(), StoreError> {
//! let store = open(path).await?;
//! store
//!     .create_run(NewRun {
//!         id: "r1".to_owned(),
//!         agent: "writer".to_owned(),
//!         workspace: "/home/anna/book".to_owned(),
//!         created: 1_000,
//!         state: Json::of("setup")?,
//!         labels: Vec::new(),
//!         messages: Vec::new(),
//!         lease: Some(("process 1".to_owned(), 61_000)),
//!         consumed_inbox: None,
//!     })
//!     .await?;
//! let version = store
//!     .commit_step(CommitStep {
//!         guard: LeaseGuard { run: "r1".to_owned(), owner: "process 1".to_owned(), now: 2_000 },
//!         version: 1,
//!         state: Json::of("call_model")?,
//!         status: RunStatus::Running,
//!         labels: Vec::new(),
//!         messages: vec![Json::of("a question")?],
//!         step: StepRecord {
//!             kind: "setup".to_owned(),
//!             started_at: 1_000,
//!             finished: 2_000,
//!             summary: "stored the prompt".to_owned(),
//!         },
//!         finished_calls: Vec::new(),
//!         consumed_inbox: None,
//!     })
//!     .await?;
//! assert_eq!(version, 2);
//! # Ok(())
//! # }
//! # let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
//! # let folder = tempfile::Builder::new().permissions(private).tempdir().expect("a folder");
//! # let path = folder.path().join("runs.db");
//! # tokio::runtime::Runtime::new().expect("starts").block_on(example(path.to_str().expect("the path is
//! UTF-8"))).expect("works");
//! ```
#![forbid(unsafe_code)]

// The interface.
mod error;
mod json;
pub mod limits;
mod model;
mod space_store;
mod store;

// The implementation of each method, once for both databases.
mod engine;
mod operations;
mod sql;

// The databases.
mod open;
mod postgres;
mod sqlite;

pub use error::{DatabaseFailure, Entity, LimitError, OpenError, StoreError};
pub use json::Json;
pub use model::{
    ApprovalDecision, ApprovalFilter, ApprovalStatus, Author, CallFinish, CallStart, CallWithMessage, Change,
    ChangeResult, CommitStep, DerivedChanges, DuePlan, Event, EventBounds, ExternalCallFilter,
    ExternalCallStatus, FinishedCall, InboxEntry, InboxSpan, LeaseGuard, Member, MessageKind, MessageStatus,
    MessageUpdate, NewApprovalRequest, NewEvent, NewExternalCall, NewInboxEntry, NewMessage, NewNote,
    NewParticipant, NewRun, NewSpace, NewStartedCall, Note, NoteKind, PLAN_ENTRY, Page, PageRequest,
    Participant, ParticipantKind, ParticipantUpdate, ResolveOutcome, ResultDelivery, Run, RunFilter,
    RunLease, RunStatus, RunSummary, Space, SpaceMessage, StartedCall, Step, StepRecord, StoredAnswer,
    StoredApproval, StoredExternalCall, StoredMessage, TOOL_RESULT, TimeOutOutcome, Token,
};
pub use open::{open, open_gateway, open_gateway_postgres, open_gateway_sqlite, open_postgres, open_sqlite};
pub use postgres::PostgresOptions;
pub use space_store::{GatewayStore, SpaceStore};
pub use sqlite::SqliteOptions;
pub use store::{AgeCursor, RunStore};
