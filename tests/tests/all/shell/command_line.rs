//! The shell from the command line: the output that a person sees.

use std::{fs, process::Command};

use portcullis_testing::Fixture;
use serde_json::{Value, json};

use crate::modules::{portcullis, stderr, stdout};

fn exec(fixture: &Fixture, command: &str, options: &[&str]) -> std::process::Output {
    let arguments = json!({ "command": command }).to_string();
    portcullis(fixture, &[&["call", "shell_exec", &arguments], options].concat())
}

#[test]
fn one_command_after_the_other_runs_in_the_same_workspace() {
    let fixture = Fixture::new();
    fixture.put("note", "seen\n");
    let first = exec(&fixture, "cat note; echo $$ > pid", &["--approve"]);
    assert_eq!((first.status.code(), stdout(&first).as_str()), (Some(0), "seen\n"), "{}", stderr(&first));
    let second = exec(&fixture, "test -s pid && echo there; exit 9", &["--approve"]);
    assert_eq!((second.status.code(), stdout(&second).as_str()), (Some(0), "there\n[exit code: 9]"));
    let unapproved = exec(&fixture, "touch made", &[]);
    assert_eq!(unapproved.status.code(), Some(3));
    assert!(
        stderr(&unapproved).contains("--approve") && !fixture.shared("made").exists(),
        "{}",
        stderr(&unapproved)
    );
    let off = exec(&fixture, "touch made", &["--approve", "--shell", "off"]);
    assert_eq!(off.status.code(), Some(5), "{}", stderr(&off));
    let tokenless = exec(&fixture, "touch made", &["--approve", "--shell", "unix:/nowhere"]);
    assert_eq!(tokenless.status.code(), Some(2), "{}", stderr(&tokenless));
    assert!(!fixture.shared("made").exists());
}

#[test]
fn a_person_gets_output_and_exit_code_of_a_command_as_it_is() {
    let fixture = Fixture::new();
    let output = portcullis(&fixture, &["shell", "--", "echo", "hi;", "exit", "7"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), "hi\n"), "{}", stderr(&output));
    let killed = portcullis(&fixture, &["shell", "--", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137));
    let rows = fixture.rows();
    assert!(rows.iter().all(|row| row.run_id.as_deref() == Some("shell")));
    assert_eq!(rows.len(), 4);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn output_that_cannot_be_written_is_an_error() {
    let fixture = Fixture::new();
    let output = Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .args(["shell", "--", "echo hi; touch made"])
        .stdout(fs::File::options().write(true).open("/dev/full").expect("opens"))
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write to standard output"), "{}", stderr(&output));
    assert!(fixture.shared("made").exists(), "the command runs to its end");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn a_person_sees_what_jobs_write_after_their_command() {
    let fixture = Fixture::new();
    let list = fixture.root().join("list");
    let job = "(until [ -e go ]; do sleep 0.01; done; echo later; touch done) & echo first";
    fs::write(&list, format!("{job}\ntouch go; until [ -e done ]; do sleep 0.01; done; echo second\n"))
        .expect("written");
    let output = Command::new(portcullis_testing::binary())
        .args(fixture.options())
        .arg("shell")
        .stdin(fs::File::open(list).expect("the file can be opened"))
        .output()
        .expect("starts");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert_eq!(text, "first\nsecond\n[background jobs wrote since the last command:]\nlater\n");
}

#[test]
fn doctor_distinguishes_a_containers_refusal_from_its_own() {
    let fixture = Fixture::new();
    let free = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(!free.contains("start a thread                                   ENOSYS →"), "{free}");
    let container = stdout(
        &portcullis_testing::kernel_environment::KernelEnvironment::StockContainer
            .start(|| portcullis(&fixture, &["doctor"])),
    );
    let lines: Vec<_> = container.lines().filter(|line| line.contains("start a thread")).collect();
    assert!(!lines.is_empty(), "{container}");
    for line in lines {
        assert!(line.ends_with("ENOSYS before as well: already refused by something else"), "{line}");
    }
}

#[test]
fn listings_and_the_doctor_show_what_a_session_proved() {
    let fixture = Fixture::new();
    let listing = stdout(&portcullis(&fixture, &["tools"]));
    let line = listing.lines().find(|line| line.starts_with("shell_exec")).expect("listed");
    assert!(line.contains("Shell (/shared write, /tmp write)") && line.contains(" shell "), "{line}");
    let posture = listing.lines().find(|line| line.trim_start().starts_with("posture")).expect("a posture");
    assert!(posture.contains("seccomp=enforced"), "{posture}");
    let doctor = portcullis(&fixture, &["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", stdout(&doctor));
    let findings: Value = serde_json::from_str(&stdout(&doctor)).expect("JSON");
    let shell = &findings["shell"];
    assert_eq!((&shell["ok"], &shell["least"]), (&json!(true), &json!("contained")), "{shell}");
    let layers = shell["layers"].as_array().expect("layers");
    let proven = |layer: &Value| {
        layer["status"] != "enforced" || !layer["evidence"].as_array().expect("evidence").is_empty()
    };
    assert!(layers.len() >= 4 && layers.iter().all(proven), "{shell}");
}
