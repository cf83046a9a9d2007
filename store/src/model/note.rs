//! Notes of an agent: its goals, memories and plans.

use super::status::statuses;
use crate::json::Json;

/// The kind of the inbox entry that is made from a due plan. Its body is `{"planId", "due", "plan"}`.
pub const PLAN_ENTRY: &str = "plan";

statuses! {
    /// The kind of a note.
    NoteKind {
        /// Something that the agent wants to reach.
        Goal = "goal",
        /// Something that the agent remembers.
        Memory = "memory",
        /// Something that the agent does at a set time.
        Plan = "plan",
    }
}

/// A note that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNote {
    /// The id, unique for the agent and the kind. A note with this id is replaced.
    pub id: String,
    /// The note, in the caller's form.
    pub body: Json,
    /// When a plan is next due; `None` for a plan that is never due, and for the other kinds.
    pub due: Option<i64>,
    /// The interval of a plan that repeats, in milliseconds. `None` for a plan that is due once, and for the other
    /// kinds.
    pub every: Option<i64>,
}

/// A stored note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The id, unique for the agent and the kind.
    pub id: String,
    /// Whether it is a goal, a memory or a plan.
    pub kind: NoteKind,
    /// The note, in the caller's form.
    pub body: Json,
    /// When the plan is next due.
    pub due: Option<i64>,
    /// After how many milliseconds the plan is due again.
    pub every: Option<i64>,
    /// When it was first set.
    pub created: i64,
    /// When it was last set.
    pub updated: i64,
}

/// A plan that was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePlan {
    /// The id of the agent that has the plan.
    pub agent: String,
    /// The id of the plan.
    pub id: String,
    /// When it was due.
    pub due: i64,
    /// When it is due again.
    pub next: Option<i64>,
    /// The ordinal of its entry in the agent's inbox. `None` if the inbox was full, so that this occurrence
    /// is missed.
    pub ordinal: Option<i64>,
}
