//! Sessions as their users see them, on the real kernel, one binary for all.

mod bombs;
mod confinement;
mod endings;
mod hostile;
mod input;
mod jobs;
mod kills;
mod layers;
mod matrix;
mod postures;
mod profiles;
mod programs;
mod protected;
mod server;
mod state;
mod taken_away;
mod waiting;
mod world;
