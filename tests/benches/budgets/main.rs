//! Measures the budgets of the design: prints each number with its limit and a comparison from the same run.
//! Exits with 1 when a budget is missed.
//!
//! Run with `cargo xtask bench`. The comparisons need ripgrep (`rg`), bubblewrap (`bwrap`) and the reference
//! server for MCP (`.ci/node-packages mcp`). "Whole pipeline" is `execute_with_policy` under the shipped policy,
//! with the audit log on disk, Landlock and seccomp on, another file at each call, and the output compared.

mod agent;
mod arguments;
mod auditing;
mod authoring;
mod bombs;
mod gateway;
mod list;
mod mcp;
mod memory;
mod modules;
mod network;
mod process;
mod read;
mod report;
mod repository;
mod runs;
mod sample;
mod search;
mod shell;
mod tasks;
mod undo;

use std::{process::ExitCode, sync::Arc};

use portcullis_testing::Fixture;

use report::Report;

fn main() -> ExitCode {
    // `cargo test --benches` runs this to see that it builds and starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    // Names on the command line select parts; without names all parts run.
    let chosen_parts: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runs = |part: &str| chosen_parts.is_empty() || chosen_parts.iter().any(|name| name == part);
    let mut report = Report::default();
    let fixture = Fixture::new();
    let files = Arc::new(read::Files::create(&fixture));
    if runs("idle") {
        memory::idle(&fixture, &mut report);
    }
    let registry = Arc::new(runtime.block_on(fixture.registry()));
    if runs("latency") {
        runtime.block_on(read::latency(&registry, &fixture, &files, &mut report));
    }
    if runs("throughput") {
        runtime.block_on(read::throughput(&registry, &files, &mut report));
    }
    if runs("list") {
        runtime.block_on(list::listing(&registry, &fixture, &mut report));
    }
    if runs("search") {
        runtime.block_on(search::searching(&registry, &fixture, &mut report));
    }
    if runs("shell") {
        runtime.block_on(shell::commands(&fixture, &mut report));
    }
    if runs("bombs") {
        runtime.block_on(bombs::neighbour(&fixture, &mut report));
    }
    if runs("runs") {
        runtime.block_on(runs::storing(&mut report));
    }
    if runs("gateway") {
        runtime.block_on(gateway::serving(&mut report));
    }
    if runs("tasks") {
        runtime.block_on(tasks::scanning(&mut report));
    }
    if runs("agent") {
        runtime.block_on(agent::overhead(&files, &mut report));
        agent::slow_reader(&mut report);
    }
    if runs("mcp") {
        mcp::calls(&fixture, &files, &mut report);
    }
    if runs("network") {
        runtime.block_on(network::network(&mut report));
    }
    if runs("arguments") {
        arguments::decoding(&mut report);
    }
    if runs("modules") {
        modules::starting(&mut report);
    }
    if runs("process") {
        process::start(&fixture, &files, &mut report);
        process::first_calls(&fixture, &mut report);
        process::demo(&mut report);
    }
    if runs("authoring") {
        authoring::first_answer(&fixture, &mut report);
    }
    if runs("growth") {
        runtime.block_on(memory::growth(&registry, &files, &mut report));
    }
    if runs("auditing") {
        auditing::log(&mut report);
        auditing::checkpoints(&mut report);
        runtime.block_on(auditing::mounts(&fixture, &mut report));
    }
    // These leave many dirty pages, whose writeback would slow the other parts, so they come last.
    if runs("repository") {
        runtime.block_on(repository::walking(&registry, &fixture, &mut report));
    }
    if runs("undo") {
        runtime.block_on(undo::keeping(&mut report));
    }
    runtime.shutdown_background();
    report.print();
    if report.all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
