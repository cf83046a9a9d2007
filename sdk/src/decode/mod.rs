//! How one argument becomes a Rust value, and what is said where it does not.

mod decoder;
mod explain;
mod primitive;
mod structured;
mod unambiguous;
mod whole;

pub use decoder::{CannotDecode, DecodeFn, Decoder, Decodes, Mistakes};
pub use primitive::Primitive;
