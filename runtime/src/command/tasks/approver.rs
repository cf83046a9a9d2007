//! The approver of calls in task files: a person approves by moving the file.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use portcullis_tools::approval::{
    ApprovalAnswer, ApprovalRequest, Approver, ApproverKind, AttributedAnswer, question,
};

/// How calls of task files are approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskApprovals {
    /// All calls are approved in advance.
    All,
    /// A call is approved if its task was moved to the folder of approved tasks after the same question.
    Folder,
    /// No call is approved.
    Nothing,
}

/// Answers the question of one call.
#[derive(Debug)]
pub(super) struct TaskApprover {
    approvals: TaskApprovals,
    /// The binding of the question that a person has answered by moving the task.
    approved: Option<String>,
    /// The binding and the text of the unanswered question.
    open_request: Mutex<Option<(String, String)>>,
}

impl TaskApprover {
    pub(super) fn new(approvals: TaskApprovals, approved: Option<String>) -> Self {
        Self { approvals, approved, open_request: Mutex::default() }
    }

    /// Takes the unanswered question, if one was asked.
    pub(super) fn take_open(&self) -> Option<(String, String)> {
        self.open_request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
impl Approver for TaskApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        match self.approvals {
            TaskApprovals::All => return AttributedAnswer::by(ApproverKind::Flag, ApprovalAnswer::Approve),
            TaskApprovals::Folder if self.approved.as_ref() == Some(&request.binding) => {
                return AttributedAnswer::by(ApproverKind::Program, ApprovalAnswer::Approve);
            }
            TaskApprovals::Folder | TaskApprovals::Nothing => {}
        }
        let question = truncate_to_line(&question(request, COLUMNS));
        *self.open_request.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((request.binding.clone(), question));
        AttributedAnswer::by(ApproverKind::Program, ApprovalAnswer::Unavailable)
    }
}

/// A width at which few lines of a question wrap.
const COLUMNS: usize = 200;

/// The maximum length of a question in a task file, in characters. The file contains the arguments anyway.
const MAX_QUESTION_CHARS: usize = 1_000;

/// Formats a question as one line of a task file.
fn truncate_to_line(question: &str) -> String {
    let lines: Vec<&str> = question.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    match line.char_indices().nth(MAX_QUESTION_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_one_bounded_line() {
        assert_eq!(
            truncate_to_line("This call needs your approval.\n  tool: x\n\n  tier: y\n"),
            "This call needs your approval.; tool: x; tier: y"
        );
        let long = truncate_to_line(&"ä".repeat(5_000));
        assert_eq!(long.chars().count(), MAX_QUESTION_CHARS + 1);
    }
}
