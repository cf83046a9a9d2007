//! The limits of each posture: one table of cases, tried against the real sidecar in each posture, as root and
//! as an ordinary user.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test helpers: clippy.toml exempts only test functions"
)]

mod bounds;
mod case;
pub(crate) mod column;
mod docs;
mod files;
mod listeners;
mod network;
mod processes;
mod trial;
