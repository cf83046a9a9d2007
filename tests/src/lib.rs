//! The programs of `docs/interfaces.md`, which are compiled as they stand.

#[cfg(doctest)]
#[doc = include_str!("../../docs/interfaces.md")]
pub mod interfaces {}
