//! Converts a run's events to the formats of other systems, as their specifications define them.
//!
//! | file | content |
//! |---|---|
//! | `everruns.rs` | specification 000 |
//! | `yoagent.rs`, `yoagent/` | specification 002 |
//! | `hsafa.rs` | specification 003 |
//! | `form.rs` | the common trait, and the choice of a format |
//! | `calls.rs` | state of calls in progress |
//! | `partial.rs` | parser for incomplete JSON |
//! | `ending.rs` | a run's end as outsiders see it |
//!
//! No format contains details for the operator: an internal error is one fixed sentence, and of a provider's
//! failure only the kind is shown.

mod calls;
mod ending;
mod everruns;
mod form;
mod hsafa;
mod partial;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;
pub mod yoagent;

pub use calls::MAX_OPEN_CALLS;
pub use everruns::EverrunsEvents;
pub use form::{EventForm, EventFormat, UnknownForm};
pub use hsafa::{Hsafa, MAX_PARTIAL_ARGUMENT_BYTES};
pub use yoagent::YoagentEvents;
