//! Converts a run's events to the formats of other systems.
//!
//! | file | content |
//! |---|---|
//! | `everruns.rs` | the format of Everruns |
//! | `yoagent.rs`, `yoagent/` | the format of Yoagent |
//! | `hsafa.rs` | the format of Hsafa |
//! | `kind.rs` | the common trait, and the choice of a format |
//! | `calls.rs` | state of calls in progress |
//! | `partial.rs` | parser for incomplete JSON |
//! | `ending.rs` | a run's end as outsiders see it |
//!
//! No format shows details that are for the operator: an internal error is one fixed sentence, and a
//! provider's failure is reduced to its kind.

mod calls;
mod ending;
mod everruns;
mod hsafa;
mod kind;
mod partial;

pub use partial::parse_partial;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;
pub mod yoagent;

pub use calls::MAX_OPEN_CALLS;
pub use everruns::EverrunsEvents;
pub use hsafa::{HsafaEvents, MAX_PARTIAL_ARGUMENT_BYTES};
pub use kind::{EventFormat, EventFormatKind, UnknownEventFormat};
pub use yoagent::YoagentEvents;
