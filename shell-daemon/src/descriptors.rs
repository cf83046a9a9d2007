//! The number of descriptors that a serving process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit of open descriptors to its hard limit (`setrlimit(2)`, `RLIMIT_NOFILE`).
/// The usual 1024 are meant for programs that wait with `select`; sessions, their commands and jobs take
/// about a dozen each, and a guest may have some hundred. Sessions have a separate limit.
///
/// If this fails, the old limit holds, and operations fail once the descriptors run out.
pub fn take_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
