//! `next_step`: decides what to do next in a task file.

use crate::{
    document::{CallBlock, TaskDocument},
    ledger::{CallKey, LedgerRow, LedgerStatus},
    limits::MAX_ATTEMPTS,
    request::BlockCall,
};

/// The next work in a file.
pub(crate) enum TaskStep {
    /// Run a call.
    Run { key: CallKey, line: usize, request: BlockCall, row: Option<LedgerRow>, approved: Option<String> },
    /// Record that a block is not a call, or that a call was interrupted.
    Refuse {
        key: CallKey,
        line: usize,
        tool: String,
        row: Option<LedgerRow>,
        code: &'static str,
        message: String,
    },
    /// A call waits for an approval, which the file's state does not give.
    AwaitApproval,
    /// All calls have succeeded, or one has failed.
    Move(LedgerStatus),
    /// There is no call, or the file is still being written.
    Rest,
}

/// Fast path: returns `false` if a text cannot have a call. Most files have none, and this is much faster
/// than parsing.
pub(crate) fn may_have_calls(text: &str) -> bool {
    text.contains("```") && text.contains("json")
}

/// Decides what to do next in a file.
pub(crate) fn next_step(document: &TaskDocument, is_approved: bool) -> TaskStep {
    let (mut has_calls, mut has_failed, mut is_unfinished) = (false, false, false);
    for block in document.calls() {
        has_calls = true;
        let Some(request) = &block.request else {
            // A block without a closing fence may still be being written, so leave the file where it is.
            is_unfinished = true;
            continue;
        };
        let row = document.ledger().row(&block.key);
        match row.map(|row| row.status) {
            Some(LedgerStatus::Success) => {}
            // A failed call does not stop the later calls of its file.
            Some(LedgerStatus::Failed) => has_failed = true,
            Some(LedgerStatus::Pending) | None => match request {
                Ok(request) => return open_call(block, request, row, is_approved),
                Err(no_call) => {
                    return TaskStep::Refuse {
                        key: block.key.clone(),
                        line: block.line,
                        tool: String::new(),
                        row: row.cloned(),
                        code: no_call.code(),
                        message: no_call.to_string(),
                    };
                }
            },
        }
    }
    match () {
        () if is_unfinished || !has_calls => TaskStep::Rest,
        () if has_failed => TaskStep::Move(LedgerStatus::Failed),
        () => TaskStep::Move(LedgerStatus::Success),
    }
}

fn open_call(block: &CallBlock, request: &BlockCall, row: Option<&LedgerRow>, is_approved: bool) -> TaskStep {
    // A row without a question was written when its call began. The call has no end, so it was interrupted.
    let is_interrupted = row.is_some_and(|row| row.approval.is_none());
    let may_run_again = row.is_some_and(|row| row.may_repeat && row.attempts < MAX_ATTEMPTS);
    if is_interrupted && !may_run_again {
        return TaskStep::Refuse {
            key: block.key.clone(),
            line: block.line,
            tool: request.tool.clone(),
            row: row.cloned(),
            code: "interrupted",
            message: "the call was interrupted, and is not repeated; its effects are not known".to_owned(),
        };
    }
    let approved = row.and_then(|row| row.approval.clone());
    if approved.is_some() && !is_approved {
        return TaskStep::AwaitApproval;
    }
    TaskStep::Run {
        key: block.key.clone(),
        line: block.line,
        request: request.clone(),
        row: row.cloned(),
        approved,
    }
}
