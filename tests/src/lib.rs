//! What the acceptance and hostile tests share: a world of their own for each, and the hostile guests.

mod guests;
mod modules;
mod world;

pub use guests::guest;
pub use world::{Answer, World, approving, binary, kernel_or_skip};
