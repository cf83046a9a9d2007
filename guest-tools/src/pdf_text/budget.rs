//! The work that one document is worth. A file of a few bytes can ask for any amount of it: by streams that inflate a
//! thousandfold, by forms that show each other, by pages that share one content.

/// The most pages that are read.
pub(super) const MAX_PAGES: usize = 500;

/// The most pages that a second pass reads, after the first ran into its time or its memory.
pub(super) const PLAIN_PAGES: usize = 20;

/// The longest decoded stream: 16 MiB. Of a longer one, the beginning is read.
pub(super) const MAX_STREAM_BYTES: usize = 16 << 20;

/// The longest table of a font's characters or codes: 1 MiB. In memory it is several times as large.
pub(super) const MAX_TABLE_BYTES: usize = 1 << 20;

/// The decoded streams of one document, together: 128 MiB.
pub(super) const MAX_DECODED_BYTES: usize = 128 << 20;

/// The operators and characters of one document, together.
pub(super) const MAX_OPERATIONS: usize = 4_000_000;

/// What running a form and loading a font cost, in operations; and how many bytes of a font's tables cost one.
pub(super) const FORM_OPERATIONS: usize = 100;
pub(super) const FONT_OPERATIONS: usize = 2_000;
pub(super) const TABLE_BYTES_PER_OPERATION: usize = 4;

/// What is left of a document's work.
#[derive(Debug)]
pub(super) struct Budget {
    operations: usize,
    decoded_bytes: usize,
    text_bytes: usize,
}

/// The budget is used up: reading ends, and the text so far stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Budget {
    pub(super) const fn new() -> Self {
        Self {
            operations: MAX_OPERATIONS,
            decoded_bytes: MAX_DECODED_BYTES,
            text_bytes: crate::limits::MAX_TEXT_BYTES,
        }
    }

    /// Takes operations.
    pub(super) fn operations(&mut self, count: usize) -> Result<(), Exhausted> {
        take(&mut self.operations, count)
    }

    /// Takes bytes of text.
    pub(super) fn text(&mut self, bytes: usize) -> Result<(), Exhausted> {
        take(&mut self.text_bytes, bytes)
    }

    /// Takes decoded bytes.
    pub(super) fn decoded(&mut self, bytes: usize) -> Result<(), Exhausted> {
        take(&mut self.decoded_bytes, bytes)
    }

    /// The most that the next stream may decode to.
    pub(super) fn stream_bytes(&self) -> usize {
        MAX_STREAM_BYTES.min(self.decoded_bytes)
    }
}

fn take(left: &mut usize, count: usize) -> Result<(), Exhausted> {
    match left.checked_sub(count) {
        Some(rest) => *left = rest,
        None => {
            *left = 0;
            return Err(Exhausted);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_used_up_stays_so() {
        let mut budget = Budget::new();
        assert_eq!(budget.operations(MAX_OPERATIONS - 1), Ok(()));
        assert_eq!(budget.operations(2), Err(Exhausted));
        assert_eq!(budget.operations(1), Err(Exhausted));
        assert_eq!(budget.stream_bytes(), MAX_STREAM_BYTES);
        assert_eq!(budget.decoded(MAX_DECODED_BYTES - 5), Ok(()));
        assert_eq!(budget.stream_bytes(), 5);
    }
}
