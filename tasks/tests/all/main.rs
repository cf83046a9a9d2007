//! Tests of task files. A scripted runner runs the calls.

mod approvals;
mod calls;
mod commonmark;
mod crash;
mod edits;
mod hostile;
mod watch;
mod world;
