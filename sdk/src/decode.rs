//! Decodes one argument into a Rust value, or explains why it does not decode.

mod decoder;
mod duplicate_keys;
mod explain;
mod integers;
mod primitive;
mod structured;

pub use decoder::{CannotDecode, DecodeFn, Decoder, Decodes, Faults};
pub use primitive::{Mismatch, Primitive};
