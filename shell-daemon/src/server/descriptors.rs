//! How many descriptors a daemon may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what is allowed: sessions, their commands and the jobs that these leave take about a
/// dozen each, and the usual 1024 are meant for programs that wait with `select`. A session has its own limit.
pub(super) fn take_all_there_are() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer a session or a connection is refused when there are no more, which is said then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
