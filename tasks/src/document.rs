//! `TaskDocument`: a parsed task file with its blocks and its ledger, and the edits of it.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::{
    error::FileError,
    fences::{Fence, fences},
    front_matter::FrontMatter,
    ledger::{CallKey, Ledger, LedgerRow},
    limits::{MAX_CALLS_PER_FILE, MAX_FILE_BYTES},
    request::{BlockCall, NotACallReason},
    result_fence,
};

/// The text of a task file, and its parsed parts.
#[derive(Debug)]
pub(crate) struct TaskDocument {
    text: String,
    front_matter: FrontMatter,
    ledger: Ledger,
    blocks: Vec<CallBlock>,
}

/// A block that may contain a call.
#[derive(Debug)]
pub(crate) struct CallBlock {
    pub(crate) key: CallKey,
    /// The line of the opening fence in the file, from 1.
    pub(crate) line: usize,
    pub(crate) fence: Fence,
    /// `None` if no fence closes the block, which may then be half written.
    pub(crate) request: Option<Result<BlockCall, NotACallReason>>,
}

impl CallBlock {
    /// Returns whether the block is data for people, not a call.
    fn is_other_data(&self) -> bool {
        matches!(&self.request, Some(Err(no_call)) if no_call.is_other_data())
    }
}

impl TaskDocument {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`FileError`] if no call of the file may run.
    pub(crate) fn parse(text: String) -> Result<Self, FileError> {
        let front_matter = FrontMatter::read(&text)?;
        let ledger = front_matter.ledger()?;
        let blocks = call_blocks(&text[front_matter.body..], line_of(&text, front_matter.body));
        let found = blocks.iter().filter(|block| !block.is_other_data()).count();
        if found > MAX_CALLS_PER_FILE {
            return Err(FileError::TooManyCalls { found });
        }
        Ok(Self { text, front_matter, ledger, blocks })
    }

    /// Returns the blocks that are calls or should be, in document order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &CallBlock> {
        self.blocks.iter().filter(|block| !block.is_other_data())
    }

    /// Returns the blocks that are skipped: data that is not a call, and blocks without a closing fence.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &CallBlock> {
        self.blocks.iter().filter(|block| block.request.is_none() || block.is_other_data())
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file's text with an added or changed row.
    ///
    /// # Errors
    /// [`FileError`] if the row cannot be written in a way that reads back unchanged.
    pub(crate) fn with_row(&self, row: LedgerRow) -> Result<String, FileError> {
        let text = self.front_matter.with_ledger(&self.text, &self.ledger.with(row)?)?;
        if text.len() > MAX_FILE_BYTES { Err(FileError::TooLarge) } else { Ok(text) }
    }

    /// Returns the file's text with a row, and with a call's result below its block. A result that does not
    /// fit is omitted. The row remains, and the audit log has the call.
    ///
    /// # Errors
    /// Same as [`Self::with_row`].
    pub(crate) fn with_result(&self, row: LedgerRow, result: &str) -> Result<String, FileError> {
        let key = CallKey { block: row.block.clone(), ordinal: row.ordinal };
        let text = self.with_row(row)?;
        // The row changes only the front matter, so the body keeps its distance from the end of the text.
        let body = text.len() - (self.text.len() - self.front_matter.body);
        // If the block was removed, there is no place for its result.
        let Some(block) = self.calls().find(|block| block.key == key && block.request.is_some()) else {
            return Ok(text);
        };
        match result_fence::insert(&text[body..], &block.fence, result) {
            Some(new_body) if body + new_body.len() <= MAX_FILE_BYTES => {
                Ok(format!("{}{new_body}", &text[..body]))
            }
            _ => Ok(text),
        }
    }
}

/// Returns the blocks of a body that begins at line `first_line` of the file.
fn call_blocks(body: &str, first_line: usize) -> Vec<CallBlock> {
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut line = first_line;
    let mut counted = 0;
    let json = fences(body).into_iter().filter(Fence::is_json);
    json.map(|fence| {
        let block = hex::encode(Sha256::digest(&fence.code));
        let count = counts.entry(block.clone()).or_default();
        let key = CallKey { block, ordinal: *count };
        *count += 1;
        // Count lines from the previous block, so that the whole scan is linear.
        line += body[counted..fence.span.start].matches('\n').count();
        counted = fence.span.start;
        let request = fence.is_closed.then(|| BlockCall::parse(&fence.code));
        CallBlock { key, line, fence, request }
    })
    .collect()
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests;
