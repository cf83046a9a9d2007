//! Who is asked when a call from the command line needs an approval.

mod terminal;

pub(crate) use terminal::{TerminalApprover, question};
