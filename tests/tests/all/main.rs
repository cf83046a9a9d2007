//! All cross-crate tests, in one binary: linking the engine once is enough.

mod pipeline;
