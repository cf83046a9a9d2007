//! Foreign modules: loading, refusals, pins, and their rights.

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

use portcullis_testing::World;
use portcullis_tools::ToolRegistry;

use crate::hostile::wat_guest::WatGuest;

/// A world whose policy names the folder `modules` beside the policy file, with these modules in it.
fn world(modules: &[(&str, &[u8])]) -> World {
    let world = World::new().with_policy("[modules]\ndir = \"modules\"\n");
    fs::create_dir(folder(&world)).expect("a folder");
    for (name, bytes) in modules {
        fs::write(folder(&world).join(name), bytes).expect("written");
    }
    world
}

fn folder(world: &World) -> PathBuf {
    world.root().join("modules")
}

/// A module with one tool.
fn module(tool: &str) -> Vec<u8> {
    WatGuest::new(tool).bytes()
}

/// A module with one tool of the same name, with other bytes.
fn other_module(tool: &str) -> Vec<u8> {
    WatGuest { fields: "(func)".to_owned(), ..WatGuest::new(tool) }.bytes()
}

/// The file names of the refused modules, each with the error and all causes.
fn refused(registry: &ToolRegistry) -> Vec<(String, String)> {
    let shown = |module: &portcullis_tools::modules::RefusedModule| {
        (module.name().to_owned(), portcullis_types::chain(module.error()))
    };
    registry.refused_modules().iter().map(shown).collect()
}

/// Runs the command line in a world.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
pub(crate) fn portcullis(world: &World, words: &[&str]) -> Output {
    Command::new(portcullis_testing::binary())
        .args(world.options())
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
