//! From nothing to the first answer of a new tool: `tool new`, `tool build`, `tool try`, with an empty target
//! folder.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use portcullis_testing::Fixture;

use crate::report::Report;

/// How long an author may wait if the packages are already on the machine.
const BUDGET_SECONDS: f64 = 60.0;

pub(crate) fn first_answer(fixture: &Fixture, report: &mut Report) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk");
    let sdk = sdk.to_str().expect("the path is UTF-8");
    let run = |words: &[&str]| {
        let output = command(fixture).args(words).output().expect("starts");
        assert!(output.status.success(), "{words:?}: {}", stderr_text(&output));
        output
    };
    let start = Instant::now();
    run(&["tool", "new", "first", "--sdk", sdk]);
    let made_after = start.elapsed();
    run(&["tool", "build", "--dir", "first"]);
    let built_after = start.elapsed();
    let arguments = r#"{"path": "/shared/bench/1.txt"}"#;
    let output = run(&["tool", "try", "first", arguments, "--dir", "first", "--grant", "WorkspaceRead"]);
    let answered_after = start.elapsed();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with(" lines"), "{}", stderr_text(&output));
    report.add_reference("`tool new`", made_after.as_secs_f64(), "s");
    report.add_reference("`tool build`, nothing built before", (built_after - made_after).as_secs_f64(), "s");
    report.check_at_most(
        "`tool new`, `tool build`, `tool try` of a new tool",
        answered_after.as_secs_f64(),
        BUDGET_SECONDS,
        "s",
    );
}

/// Creates a command of the binary in the fixture's folder, with an empty target folder and without network.
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn command(fixture: &Fixture) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis-test"));
    command
        .current_dir(fixture.root())
        .env("CARGO_TARGET_DIR", fixture.root().join("fresh-target"))
        .env("CARGO_NET_OFFLINE", "true")
        .args(["--workspace".as_ref(), fixture.workspace().as_os_str()])
        .args(["--state".as_ref(), fixture.root().join("authoring-state").as_os_str()])
        .args(["--policy".as_ref(), fixture.policy_file().as_os_str()]);
    command
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
