//! From nothing to the first answer of a new tool: `tool new`, `tool build`, `tool try`, with an empty target
//! folder.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use portcullis_testing::World;

use crate::report::Report;

/// The time that an author waits, with the packages already on the machine.
const BUDGET_SECONDS: f64 = 60.0;

pub(crate) fn first_answer(world: &World, report: &mut Report) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk");
    let sdk = sdk.to_str().expect("text");
    let run = |words: &[&str]| {
        let output = command(world).args(words).output().expect("starts");
        assert!(output.status.success(), "{words:?}: {}", stderr_text(&output));
        output
    };
    let start = Instant::now();
    run(&["tool", "new", "first", "--sdk", sdk]);
    let made = start.elapsed();
    run(&["tool", "build", "--dir", "first"]);
    let built = start.elapsed();
    let arguments = r#"{"path": "/shared/bench/1.txt"}"#;
    let output = run(&["tool", "try", "first", arguments, "--dir", "first", "--grant", "WorkspaceRead"]);
    let answered = start.elapsed();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(" lines"), "{}", stderr_text(&output));
    report.reference("`tool new`", made.as_secs_f64(), "s");
    report.reference("`tool build`, nothing built before", (built - made).as_secs_f64(), "s");
    report.at_most(
        "`tool new`, `tool build`, `tool try` of a new tool",
        answered.as_secs_f64(),
        BUDGET_SECONDS,
        "s",
    );
}

/// The binary in the world's folder, with an empty target folder and without network.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn command(world: &World) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis-test"));
    command
        .current_dir(world.root())
        .env("CARGO_TARGET_DIR", world.root().join("fresh-target"))
        .env("CARGO_NET_OFFLINE", "true")
        .args(["--workspace".as_ref(), world.workspace().as_os_str()])
        .args(["--state".as_ref(), world.root().join("authoring-state").as_os_str()])
        .args(["--policy".as_ref(), world.policy_file().as_os_str()]);
    command
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
