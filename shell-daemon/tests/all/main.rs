//! Tests sessions through the public interface on the real kernel. All these tests are in one binary.

mod bombs;
mod confinement;
mod endings;
mod fixture;
mod hostile;
mod input;
mod jobs;
mod kills;
mod layers;
mod matrix;
mod postures;
mod prepared_shell;
mod profiles;
mod programs;
mod protected;
mod server;
mod state;
mod taken_away;
mod toolchain;
