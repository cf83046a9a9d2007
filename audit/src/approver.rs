//! The approver of a call, as the call's row records it.

use serde::{Deserialize, Serialize};

use super::{
    row::{
        SharedText,
        write::{MAX_NAME_BYTES, field_number, field_text},
    },
    text::push_string,
};

portcullis_types::word_enum! {
    /// The kind of an approver.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ApproverKind {
        /// A person at this process's terminal.
        Terminal = "terminal",
        /// An option of the command line, such as `--approve`, with which the operator approved in advance.
        Flag = "flag",
        /// A person at a client of the Model Context Protocol, whom the client asked.
        Elicitation = "elicitation",
        /// An earlier answer, which covers later calls too.
        Session = "session",
        /// A person who answered from another process with `portcullis approvals`.
        Store = "store",
        /// Code of the program that embeds the runtime.
        Program = "program",
    }
}

/// The approver of a call, and the question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedApprover {
    /// The kind of approver.
    pub by: ApproverKind,
    /// The user of the process that took the answer. The operating system vouches for the user,
    /// but not for the name.
    pub uid: Option<u32>,
    /// The approver's name, if known: the terminal's device, or the name that a client gives itself.
    pub name: Option<SharedText>,
    /// SHA-256 of the question, which is stored in `questions/` of the state folder. `None` if no
    /// question was shown.
    pub question_sha256: Option<SharedText>,
    /// The rule that required the approval.
    pub rule: Option<SharedText>,
}

/// Writes the approver of a row.
pub(super) fn push_approver(out: &mut Vec<u8>, approver: &RecordedApprover) {
    out.extend_from_slice(b"{\"by\":");
    push_string(out, approver.by.as_str(), MAX_NAME_BYTES);
    field_number(out, "uid", approver.uid.map(u64::from));
    field_text(out, "name", approver.name.as_deref());
    field_text(out, "question_sha256", approver.question_sha256.as_deref());
    field_text(out, "rule", approver.rule.as_deref());
    out.push(b'}');
}
