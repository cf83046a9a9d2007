//! Memory of an idle registry, and its growth over 100,000 calls.

use portcullis_testing::Fixture;
use portcullis_tools::ToolRegistry;

use crate::{process, read::Files, report::Report, sample::resident_bytes};

const CALLS: usize = 100_000;
const CALLS_PER_AGENT: usize = 500;

/// Measures the resident memory of this process with a registry that has served one call of each tier. Runs
/// first, while the process has only the registry and the list of files. Another process has compiled the
/// modules before.
pub(crate) fn idle(fixture: &Fixture, report: &mut Report) {
    for [tool, arguments] in
        [["file_search", r#"{"query":"nothing"}"#], ["file_list", r#"{"path":"/shared"}"#]]
    {
        let cache_fill = process::command(fixture, &fixture.state()).args(["call", tool, arguments]).output();
        let cache_fill = cache_fill.expect("starts");
        assert!(cache_fill.status.success(), "{}", String::from_utf8_lossy(&cache_fill.stderr));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let registry = runtime.block_on(fixture.registry());
    runtime.block_on(async {
        let call = |tool: &str, arguments: &str| portcullis_tools::new_call(tool, arguments);
        let caller = portcullis_tools::Caller::new("idle", "bench");
        let read = call("file_read", r#"{"path":"/shared/bench/0.txt"}"#);
        registry.execute_with_policy(read, &caller).await.into_result().expect("reads");
        let write = call("file_write", r#"{"path":"/shared/idle.txt","content":"x"}"#);
        registry.execute_with_policy(write, &caller).await.into_result().expect("writes");
    });
    report.check_at_most(
        "memory of an idle registry",
        megabytes(resident_bytes(std::process::id())),
        60.0,
        "MB",
    );
}

/// Measures the growth over many calls, after the first tenth of them has filled every pool and cache.
pub(crate) async fn growth(registry: &ToolRegistry, files: &Files, report: &mut Report) {
    let mut caller = files.unused_caller();
    let mut settled_bytes = 0;
    for number in 0..CALLS {
        if number % CALLS_PER_AGENT == 0 {
            caller = files.unused_caller();
        }
        if number == CALLS / 10 {
            settled_bytes = resident_bytes(std::process::id());
        }
        files.read(registry, &caller, number).await;
    }
    let growth_bytes = resident_bytes(std::process::id()).saturating_sub(settled_bytes);
    report.add_reference("memory after 10 000 calls", megabytes(settled_bytes), "MB");
    // The limit allows for page-sized noise of allocator and kernel; a leak of 16 bytes per call would exceed it.
    report.check_at_most("growth over the next 90 000 calls", megabytes(growth_bytes), 1.4, "MB");
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
