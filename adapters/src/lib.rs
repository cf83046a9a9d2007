//! What programs import that were written for the agents of other projects, one module each, as their
//! specifications have them.
//!
//! The names are theirs, what is behind them is ours: every call goes through a registry and the operator's
//! policy, so a tool of the program's own runs only where the policy enables it by name.

pub mod everruns;
pub mod yoagent;
