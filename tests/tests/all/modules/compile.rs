//! Compiling untrusted modules: in a process with limited time and memory. A compiled module that was
//! tampered with is not loaded.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use portcullis_testing::{CallOutcome, Fixture, binary};
use portcullis_tools::{
    BootstrapError, HostWasmToolRunner, bootstrap_runtime_tools,
    confine::{Requirement, probe_kernel},
    modules::ModuleError,
    policy::ProtectedPaths,
    sandbox::mounts::MountTable,
    sandbox::{CompileLimits, ModuleDigest, RunnerConfig, WasmError},
};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{fixture, folder, module, other_module, portcullis, refused_modules, stderr};
use crate::hostile::wat_guest::WatGuest;

/// Creates a runner in a fixture's state folder, with this compiler and these limits.
fn runner(fixture: &Fixture, compiler: Option<PathBuf>, compile_limits: CompileLimits) -> HostWasmToolRunner {
    let kernel = probe_kernel();
    let requirement = |missing: Option<&str>| match missing {
        None => Requirement::Required,
        Some(_) => Requirement::Waived,
    };
    portcullis_tools::state::prepare(&fixture.state()).expect("a state folder");
    HostWasmToolRunner::new(RunnerConfig {
        state: fixture.state(),
        mounts: Arc::new(MountTable::default()),
        protected: Arc::new(ProtectedPaths::parse([]).expect("no patterns")),
        hidden: Arc::default(),
        cache: fixture.state(),
        landlock: requirement(kernel.missing(portcullis_tools::confine::Layer::Landlock)),
        seccomp: requirement(kernel.missing(portcullis_tools::confine::Layer::Seccomp)),
        concurrency: 1,
        compiler,
        compile_limits,
    })
    .expect("a runner")
}

/// Creates a small module that keeps a compiler busy almost forever: one function with as many blocks as
/// permitted.
fn endless_module() -> Vec<u8> {
    let block = "(block (br_if 0 (local.get 0)) (local.set 1 (i32.add (local.get 1) (i32.const 1))))";
    let text = format!(
        "(module (memory (export \"memory\") 1) (func (export \"_start\") (local i32 i32) {}))",
        block.repeat(200_000)
    );
    wat::parse_str(text).expect("parses")
}

/// Creates a module with very many functions, each of which costs the compiler memory.
fn many_functions() -> Vec<u8> {
    let text = format!("(module (memory (export \"memory\") 1) {})", "(func)".repeat(400_000));
    wat::parse_str(text).expect("parses")
}

fn limits(cpu_seconds: u64, wall: Duration, memory_bytes: u64) -> CompileLimits {
    CompileLimits { cpu_seconds, wall, memory_bytes }
}

const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_module_too_costly_to_compile_is_a_clear_error() {
    let (blocks, functions) = (endless_module(), many_functions());
    for (bytes, limits, why) in [
        (&blocks, limits(1, LONG, 2 << 30), "compiling the module takes more than 1 s of processor time"),
        (
            &functions,
            limits(60, LONG, 400 << 20),
            "compiling the module takes more than 419430400 bytes of memory",
        ),
    ] {
        let fixture = Fixture::new();
        let runner = runner(&fixture, Some(binary()), limits);
        let error = runner.load_foreign(bytes).await.expect_err(why);
        assert!(matches!(error, WasmError::CompileLimit { .. }), "{error:?}");
        assert_eq!(error.to_string(), why);
        runner.load_foreign(&module("mine")).await.expect("the next one is compiled");
        let second_error = runner.load_foreign(bytes).await.expect_err("remembered");
        assert!(
            matches!(&second_error, WasmError::RefusedBefore { reason, .. } if reason == why),
            "{second_error:?}"
        );
    }
}

