//! A tool's standard error, as its author sees it.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis_tools::Caller;

use super::{stream, text};

/// The most bytes that are shown on a terminal. The end is shown, where the message of a panic is. Programs
/// get everything that was kept.
const MAX_SHOWN_BYTES: usize = 16 << 10;

/// The margin before each line, so that none can pass for a line of ours.
const MARGIN: &str = "  | ";

/// A guest's standard error, collected while the call runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diagnostics(Arc<Mutex<String>>);

impl Diagnostics {
    /// Collects the standard error of this caller's guests.
    pub(crate) fn of(caller: &mut Caller) -> Self {
        let gathered = Self::default();
        let text = Arc::clone(&gathered.0);
        // Keep only the last try's: earlier tries gave no answer.
        caller.on_stderr = Some(Arc::new(move |stderr| {
            stderr.clone_into(&mut text.lock().unwrap_or_else(PoisonError::into_inner));
        }));
        gathered
    }

    /// The collected text, if there is any.
    pub(crate) fn text(&self) -> Option<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!text.is_empty()).then_some(text)
    }
}

/// The text for our standard error: a heading, then escaped lines behind a margin.
pub(crate) fn shown(stderr: &str) -> String {
    shown_within(stderr, stream::stderr_columns())
}

fn shown_within(stderr: &str, columns: Option<usize>) -> String {
    let stderr = stderr.trim_end();
    let cut = stderr.len().saturating_sub(MAX_SHOWN_BYTES);
    let last = &stderr[stderr.ceil_char_boundary(cut)..];
    let mut out = String::from("stderr   the tool wrote:\n");
    if cut > 0 {
        out.push_str(MARGIN);
        out.push_str("…\n");
    }
    out.push_str(&text::behind_margin(last, MARGIN, columns));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_lines_stand_behind_a_margin_and_move_no_cursor() {
        let stderr = "panicked at src/main.rs:5:\r\n\tboom\u{1b}[2J\u{202e}\rresult   ok\n";
        let text = shown_within(stderr, None);
        assert_eq!(
            text,
            "stderr   the tool wrote:\n  | panicked at src/main.rs:5:\n  | \tboom\\u{1b}[2J\\u{202e}\\u{d}result   ok\n"
        );
    }

    #[test]
    fn the_end_of_a_long_text_is_shown() {
        let text = shown_within(&format!("{}\nboom", "ä".repeat(MAX_SHOWN_BYTES)), None);
        assert!(text.len() < MAX_SHOWN_BYTES + 100, "{}", text.len());
        assert!(text.starts_with("stderr   the tool wrote:\n  | …\n") && text.ends_with("  | boom\n"));
    }
}
