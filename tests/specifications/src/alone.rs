//! Runs tests of programs that use the default folders of policy and state. Each test gets a separate
//! process, whose environment names separate folders.

use std::{fs, process::Command};

use portcullis_testing::Fixture;

/// Environment variable that marks the separate process.
const MARK: &str = "PORTCULLIS_TEST_ALONE";

/// Marks around the program's output.
const BEGIN: &str = "<<< the program prints\n";
const END: &str = "\n>>> the program is over\n";

/// Returns whether this is the separate process.
pub(crate) fn is_separate_process() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs a program in the separate process, and prints the marks around its output.
pub(crate) fn print_between_marks(program: impl FnOnce()) {
    print!("{BEGIN}");
    program();
    print!("{END}");
}

/// Runs a test in a separate process, under the fixture's policy and with these additions to the environment.
/// The module's whole path and the function's name identify the test. Returns the output between the marks,
/// or `None` where this machine does not permit the test.
pub(crate) fn run_in_separate_process(
    module: &str,
    test: &str,
    fixture: &Fixture,
    environment: &[(&str, &str)],
) -> Option<String> {
    // The name of a test in its binary has no crate.
    let name = format!("{}::{test}", module.split_once("::").map_or(module, |(_, path)| path));
    if fs::exists("/etc/portcullis/portcullis.toml").unwrap_or(true) {
        assert!(std::env::var_os("CI").is_none(), "this machine has an operator's policy of its own");
        println!("skipped: this machine has an operator's policy, which comes before the test's");
        return None;
    }
    let config = fixture.root().join("config/portcullis");
    fs::create_dir_all(&config).expect("a folder");
    fs::copy(fixture.policy_file(), config.join("portcullis.toml")).expect("copied");

    #[expect(clippy::disallowed_methods, reason = "the test binary itself, for a separate environment")]
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", &name, "--nocapture"]).env(MARK, "1").envs(environment.iter().copied());
    command.env("XDG_CONFIG_HOME", fixture.root().join("config")).env("XDG_STATE_HOME", fixture.state());
    let output = command.output().expect("starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}{stderr_text}");
    let output_text = printed.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    Some(output_text.map(|(output_text, _)| output_text.to_owned()).unwrap_or_default())
}
