//! What tests of several crates share.
//!
//! | file | feature | what it is |
//! |---|---|---|
//! | `stock_container.rs`, `outer.rs` | – | filters around a process: a container's own, and what a test takes away |
//! | `oracles/` | `registries` | what must hold of arguments and guests' lines, whatever they are |
//! | `registries.rs` | `registries` | registries of native tools under a policy |
//! | `world.rs`, `modules.rs` | `worlds` | a workspace, a state folder and a registry that belong to one test |
//! | `guests.rs` | `worlds` | the hostile guests |
#![forbid(unsafe_code)]

#[cfg(feature = "worlds")]
mod guests;
#[cfg(feature = "worlds")]
mod modules;
#[cfg(feature = "registries")]
pub mod oracles;
pub mod outer;
#[cfg(feature = "registries")]
pub mod registries;
mod stock_container;
#[cfg(feature = "worlds")]
mod world;

#[cfg(feature = "worlds")]
pub use guests::guest;
pub use stock_container::enter_stock_container;
#[cfg(feature = "worlds")]
pub use world::{Answer, World, approving, binary, kernel_or_skip};
