//! Text as people are shown it, where a stranger may have written a part of it.
//!
//! | file | what it is |
//! |---|---|
//! | `escape.rs` | characters that deceive the eye, and text without them |
//! | `text.rs` | results, sizes, lines behind a margin |
//! | `framed.rs` | names and values, each value folded within a frame of ours |

mod escape;
pub mod framed;
pub mod text;

pub use escape::{Shown, escape_for_display, is_deceptive, is_invisible, is_right_to_left};
