//! `portcullis shell` and Ctrl-C: the command that it ends, and the session that goes on.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::World;
use portcullis_tools::audit::{Event, Outcome};
use portcullis_types::ToolErrorKind;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    person::{CTRL_C, CTRL_D, Person},
    support::is_argument,
};

/// The prompt for a command.
const PROMPT: &str = "portcullis$ ";

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// A time in seconds for which no other process sleeps.
fn own_seconds(beside: u8) -> String {
    format!("60{beside}.{}", std::process::id())
}

/// The outcomes of the commands, in order.
fn outcomes(world: &World) -> Vec<Outcome> {
    world.rows().into_iter().filter(|row| row.event == Event::End).filter_map(|row| row.outcome).collect()
}

#[test]
fn ctrl_c_ends_the_command_that_runs_and_the_next_one_runs() {
    let world = World::new();
    let seconds = own_seconds(1);
    let mut person = Person::starts(&world, &["shell"], "");
    person.sees(PROMPT);
    person.types(&format!("sleep {seconds}; touch never"));
    person.waits_until(|| is_argument(&seconds));
    person.presses(CTRL_C);
    person.sees(PROMPT);
    assert!(!is_argument(&seconds), "it has ended");
    person.types("echo next-$((1 + 1))");
    assert!(person.sees(PROMPT).contains("next-2\n"), "{}", person.seen);
    // Ctrl-C discards a half-typed command.
    person.presses("touch half");
    person.presses(CTRL_C);
    person.sees(PROMPT);
    person.types("exit 7");
    person.sees(PROMPT);
    person.presses(CTRL_D);
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(7), "{rest}");
    let made = fs::read_dir(world.shared("")).expect("readable").count();
    assert_eq!(made, 0, "neither what should come after the sleep, nor what was not entered");
    let cancelled = Outcome::Error(ToolErrorKind::Cancelled);
    assert_eq!(outcomes(&world), [cancelled, Outcome::Ok, Outcome::Ok]);
}

#[test]
fn a_terminated_shell_cancels_its_command_and_prompts_no_more() {
    let world = World::new();
    let seconds = own_seconds(3);
    let mut person = Person::starts(&world, &["shell"], "");
    person.sees(PROMPT);
    person.types(&format!("sleep {seconds}"));
    person.waits_until(|| is_argument(&seconds));
    person.terminates();
    let (rest, code) = person.sees_the_end();
    assert_eq!(code, Some(1), "{rest}");
    assert!(!rest.contains(PROMPT), "{rest}");
    assert_eq!(outcomes(&world), [Outcome::Error(ToolErrorKind::Cancelled)]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn a_list_of_commands_ends_with_the_one_that_is_interrupted() {
    let world = World::new();
    let seconds = own_seconds(2);
    let mut program = Command::new(portcullis_testing::binary())
        .args(world.options())
        .arg("shell")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let list = format!("touch first\nsleep {seconds}\ntouch third\n");
    let mut stdin = program.stdin.take().expect("piped");
    stdin.write_all(list.as_bytes()).expect("takes it");
    let deadline = Instant::now() + PATIENCE;
    while !is_argument(&seconds) {
        assert!(Instant::now() < deadline && program.try_wait().expect("a child").is_none());
    }
    kill_process(Pid::from_child(&program), Signal::INT).expect("sent");
    // The list is still open: the program did not end because its input did.
    let ended = program.wait().expect("ends");
    drop(stdin);
    assert_eq!(ended.code(), Some(1), "the code of the command that was cancelled");
    assert!(world.shared("first").exists() && !world.shared("third").exists());
    assert_eq!(outcomes(&world), [Outcome::Ok, Outcome::Error(ToolErrorKind::Cancelled)]);
}
