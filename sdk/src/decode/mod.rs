//! Decodes one argument into a Rust value, or explains why it does not decode.

mod decoder;
mod explain;
mod integers;
mod primitive;
mod structured;
mod unambiguous;

pub use decoder::{CannotDecode, DecodeFn, Decoder, Decodes, Mistakes};
pub use primitive::Primitive;
