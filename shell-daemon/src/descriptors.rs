//! How many descriptors a process that serves may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit of open descriptors to what it may have (`setrlimit(2)`, `RLIMIT_NOFILE`). The
/// usual 1024 are meant for programs that wait with `select`; sessions, their commands and jobs take about a dozen
/// each, and a guest may have some hundred. A session has its own limit.
///
/// With fewer, what needs one fails when there are no more.
pub fn take_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
