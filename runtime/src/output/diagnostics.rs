//! Collects a tool's standard error, and shows it to the tool's author.

use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_tools::Caller;

use super::{stream, text};

/// The maximum length of the text that is shown, in bytes. Only the end of a longer text is shown, which
/// contains a panic's message. JSON output has all stored text.
const MAX_SHOWN_BYTES: usize = 16 << 10;

/// The margin before each line, so that no line can be mistaken for a line of this program.
const MARGIN: &str = "  | ";

/// A guest's standard error, collected while the call runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diagnostics(Arc<Mutex<String>>);

impl Diagnostics {
    /// Collects the standard error of this caller's guests.
    pub(crate) fn attach(caller: &mut Caller) -> Self {
        let diagnostics = Self::default();
        let text = Arc::clone(&diagnostics.0);
        // Keep only the text of the last attempt, because earlier attempts gave no answer.
        caller.on_stderr = Some(Arc::new(move |stderr| {
            stderr.clone_into(&mut text.lock());
        }));
        diagnostics
    }

    /// Returns the collected text, if there is any.
    pub(crate) fn text(&self) -> Option<String> {
        let text = self.0.lock().clone();
        (!text.is_empty()).then_some(text)
    }
}

/// Formats the text for this program's standard error: a heading, then escaped lines behind a margin.
pub(crate) fn format_stderr(stderr: &str) -> String {
    format_stderr_within(stderr, stream::stderr_columns())
}

fn format_stderr_within(stderr: &str, columns: Option<usize>) -> String {
    let stderr = stderr.trim_end();
    let cut = stderr.len().saturating_sub(MAX_SHOWN_BYTES);
    let shown_end = &stderr[stderr.ceil_char_boundary(cut)..];
    let mut out = String::from("stderr   the tool wrote:\n");
    if cut > 0 {
        out.push_str(MARGIN);
        out.push_str("…\n");
    }
    out.push_str(&text::behind_margin(shown_end, MARGIN, columns));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_lines_have_a_margin_and_no_control_characters() {
        let stderr = "panicked at src/main.rs:5:\r\n\tboom\u{1b}[2J\u{202e}\rresult   ok\n";
        let text = format_stderr_within(stderr, None);
        assert_eq!(
            text,
            "stderr   the tool wrote:\n  | panicked at src/main.rs:5:\n  | \tboom\\u{1b}[2J\\u{202e}\\u{d}result   ok\n"
        );
    }

    #[test]
    fn the_end_of_a_long_text_is_shown() {
        let text = format_stderr_within(&format!("{}\nboom", "ä".repeat(MAX_SHOWN_BYTES)), None);
        assert!(text.len() < MAX_SHOWN_BYTES + 100, "{}", text.len());
        assert!(text.starts_with("stderr   the tool wrote:\n  | …\n") && text.ends_with("  | boom\n"));
    }
}
