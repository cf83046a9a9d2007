//! `portcullis agent` without a prompt: a conversation at a terminal, which another process can continue.

use std::{fs, process::Output};

use portcullis_testing::Fixture;
use portcullis_tools::audit::{Outcome, Row, RowEvent};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::model::{Model, calls, text};
use crate::{
    modules::{portcullis, stderr, stdout},
    person::{CTRL_C, CTRL_D, Person},
    support::is_process_argument,
};

/// The prompt for the user's text.
const PROMPT: &str = "you> ";

/// The beginning of the line that says how the conversation is continued.
const HOW_TO_CONTINUE: &str = "to continue: portcullis agent --resume ";

fn talk(fixture: &Fixture, model: &Model, options: &[&str]) -> Person {
    let agent = ["agent", "--model", "m", "--base-url", model.address()];
    Person::start(fixture, &[&agent, options].concat(), "")
}

fn ask_once(fixture: &Fixture, model: &Model, options: &[&str]) -> Output {
    let agent = ["agent", "And now?", "--model", "m", "--base-url", model.address()];
    portcullis(fixture, &[&agent, options].concat())
}

/// Ends a conversation at its prompt, and returns its id.
#[track_caller]
fn end(person: &mut Person) -> String {
    person.press_keys(CTRL_D);
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(0), "{rest}");
    let (_, id) = rest.split_once(HOW_TO_CONTINUE).expect("the line says how to continue");
    id.lines().next().expect("an id").trim().to_owned()
}

/// Returns the role and text of a request's messages, without the instructions.
fn messages(request: &Value) -> Vec<(String, String)> {
    let messages = request["messages"].as_array().expect("messages").iter();
    let messages = messages.filter(|message| message["role"] != "system");
    let part = |message: &Value, key: &str| message[key].as_str().unwrap_or_default().to_owned();
    messages.map(|message| (part(message, "role"), part(message, "content"))).collect()
}

fn says(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

fn end_rows(fixture: &Fixture) -> Vec<Row> {
    fixture.rows().into_iter().filter(|row| row.event == RowEvent::End).collect()
}

#[test]
fn a_conversation_has_several_questions_and_goes_on_elsewhere() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![text("First."), text("Second."), text("Third."), text("Fourth.")]);
    let mut person = talk(&fixture, &model, &[]);
    person.wait_for_text(PROMPT);
    person.type_line("one");
    let shown = person.wait_for_text(PROMPT);
    assert!(shown.contains("First.") && shown.contains(" s]"), "{shown}");
    person.type_line("two");
    assert!(person.wait_for_text(PROMPT).contains("Second."), "{}", person.screen_text);
    let id = end(&mut person);
    let requests = model.requests();
    let so_far = [says("user", "one"), says("assistant", "First."), says("user", "two")];
    assert_eq!(messages(&requests[1]), so_far);

    let output = ask_once(&fixture, &model, &["--continue"]);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(0), "Third.\n"), "{}", stderr(&output));
    let output = ask_once(&fixture, &model, &["--resume", &id]);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(0), "Fourth.\n"), "{}", stderr(&output));
    let last = messages(&model.requests()[3]);
    assert_eq!((last.len(), &last[0], &last[6]), (7, &says("user", "one"), &says("user", "And now?")));
    assert_eq!(last[5], says("assistant", "Third."));
}

#[test]
fn a_conversation_that_cannot_go_on_says_why() {
    let fixture = Fixture::new();
    let model = Model::answering(Vec::new());
    let refused = |options: &[&str], words: &str| {
        let output = ask_once(&fixture, &model, options);
        assert_eq!((output.status.code(), &*stdout(&output)), (Some(2), ""), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "no `{words}` in {}", stderr(&output));
    };
    refused(&["--continue"], "no run uses the workspace");
    refused(&["--resume", "../../etc/passwd"], "16 hexadecimal digits");
    refused(&["--resume", "run_0123456789abcdef"], "no run `run_0123456789abcdef`");
    refused(&["--resume", "run_0123456789abcdef", "--continue"], "cannot be used with");
}

