//! Tests of programs that find policy and state in the usual places: each runs in a process of its own, with
//! places of its own.

use std::{fs, process::Command};

use portcullis_testing::World;

/// Set in such a process.
const MARK: &str = "PORTCULLIS_TEST_ALONE";

/// Where what the program prints begins and ends.
const BEGIN: &str = "<<< the program prints\n";
const END: &str = "\n>>> the program is over\n";

/// Whether this is the process of its own.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs in the process of its own, and marks what is printed.
pub(crate) fn printing(program: impl FnOnce()) {
    print!("{BEGIN}");
    program();
    print!("{END}");
}

/// Runs a test, named by its module's whole path and its own name, in a process of its own under the world's policy,
/// with more in its environment; gives what it printed between the marks, or none where that is not to be had here.
pub(crate) fn run_alone(
    module: &str,
    test: &str,
    world: &World,
    environment: &[(&str, &str)],
) -> Option<String> {
    // The path without the crate is how the test binary knows it.
    let name = format!("{}::{test}", module.split_once("::").map_or(module, |(_, path)| path));
    if fs::exists("/etc/portcullis/portcullis.toml").unwrap_or(true) {
        assert!(std::env::var_os("CI").is_none(), "this machine has an operator's policy of its own");
        println!("skipped: this machine has an operator's policy, which comes before the test's");
        return None;
    }
    let config = world.root().join("config/portcullis");
    fs::create_dir_all(&config).expect("a folder");
    fs::copy(world.policy_file(), config.join("portcullis.toml")).expect("copied");

    #[expect(clippy::disallowed_methods, reason = "the test binary itself, for an environment of its own")]
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", &name, "--nocapture"]).env(MARK, "1").envs(environment.iter().copied());
    command.env("XDG_CONFIG_HOME", world.root().join("config")).env("XDG_STATE_HOME", world.state());
    let output = command.output().expect("starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}{told}");
    let between = printed.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    Some(between.map(|(between, _)| between.to_owned()).unwrap_or_default())
}
