//! Helpers shared by the tests of several crates.
//!
//! | file | feature | content |
//! |---|---|---|
//! | `stock_container.rs`, `outer.rs` | – | seccomp filters around a process: those of a container, and those that a test chooses |
//! | `pdf_file.rs` | – | PDF files, written object by object |
//! | `oracles/` | `registries` | properties of any arguments and any guest output |
//! | `registries.rs` | `registries` | registries of native tools under a policy |
//! | `world.rs`, `modules.rs` | `worlds` | a workspace, a state folder and a registry for one test |
//! | `guests.rs` | `worlds` | the hostile guests |
#![forbid(unsafe_code)]

#[cfg(feature = "worlds")]
mod guests;
#[cfg(feature = "worlds")]
mod modules;
#[cfg(feature = "registries")]
pub mod oracles;
pub mod outer;
pub mod pdf_file;
#[cfg(feature = "registries")]
pub mod registries;
mod stock_container;
#[cfg(feature = "worlds")]
mod world;

#[cfg(feature = "worlds")]
pub use guests::guest;
pub use stock_container::enter_stock_container;
#[cfg(feature = "worlds")]
pub use world::{CallOutcome, World, approving, binary, kernel_or_skip};
