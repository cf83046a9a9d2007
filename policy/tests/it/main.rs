//! What a policy promises, through its public interface: one module for each thing that can be asked of it.

mod assign;
mod authorize;
mod digest;
mod load;
mod model;
mod random;
mod reduce;
mod shell;
mod support;
