//! Runs a single test in a process, to measure that process's memory or to capture all its output.

use std::{
    future::Future,
    process::{Command, Output},
};

const ALONE_VARIABLE: &str = "PORTCULLIS_TEST_ALONE";

/// Starts another process of this test binary, which runs only the test `name`, and returns that process's output. In
/// that process, runs `test` and returns `None`.
pub(super) fn run_in_separate_process(name: &str, test: impl Future<Output = ()>) -> Option<Output> {
    if std::env::var_os(ALONE_VARIABLE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("builds").block_on(test);
        return None;
    }
    #[expect(clippy::disallowed_methods, reason = "the test binary itself, with nothing of a guest's")]
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ALONE_VARIABLE, "1");
    let output = command.output().expect("starts");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} fails in a separate process:\n{text}");
    assert!(text.contains("1 passed"), "there is no test `{name}`:\n{text}");
    Some(output)
}

/// Returns the resident memory of this process, in bytes.
pub(super) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * u64::try_from(rustix::param::page_size()).expect("small")
}
