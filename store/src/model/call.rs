//! Calls whose result comes from outside, perhaps after the run has continued.

use super::status::statuses;
use crate::json::Json;

statuses! {
    /// The status of an external call. It changes from waiting or pending to one of the other three, and from waiting
    /// to pending.
    ExternalCallStatus {
        /// The run waits for the result and takes it itself.
        Waiting = "waiting",
        /// The run has continued. The result comes through the agent's inbox.
        Pending = "pending",
        /// The result is there.
        Resolved = "resolved",
        /// No result came in time.
        Expired = "expired",
        /// The call was cancelled.
        Cancelled = "cancelled",
    }
}

impl ExternalCallStatus {
    /// Returns whether the call takes a result.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Pending)
    }
}

/// A call that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExternalCall {
    /// The id, unique in the store.
    pub id: String,
    /// The tool that the call names.
    pub tool: String,
    /// The arguments that the model gave.
    pub arguments: Json,
    /// The inbox that gets a late result: the run's, or the inbox of an agent that outlives its runs.
    pub inbox: String,
    /// Whether the run waits for the result ([`ExternalCallStatus::Waiting`]), or continues immediately
    /// ([`ExternalCallStatus::Pending`]). A call with another status is refused.
    pub status: ExternalCallStatus,
    /// When the call expires; `None` if it never does.
    pub expires: Option<i64>,
}

/// A stored call. Its result comes from outside the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredExternalCall {
    /// The id, unique in the store.
    pub id: String,
    /// The run that made the call.
    pub run: String,
    /// The agent of the run.
    pub agent: String,
    /// The tool that the call names.
    pub tool: String,
    /// The arguments that the model gave.
    pub arguments: Json,
    /// The status when it was read. See [`Self::status_at`].
    pub status: ExternalCallStatus,
    /// The result, if it is resolved.
    pub result: Option<Json>,
    /// When the run made the call.
    pub created: i64,
    /// When its status last changed.
    pub updated: i64,
    /// When it expires.
    pub expires: Option<i64>,
}

impl StoredExternalCall {
    /// Returns the status at this time. An open call whose expiry time has passed has expired, even before a
    /// sweep marks it.
    #[must_use]
    pub fn status_at(&self, now: i64) -> ExternalCallStatus {
        let is_over = self.expires.is_some_and(|expires| expires <= now);
        if self.status.is_open() && is_over { ExternalCallStatus::Expired } else { self.status }
    }
}

/// A call, with the data of the message that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallWithMessage {
    /// The call that the message shows.
    pub call: StoredExternalCall,
    /// The space of the newest message that shows it; `None` if no space shows it.
    pub space: Option<String>,
    /// The data that the message holds besides its text, if there is any.
    pub metadata: Option<Json>,
}

/// The result of [`RunStore::time_out_external_call`](crate::RunStore::time_out_external_call).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeOutOutcome {
    /// The call is pending now. A result will come through the inbox.
    NowPending,
    /// The call changed first. It has this status and, if it is resolved, its result.
    AlreadyChanged(StoredExternalCall),
}

/// The recipient of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultDelivery {
    /// To the run, which waits for it.
    Inline,
    /// To the agent's inbox, as the entry with this ordinal.
    Inbox {
        /// The entry's ordinal.
        ordinal: i64,
    },
}

/// The calls that a listing shows. The default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalCallFilter {
    /// The run of the calls; `None` for all runs.
    pub run: Option<String>,
    /// The agent of the calls; `None` for all agents.
    pub agent: Option<String>,
    /// The status of the calls; `None` for every status.
    pub status: Option<ExternalCallStatus>,
}
