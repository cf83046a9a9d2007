//! Who is asked when a call needs an approval, and what they are asked.

mod hint;
mod question;
mod session;
mod terminal;

pub(crate) use hint::hinted;
pub(crate) use question::question;
pub(crate) use session::SessionApprovals;
pub(crate) use terminal::TerminalApprover;
