//! Who is asked when a call needs an approval, and what they are asked.

mod question;
mod session;
mod terminal;

pub(crate) use portcullis_tools::hinted;
pub(crate) use question::question;
pub(crate) use session::SessionApprovals;
pub(crate) use terminal::TerminalApprover;
