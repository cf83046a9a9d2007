//! Nothing: this crate is for its test, `tests/ui.rs`.
