//! The hostile guests, as the build script found and built them.

include!(concat!(env!("OUT_DIR"), "/guests.rs"));
