//! How one argument becomes a Rust value, and what is said where it does not.

mod decoder;
mod explain;
mod integers;
mod primitive;
mod structured;
mod unambiguous;

pub use decoder::{CannotDecode, DecodeFn, Decoder, Decodes, Mistakes};
pub use primitive::Primitive;
