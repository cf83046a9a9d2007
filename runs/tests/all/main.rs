//! A run that is killed at any place goes on in another process, with the same history and each effect at most once.

mod crash;
mod crashing_store;
mod model;
mod questions;
mod world;
