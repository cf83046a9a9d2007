//! What the acceptance and hostile tests share: a world of their own for each, and the hostile guests.

/// The programs of the document, which are compiled as they stand.
#[cfg(doctest)]
#[doc = include_str!("../../docs/interfaces.md")]
pub mod interfaces {}

mod guests;
mod modules;
mod world;

pub use guests::guest;
pub use world::{Answer, World, approving, binary, kernel_or_skip};
