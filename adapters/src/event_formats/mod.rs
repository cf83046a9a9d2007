//! A run's events in the words of other systems, one file each, as their specifications have them.
//!
//! | file | whose words |
//! |---|---|
//! | `everruns.rs` | specification 000 |
//! | `yoagent.rs`, `yoagent/` | specification 002 |
//! | `hsafa.rs` | specification 003 |
//! | `form.rs` | what they have in common |
//! | `calls.rs` | the calls that are going on, as far as a form must remember them |
//! | `partial.rs` | JSON that has not come to its end yet |
//! | `ending.rs` | how a run's end is told to strangers |
//!
//! Nothing that is for the operator alone is in any of them: an internal error is its one sentence, and of a
//! provider's failure only the kind is told.

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
pub use everruns::Everruns;
pub use form::{EventForm, EventFormat, UnknownForm};
pub use hsafa::{Hsafa, MAX_PARTIAL_ARGUMENT_BYTES};
pub use yoagent::Yoagent;
