//! Tests of task files, with a runner of calls that a test scripts.

mod approvals;
mod calls;
mod commonmark;
mod crash;
mod edits;
mod hostile;
mod watch;
mod world;
