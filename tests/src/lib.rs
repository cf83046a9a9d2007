//! The programs of `docs/interfaces.md`, compiled as doc examples.

#[cfg(doctest)]
#[doc = include_str!("../../docs/interfaces.md")]
pub mod interfaces {}
