//! A cycle: one run of an agent, from the entries of its inbox to the run's end.
//!
//! | file | what it is |
//! |---|---|
//! | `begin.rs` | makes the run from the inbox |
//! | `drive.rs` | runs the loop over the stored run |
//! | `space.rs` | the space that the agent is in, and the messages of its visible calls |
//! | `events.rs` | the events of the loop, as readers of the gateway see them |
//! | `executor.rs` | refuses a visible call outside of a space, and shapes results |
//! | `calls.rs` | keeps the calls of external tools, and shows that they wait |

mod begin;
mod calls;
mod drive;
mod events;
mod executor;
mod space;

pub(crate) use begin::begin;
pub(crate) use drive::drive;
pub(crate) use space::{CycleSpace, message_event, message_id};
