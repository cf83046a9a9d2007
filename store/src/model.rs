//! The data that a store keeps, as values: one file for each kind of row. Times are milliseconds since the Unix epoch.

mod approval;
mod call;
mod change;
mod effect;
mod event;
mod inbox;
mod note;
mod page;
mod participant;
mod run;
mod space;
mod space_message;
mod status;
mod step;
mod token;

pub use approval::{Approval, ApprovalFilter, ApprovalStatus, NewApproval, StoredAnswer, Verdict};
pub use call::{CallFilter, CallStatus, NewCall, Resolution, ShownCall, StoredCall, TimeOut};
pub use change::{Applied, Change, ResolvedWith, Then};
pub use effect::{Effect, EffectBegin, EffectEnd, FinishedEffect, NewEffect};
pub use event::{Event, EventBounds, NewEvent};
pub use inbox::{InboxEntry, InboxSpan, NewInboxEntry, TOOL_RESULT};
pub use note::{DuePlan, NewNote, Note, NoteKind, PLAN_ENTRY};
pub use page::{Page, PageRequest};
pub use participant::{NewParticipant, Participant, ParticipantKind, ParticipantUpdate};
pub use run::{LeaseGuard, NewRun, Run, RunFilter, RunLease, RunStatus, RunSummary};
pub use space::{Member, NewSpace, Space};
pub use space_message::{Author, MessageKind, MessageStatus, MessageUpdate, NewMessage, SpaceMessage};
pub(crate) use status::UnknownStatus;
pub use step::{CommitStep, Step, StepRecord, StoredMessage};
pub use token::Token;
