//! Empty: this crate exists for its test, `tests/ui.rs`.
