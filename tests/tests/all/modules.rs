//! Foreign modules: loading, refusals, pins, and grants.

mod approve;
mod compile;
mod describe;
mod folder;
mod names;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use portcullis_testing::Fixture;
use portcullis_tools::ToolRegistry;

use crate::hostile::wat_guest::WatGuest;

/// Creates a fixture whose policy names the folder `modules` beside the policy file, with these modules in
/// it.
fn fixture(modules: &[(&str, &[u8])]) -> Fixture {
    let fixture = Fixture::new().with_policy("[modules]\ndir = \"modules\"\n");
    fs::create_dir(folder(&fixture)).expect("a folder");
    for (name, bytes) in modules {
        fs::write(folder(&fixture).join(name), bytes).expect("written");
    }
    fixture
}

fn folder(fixture: &Fixture) -> PathBuf {
    fixture.root().join("modules")
}

fn module(tool: &str) -> Vec<u8> {
    WatGuest::new(tool).bytes()
}

/// Creates a module with a tool of the same name, but with other bytes.
fn other_module(tool: &str) -> Vec<u8> {
    WatGuest { fields: "(func)".to_owned(), ..WatGuest::new(tool) }.bytes()
}

/// Returns the file names of the refused modules, each with the error and all causes.
fn refused_modules(registry: &ToolRegistry) -> Vec<(String, String)> {
    let describe = |module: &portcullis_tools::modules::RefusedModule| {
        (module.name().to_owned(), portcullis_types::error_chain(module.error()))
    };
    registry.refused_modules().iter().map(describe).collect()
}

/// Runs the command line in a fixture.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn portcullis(fixture: &Fixture, words: &[&str]) -> Output {
    Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("starts")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
