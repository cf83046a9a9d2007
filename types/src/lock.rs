//! Locks of paths, which guests take from their host.

/// The name of the module from which guests import the functions for locks.
pub const LOCK_IMPORT: &str = "portcullis_fs";

/// The maximum number of locks that one call can hold: 16. Each is an open file of the host.
pub const MAX_HELD_LOCKS: usize = 16;
