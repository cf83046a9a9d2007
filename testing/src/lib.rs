//! Helpers shared by the tests of several crates.
//!
//! | file | feature | content |
//! |---|---|---|
//! | `stock_container.rs`, `kernel_environment.rs` | – | seccomp filters around a process: those of a container, or a test's own |
//! | `kernel.rs` | – | whether a missing kernel feature fails a test |
//! | `waiting.rs` | – | waiting for what another thread or process does |
//! | `pdf_file.rs` | – | PDF files, written object by object |
//! | `oracles/` | `registries` | properties that hold for any arguments and any guest output |
//! | `registries.rs` | `registries` | registries of native tools under a policy |
//! | `policy_text.rs` | `fixtures` | changes of a policy's text by key |
//! | `fixture.rs`, `modules.rs` | `fixtures` | a workspace, a state folder and a registry for one test |
//! | `guests.rs` | `fixtures` | the hostile guests and the example `weather` |
#![forbid(unsafe_code)]

#[cfg(feature = "fixtures")]
mod fixture;
#[cfg(feature = "fixtures")]
mod guests;
mod kernel;
pub mod kernel_environment;
#[cfg(feature = "fixtures")]
mod modules;
#[cfg(feature = "registries")]
pub mod oracles;
pub mod pdf_file;
#[cfg(feature = "fixtures")]
mod policy_text;
#[cfg(feature = "registries")]
pub mod registries;
mod stock_container;
mod waiting;

#[cfg(feature = "fixtures")]
pub use fixture::{CallOutcome, Fixture, LAZY_COMPILE_TIMEOUT, approving_caller, binary, call_rows};
#[cfg(feature = "fixtures")]
pub use guests::guest;
pub use kernel::{kernel_is_required, kernel_or_skip};
#[cfg(feature = "fixtures")]
pub use policy_text::with_policy_key;
pub use stock_container::enter_stock_container;
pub use waiting::{TEST_TIMEOUT, wait_until};
