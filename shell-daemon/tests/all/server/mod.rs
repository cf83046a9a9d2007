//! The sidecar, through its real program and a real client.

mod embedded;
mod sidecar;
