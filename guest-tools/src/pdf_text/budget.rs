//! The work that one document may cost. A file of a few bytes can require any amount of work: with streams that inflate
//! a thousandfold, forms that show each other, or pages that share one content.

/// The maximum number of pages that are read.
pub(super) const MAX_PAGES: usize = 500;

/// The maximum number of pages that a second pass reads, after the first pass used up its time or memory.
pub(super) const MAX_PLAIN_PAGES: usize = 20;

/// The maximum length of a decoded stream: 16 MiB. Only the start of a longer stream is read.
pub(super) const MAX_STREAM_BYTES: usize = 16 << 20;

/// The maximum length of a table of a font's characters or codes: 1 MiB. In memory the table is several times as
/// large.
pub(super) const MAX_TABLE_BYTES: usize = 1 << 20;

/// The maximum size of all decoded streams of one document: 128 MiB.
pub(super) const MAX_DECODED_BYTES: usize = 128 << 20;

/// The maximum number of operators and characters in one document: 4,000,000.
pub(super) const MAX_OPERATIONS: usize = 4_000_000;

/// The cost of running a form and of loading a font, in operations, and how many bytes of a font's tables cost one
/// operation.
pub(super) const FORM_OPERATIONS: usize = 100;
pub(super) const FONT_OPERATIONS: usize = 2_000;
pub(super) const TABLE_BYTES_PER_OPERATION: usize = 4;

/// The work that a document may still cost.
#[derive(Debug)]
pub(super) struct PdfBudget {
    operations: usize,
    decoded_bytes: usize,
    text_bytes: usize,
}

/// The budget is used up. The reading ends, and the text read so far is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

impl PdfBudget {
    pub(super) const fn new() -> Self {
        Self {
            operations: MAX_OPERATIONS,
            decoded_bytes: MAX_DECODED_BYTES,
            text_bytes: crate::limits::MAX_TEXT_BYTES,
        }
    }

    pub(super) fn operations(&mut self, count: usize) -> Result<(), Exhausted> {
        take(&mut self.operations, count)
    }

    pub(super) fn text(&mut self, bytes: usize) -> Result<(), Exhausted> {
        take(&mut self.text_bytes, bytes)
    }

    pub(super) fn decoded(&mut self, bytes: usize) -> Result<(), Exhausted> {
        take(&mut self.decoded_bytes, bytes)
    }

    /// Returns the maximum number of bytes that the next stream may decode to.
    pub(super) fn stream_bytes(&self) -> usize {
        MAX_STREAM_BYTES.min(self.decoded_bytes)
    }
}

fn take(remaining: &mut usize, count: usize) -> Result<(), Exhausted> {
    match remaining.checked_sub(count) {
        Some(rest) => *remaining = rest,
        None => {
            *remaining = 0;
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
        let mut budget = PdfBudget::new();
        assert_eq!(budget.operations(MAX_OPERATIONS - 1), Ok(()));
        assert_eq!(budget.operations(2), Err(Exhausted));
        assert_eq!(budget.operations(1), Err(Exhausted));
        assert_eq!(budget.stream_bytes(), MAX_STREAM_BYTES);
        assert_eq!(budget.decoded(MAX_DECODED_BYTES - 5), Ok(()));
        assert_eq!(budget.stream_bytes(), 5);
    }
}
