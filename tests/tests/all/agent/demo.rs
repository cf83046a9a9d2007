//! `portcullis demo`, the first command that a new user runs.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Output, Stdio},
};

use portcullis_testing::{Fixture, binary, kernel_or_skip};

use crate::modules::{portcullis, stderr, stdout};

/// The last line of a demonstration on a machine where every layer is enforced.
const ENFORCED: &str = "All that the policy requires is enforced and proven.";

/// Lines that show the session, in this order.
const SESSION: [&str; 14] = [
    "→ file_list",
    "→ file_search",
    "│ /shared/notes/todo.md:5:- [ ] TODO: pay the gas",
    "│ +- [ ] pay the gas",
    "`/etc/passwd` is not below any mount",
    "missing required field 'path' in arguments",
    "│ [output truncated — original size: 142,857 bytes]",
    "│ copied 39 bytes from /vault/letter.md to /shared/letter.md",
    "This call needs your approval.",
    "Approve? y (the demonstration answers)",
    "total",
    "│ cat: /vault/letter.md: No such file or directory",
    "│ [exit code: 1]",
    "Done: the notes are in order",
];

#[test]
fn the_demonstration_shows_each_kind_of_call_and_what_held_it() {
    let fixture = Fixture::new();
    let output = portcullis(&fixture, &["demo"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let closing_words = ["vault_copyto_write", "intact: 16 rows", ENFORCED];
    assert_words_in_order(&text, SESSION.iter().chain(&closing_words));
}

#[test]
fn the_readmes_recording_shows_the_demonstration() {
    let picture = include_str!("../../../../docs/demo.svg");
    // Extract the text of the picture, in which each word may be in a separate element.
    let outside = picture.split('<').filter_map(|element| element.split_once('>')).map(|(_, text)| text);
    let text: String = outside.flat_map(str::split_whitespace).collect();
    let text = text.replace("&quot;", "\"").replace("&apos;", "'").replace("&gt;", ">").replace("&amp;", "&");
    let words: Vec<String> = SESSION.iter().map(|words| words.replace(' ', "")).collect();
    assert_words_in_order(&text, words.iter().map(String::as_str).collect::<Vec<_>>().iter());
}

/// Asserts that the text contains all words, one after the other.
#[track_caller]
fn assert_words_in_order<'a>(text: &str, words: impl Iterator<Item = &'a &'a str>) {
    let mut rest = text;
    for words in words {
        let position = rest.find(words).unwrap_or_else(|| panic!("no `{words}` in the rest of\n{text}"));
        rest = &rest[position + words.len()..];
    }
}

#[test]
fn the_demonstration_leaves_the_callers_workspace_alone() {
    let fixture = Fixture::new();
    let output = portcullis(&fixture, &["demo"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_dir(fixture.workspace().join("shared")).expect("readable").count(), 0);
    let text = stdout(&output);
    let folder = text.split_whitespace().find(|word| word.contains("portcullis-demo-")).expect("a folder");
    assert!(!fs::exists(folder.trim_end_matches('.')).expect("can be told"), "{folder} is left");
}

#[test]
fn the_demonstration_can_be_kept_and_its_log_read() {
    let fixture = Fixture::new();
    let output = portcullis(&fixture, &["demo", "--keep"]);
    let text = stdout(&output);
    let kept_folder = text.lines().find_map(|line| line.strip_prefix("kept: ")).expect("says where");
    let notes = fs::read_to_string(format!("{kept_folder}/workspace/shared/notes/todo.md"))
        .expect("the file is readable");
    let log = fs::read_to_string(format!("{kept_folder}/state/audit.jsonl")).expect("the file is readable");
    fs::remove_dir_all(kept_folder).expect("removed");
    assert!(notes.ends_with("- [ ] pay the gas\n"), "{notes}");
    assert_eq!(log.lines().count(), 16);
}

/// Runs a program without a network: not even the loopback interface is up.
#[expect(clippy::disallowed_methods, reason = "namespaces are entered by a program of the system")]
fn run_without_network(program: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--"]).args(program);
    command.env("LC_ALL", "C").stdin(Stdio::null()).output().expect("starts")
}

#[test]
fn the_demonstration_needs_no_network() {
    if !kernel_or_skip("user namespaces", run_without_network(&["true"]).status.success()) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let connect = format!("exec 3<>/dev/tcp/{}/{}", address.ip(), address.port());
    let connects = ["bash", "-c", &connect];
    #[expect(clippy::disallowed_methods, reason = "the same program where there is a network")]
    let outside = Command::new(connects[0]).args(&connects[1..]).output().expect("starts");
    assert!(outside.status.success(), "somebody listens: {}", stderr(&outside));
    let refused = run_without_network(&connects);
    assert!(stderr(&refused).contains("Network is unreachable"), "{}", stderr(&refused));

    let program = binary();
    let output = run_without_network(&[program.to_str().expect("the path is UTF-8"), "demo"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    // Without a network the demonstration is complete, including the shell.
    for words in ["│  36 total", "Done: the notes are in order", "intact: 16 rows", ENFORCED] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
}

/// Runs a program with `false` mounted in place of bash.
#[expect(clippy::disallowed_methods, reason = "namespaces are entered by a program of the system")]
fn run_without_bash(program: &[&str]) -> Output {
    let script = r#"for folder in /usr/bin /bin; do
            if [ -x $folder/false ] && [ -x $folder/bash ]; then
                mount --bind $folder/false "$(readlink -f $folder/bash)" && exec "$@"
            fi
        done
        exit 77"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", script, "sh"]).args(program);
    command.env("LC_ALL", "C").stdin(Stdio::null()).output().expect("starts")
}

#[test]
fn a_demonstration_that_cannot_show_all_fails() {
    if !kernel_or_skip("user namespaces", run_without_bash(&["true"]).status.success()) {
        return;
    }
    let program = binary();
    let output = run_without_bash(&[program.to_str().expect("the path is UTF-8"), "demo"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(5), "{text}{}", stderr(&output));
    assert!(text.ends_with("Not all that the policy requires is enforced and proven.\n"), "{text}");
    assert!(text.contains("shell_unavailable"), "{text}");
}
