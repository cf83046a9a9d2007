//! The data that a store keeps, as values: one file for each kind of row. Times are milliseconds since the Unix epoch.

mod approval;
mod call;
mod change;
mod event;
mod inbox;
mod note;
mod page;
mod participant;
mod run;
mod space;
mod space_message;
mod started_call;
mod status;
mod step;
mod token;

pub use approval::{
    ApprovalDecision, ApprovalFilter, ApprovalStatus, NewApprovalRequest, StoredAnswer, StoredApproval,
};
pub use call::{
    CallWithMessage, ExternalCallFilter, ExternalCallStatus, NewExternalCall, ResultDelivery,
    StoredExternalCall, TimeOutOutcome,
};
pub use change::{Change, ChangeResult, DerivedChanges, ResolveOutcome};
pub use event::{Event, EventBounds, NewEvent};
pub use inbox::{InboxEntry, InboxSpan, NewInboxEntry, TOOL_RESULT};
pub use note::{DuePlan, NewNote, Note, NoteKind, PLAN_ENTRY};
pub use page::{Page, PageRequest};
pub use participant::{NewParticipant, Participant, ParticipantKind, ParticipantUpdate};
pub use run::{LeaseGuard, NewRun, Run, RunFilter, RunLease, RunStatus, RunSummary};
pub use space::{Member, NewSpace, Space};
pub use space_message::{Author, MessageKind, MessageStatus, MessageUpdate, NewMessage, SpaceMessage};
pub use started_call::{CallFinish, CallStart, FinishedCall, NewStartedCall, StartedCall};
pub(crate) use status::UnknownStatus;
pub use step::{CommitStep, Step, StepRecord, StoredMessage};
pub use token::Token;
