//! Tests of the policy's guarantees through its public interface, one module per subject.

mod assign;
mod authorize;
mod digest;
mod documents;
mod flow;
mod load;
mod mistakes;
mod model;
mod network;
mod notify;
mod random;
mod reduce;
mod search;
mod secrets;
mod shell;
mod support;
mod traced;