#[tokio::test]
async fn a_module_that_takes_too_long_by_the_clock_may_be_tried_again() {
    let fixture = Fixture::new();
    let short = limits(60, Duration::from_millis(300), 2 << 30);
    let runner = runner(&fixture, Some(binary()), short);
    for _ in 0..2 {
        let error = runner.load_foreign(&endless_module()).await.expect_err("too long");
        assert!(matches!(error, WasmError::Compiler { step: "it takes too long", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_million_exports_are_a_clear_error() {
    let exports: String = (0..1_000_001).map(|number| format!("(export \"e{number}\" (func 0))")).collect();
    let bytes = wat::parse_str(format!("(module (func) {exports})")).expect("parses");
    let fixture = fixture(&[("bomb.wasm", &bytes), ("good.wasm", &module("good"))]);
    let registry = fixture.registry().await;
    let refusals = refused_modules(&registry);
    assert!(refusals.len() == 1 && refusals[0].1.contains("exports count exceeds limit"), "{refusals:?}");
    assert_eq!(CallOutcome::run(&registry, "good", json!({})).await.text(), "done");
}

/// The module compiles, but no instance could get the memories and tables that it needs.
#[tokio::test]
async fn a_module_with_too_many_memories_or_tables_is_refused() {
    for (fields, why) in [
        ("(memory 1)".repeat(4), "memories count of 5 exceeds the per-instance limit of 4"),
        ("(table 1 funcref)".repeat(5), "tables count of 5 exceeds the per-instance limit of 4"),
        ("(table 100001 funcref)".to_owned(), "element size of 100001 which exceeds the limit of 100000"),
    ] {
        let greedy = WatGuest { fields, ..WatGuest::new("greedy") }.bytes();
        let fixture = fixture(&[("greedy.wasm", &greedy), ("good.wasm", &module("good"))]);
        // No compiled module is cached, so the next start reports the same.
        for _ in 0..2 {
            let registry = fixture.registry().await;
            let refusals = refused_modules(&registry);
            assert!(refusals.len() == 1 && refusals[0].1.contains(why), "{why}: {refusals:?}");
            assert_eq!(CallOutcome::run(&registry, "good", json!({})).await.text(), "done");
        }
    }
}

#[tokio::test]
async fn bad_or_endless_compiler_answer_is_an_error() {
    for (compiler, why) in [
        ("/nowhere/portcullis", "it cannot be started"),
        ("/bin/true", "it ended without an answer"),
        ("/bin/cat", "it ended without an answer"),
    ] {
        let fixture = Fixture::new();
        let runner = runner(&fixture, Some(compiler.into()), CompileLimits::default());
        let error = runner.load_foreign(&module("mine")).await.expect_err(compiler);
        assert!(matches!(error, WasmError::Compiler { step, .. } if step == why), "{compiler}: {error:?}");
    }
    let fixture = Fixture::new();
    let runner = runner(&fixture, Some("/usr/bin/yes".into()), CompileLimits::default());
    let error = runner.load_foreign(&module("mine")).await.expect_err("an endless answer");
    assert!(matches!(error, WasmError::CompileLimit { .. }), "{error:?}");
}

#[tokio::test]
async fn without_a_compiler_only_what_was_compiled_before_is_loaded() {
    let fixture = fixture(&[("m.wasm", &module("mine"))]);
    let mut envelope = fixture.envelope();
    envelope.compiler = None;
    let none = bootstrap_runtime_tools(&envelope).await.expect("bootstraps without it");
    let why = none.refused_modules()[0].error();
    assert!(matches!(why, ModuleError::Wasm(WasmError::NoCompiler)), "{why:?}");
    envelope.modules = vec![folder(&fixture).join("m.wasm")];
    let error = bootstrap_runtime_tools(&envelope).await.expect_err("it was named");
    assert!(matches!(&error, BootstrapError::Module { .. }), "{error:?}");
    drop(fixture.registry().await);
    let registry = bootstrap_runtime_tools(&envelope).await.expect("compiled meanwhile");
    assert_eq!(CallOutcome::run(&registry, "mine", json!({})).await.text(), "done");
}

#[tokio::test]
async fn a_compiled_module_that_was_tampered_with_is_not_loaded() {
    let (mine, other) = (module("mine"), other_module("mine"));
    let fixture = fixture(&[("m.wasm", &mine)]);
    drop(fixture.registry().await);
    fs::write(folder(&fixture).join("m.wasm"), &other).expect("written");
    drop(fixture.registry().await);
    let entry = |wasm: &[u8], ending: &str| {
        fixture.state().join("modules").join(format!("{}.{ending}", ModuleDigest::compute(wasm)))
    };
    let genuine = fs::read(entry(&mine, "cwasm")).expect("compiled");
    let mut flipped = genuine.clone();
    flipped[genuine.len() / 2] ^= 1;
    fs::write(folder(&fixture).join("m.wasm"), &mine).expect("written");
    for (description, forged) in [
        ("a bit", flipped),
        ("the end", genuine[..genuine.len() - 1].to_vec()),
        ("another module's", fs::read(entry(&other, "cwasm")).expect("compiled")),
        ("nothing", Vec::new()),
    ] {
        fs::write(entry(&mine, "cwasm"), forged).expect("written");
        let mut envelope = fixture.envelope();
        envelope.compiler = None;
        let registry = bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        let answer = CallOutcome::run(&registry, "mine", json!({})).await;
        let message = answer.assert_refused(ToolErrorKind::Unavailable, "module_gone");
        assert!(message.contains("removed or altered"), "{description}: {message}");
        drop(registry);
        // The invalid file is deleted, so the next start would compile again.
        let registry = bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        let refusals = refused_modules(&registry);
        assert!(
            refusals.len() == 1 && refusals[0].1.contains("no program is set up"),
            "{description}: {refusals:?}"
        );
    }
    fs::write(entry(&mine, "refused"), b"not ours").expect("written");
    let registry = fixture.registry().await;
    assert_eq!(CallOutcome::run(&registry, "mine", json!({})).await.text(), "done", "compiled again");
    assert_eq!(fs::read(entry(&mine, "cwasm")).expect("compiled").len(), genuine.len());
}

#[test]
fn the_command_line_refuses_a_broken_module_and_serves_others() {
    let fixture = fixture(&[("bad.wasm", b"\0asm\x01\0\0\0\xff"), ("good.wasm", &module("good"))]);
    for _ in 0..2 {
        let output = portcullis(&fixture, &["call", "good", "--approve"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("bad.wasm"), "{}", stderr(&output));
    }
}