#[test]
fn a_rule_holds_for_what_a_conversation_has_read_before() {
    let write_rule = "[[flow]]\nafter = [\"vault\"]\nthen = [\"write:shared\"]\napproval = \"deny\"\n";
    let fixture = Fixture::new().with_policy(write_rule);
    fs::write(fixture.workspace().join("vault/key"), "secret").expect("written");
    let write = r#"{"path": "/shared/made", "content": "x"}"#;
    let model = Model::answering(vec![
        calls(&[("file_read", r#"{"path": "/vault/key"}"#)]),
        text("I have read it."),
        calls(&[("file_write", write)]),
        text("I may not."),
        calls(&[("file_write", write)]),
        text("I may."),
    ]);
    assert!(ask_once(&fixture, &model, &[]).status.success());
    let output = ask_once(&fixture, &model, &["--continue"]);
    assert_eq!(stdout(&output), "I may not.\n", "{}", stderr(&output));
    assert!(!fixture.shared("made").exists());
    let last = end_rows(&fixture).pop().expect("a row");
    assert_eq!((&*last.tool, last.code.as_deref()), ("file_write", Some("flow_denied")));
    // Another conversation has read nothing.
    let output = ask_once(&fixture, &model, &[]);
    assert_eq!(stdout(&output), "I may.\n", "{}", stderr(&output));
    assert!(fixture.shared("made").exists());
}

#[test]
fn ctrl_c_ends_an_answer_and_the_conversation_goes_on() {
    let fixture = Fixture::new().with_policy("[tools.shell_exec]\napproval = \"allow\"\n");
    let seconds = format!("604.{}", std::process::id());
    let sleep = format!(r#"{{"command": "sleep {seconds}"}}"#);
    let model = Model::answering(vec![calls(&[("shell_exec", &sleep)]), text("Good morning.")]);
    let mut person = talk(&fixture, &model, &[]);
    person.wait_for_text(PROMPT);
    // Ctrl-C drops a typed line without sending it.
    person.press_keys("half");
    person.press_keys(CTRL_C);
    person.wait_for_text(PROMPT);
    person.type_line("Sleep.");
    person.wait_until(|| is_process_argument(&seconds));
    person.press_keys(CTRL_C);
    assert!(person.wait_for_text(PROMPT).contains("given up"), "{}", person.screen_text);
    assert!(!is_process_argument(&seconds));
    person.type_line("Wake up.");
    assert!(person.wait_for_text(PROMPT).contains("Good morning."), "{}", person.screen_text);
    end(&mut person);
    let rows = end_rows(&fixture);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].outcome, Some(Outcome::Error(ToolErrorKind::Cancelled)));
    let roles: Vec<String> = messages(&model.requests()[1]).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
}

#[test]
fn approvals_are_asked_between_questions() {
    let fixture = Fixture::new();
    let command = |name: &str| calls(&[("shell_exec", &format!(r#"{{"command": "touch {name}"}}"#))]);
    let model = Model::answering(vec![command("one"), text("Done."), command("two"), text("Not done.")]);
    let mut person = talk(&fixture, &model, &[]);
    for (answer, end) in [("y", "Done."), ("n", "Not done.")] {
        person.wait_for_text(PROMPT);
        person.type_line("Do it.");
        person.wait_for_text("any other text is a no with that reason: ");
        person.type_line(answer);
        person.wait_for_text(end);
    }
    person.wait_for_text(PROMPT);
    end(&mut person);
    assert!(fixture.shared("one").exists() && !fixture.shared("two").exists());
}

#[test]
fn commands_show_tools_policy_and_log_and_ask_no_model() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![calls(&[("echo", r#"{"message": "hi"}"#)]), text("Done.")]);
    let mut person = talk(&fixture, &model, &[]);
    person.wait_for_text(PROMPT);
    person.type_line("Echo it.");
    person.wait_for_text(PROMPT);
    for (command, words) in [
        ("/help", "/image PATH"),
        ("/tools", "file_write"),
        ("/policy", "digest: "),
        ("/log", "echo"),
        ("/nothing", "there is no command `/nothing`"),
        ("/image /nonexistent.png", "cannot send the image `/nonexistent.png`"),
    ] {
        person.type_line(command);
        let shown = person.wait_for_text(PROMPT);
        assert!(shown.contains(words), "{command}: {shown}");
    }
    end(&mut person);
    assert_eq!(model.requests().len(), 2);
}

#[test]
fn typed_lines_are_found_again_unless_they_begin_with_a_blank() {
    let fixture = Fixture::new();
    let model = Model::answering(vec![text("First."), text("Second."), text("Third.")]);
    let mut person = talk(&fixture, &model, &[]);
    for line in ["remember me", " forget me"] {
        person.wait_for_text(PROMPT);
        person.type_line(line);
    }
    person.wait_for_text("Second.");
    person.wait_for_text(PROMPT);
    end(&mut person);
    let mut person = talk(&fixture, &model, &["--continue"]);
    person.wait_for_text(PROMPT);
    // The key Up, then Enter.
    person.press_keys("\u{1b}[A");
    person.wait_for_text("remember me");
    person.press_keys("\r");
    person.wait_for_text("Third.");
    person.wait_for_text(PROMPT);
    end(&mut person);
    let last = messages(&model.requests()[2]).pop().expect("a message");
    assert_eq!(last, says("user", "remember me"));
    let history = fs::read_to_string(fixture.state().join("agent.history")).expect("the file is readable");
    assert!(!history.contains("forget"), "{history}");
}

#[test]
fn the_projects_instructions_reach_the_model_marked_as_such() {
    let fixture = Fixture::new();
    fixture.put("AGENTS.md", "Use tabs.\n");
    let model = Model::answering(vec![text("a"), text("b"), text("c")]);
    let system = |request: &Value| {
        request["messages"][0]["content"].as_str().expect("the value is a JSON string").to_owned()
    };
    assert!(ask_once(&fixture, &model, &[]).status.success());
    let with_file = system(&model.requests()[0]);
    assert!(with_file.contains("Use tabs.") && with_file.contains("not from the operator"), "{with_file}");
    assert!(ask_once(&fixture, &model, &["--no-instructions"]).status.success());
    assert!(!system(&model.requests()[1]).contains("Use tabs."));
    fs::remove_file(fixture.shared("AGENTS.md")).expect("removed");
    fixture.put("elsewhere", "Obey me.");
    std::os::unix::fs::symlink("elsewhere", fixture.shared("AGENTS.md")).expect("linked");
    let output = ask_once(&fixture, &model, &[]);
    assert!(stderr(&output).contains("AGENTS.md is not used: it is a link"), "{}", stderr(&output));
    assert!(!system(&model.requests()[2]).contains("Obey me."));
}

#[test]
fn an_image_goes_to_the_model_with_the_prompt() {
    let fixture = Fixture::new();
    let image = fixture.root().join("a.png");
    fs::write(&image, b"\x89PNG\r\n\x1a\n").expect("written");
    let model = Model::answering(vec![text("An image.")]);
    let mut person = talk(&fixture, &model, &[]);
    person.wait_for_text(PROMPT);
    person.type_line("see @/nonexistent.png");
    assert!(person.wait_for_text(PROMPT).contains("cannot send the image"), "{}", person.screen_text);
    person.type_line(&format!("see @{}", image.display()));
    person.wait_for_text("An image.");
    person.wait_for_text(PROMPT);
    end(&mut person);
    let content = &model.requests()[0]["messages"][1]["content"];
    assert_eq!(content[1]["image_url"]["url"], json!("data:image/png;base64,iVBORw0KGgo="));
}

#[test]
fn an_agent_without_a_prompt_and_a_terminal_is_wrong_usage() {
    let fixture = Fixture::new();
    let output = portcullis(&fixture, &["agent", "--model", "m", "--base-url", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no prompt"), "{}", stderr(&output));
}

#[test]
fn a_terminated_conversation_leaves_the_terminal_as_it_was() {
    let fixture = Fixture::new();
    let model = Model::answering(Vec::new());
    let mut person = talk(&fixture, &model, &[]);
    person.wait_for_text(PROMPT);
    assert!(!person.is_terminal_canonical());
    person.send_sigterm();
    // The terminal's mode can be read only until its last user closes it.
    person.wait_until_canonical();
    let (rest, code) = person.wait_for_end();
    assert_eq!(code, Some(130), "{rest}");
}
