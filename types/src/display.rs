//! Formats text for people that contains untrusted parts.
//!
//! | file | what it is |
//! |---|---|
//! | `escape.rs` | escapes deceptive characters |
//! | `near.rs` | "did you mean" |
//! | `text.rs` | results, sizes, lines behind a margin |
//! | `framed.rs` | names and values, each value folded within a trusted frame |

mod escape;
pub mod framed;
pub mod near;
pub mod text;

pub use escape::{EscapedText, escape_for_display, is_deceptive, is_invisible, is_right_to_left};
