//! Temporary.
#[path = "all/hostile/mod.rs"]
mod hostile;
