//! `tool new`, and the messages of `tool build` about crates that do not build.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{Author, sdk, target};

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let author = Author::new();
    let sdk = sdk();
    for name in ["", "a.b", "a b", "../x", "wörds", &"x".repeat(65)] {
        let (_, stderr_text) = author.run_expecting(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(stderr_text.contains("not a tool name"), "{stderr_text}");
    }
    fs::create_dir(author.path("taken")).expect("the folder can be made");
    fs::write(author.path("file"), "mine").expect("written");
    std::os::unix::fs::symlink("nowhere", author.path("link")).expect("links");
    for name in ["taken", "file", "link"] {
        let (_, stderr_text) = author.run_expecting(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(stderr_text.contains("already exists"), "{stderr_text}");
    }
    let (_, stderr_text) = author.run_expecting(2, &["tool", "new", "words", "--sdk", "taken"]);
    assert!(stderr_text.contains("`taken` is not the folder of the crate `portcullis-sdk`"), "{stderr_text}");
    author.run_expecting(1, &["tool", "new", "words", "--dir", "no/such/folder/words", "--sdk", &sdk]);
    let mut remaining_names: Vec<_> = fs::read_dir(author.root.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("the name is UTF-8"))
        .collect();
    remaining_names.sort();
    assert_eq!(remaining_names, ["file", "link", "taken"]);
    assert_eq!(fs::read_to_string(author.path("file")).expect("the file is readable"), "mine");
}

#[test]
fn without_an_sdk_above_it_says_what_to_pass() {
    let author = Author::new();
    // A program outside any checkout.
    let program = author.path("portcullis");
    fs::copy(portcullis_testing::binary(), &program).expect("copied");
    let output = author.command(&program).args(["tool", "new", "words"]).output().expect("starts");
    let stderr_text = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr_text}");
    assert!(stderr_text.contains("--sdk DIR"), "{stderr_text}");
    assert!(!author.path("words").exists());
}

#[test]
fn a_new_crate_in_a_checkout_has_a_relative_sdk_path() {
    let author = Author::new();
    // A workspace that does not list the crate; the checkout's workspace does not list it either.
    fs::write(author.path("Cargo.toml"), "[workspace]\nmembers = []\nresolver = \"3\"\n").expect("written");
    std::os::unix::fs::symlink(sdk(), author.path("sdk")).expect("links");
    author.run_successfully(&["tool", "new", "within"]);
    let manifest = fs::read_to_string(author.path("within/Cargo.toml")).expect("the file is readable");
    assert!(manifest.contains("[workspace]") && manifest.contains("/sdk\""), "{manifest}");
    let lock = fs::read_to_string(author.path("within/Cargo.lock")).expect("the file is readable");
    assert!(lock.contains("name = \"tool-within\"") && !lock.contains("name = \"wasmtime\""), "{lock}");
    for line in lock.lines().filter(|line| line.starts_with("version = ")) {
        let checkout = Path::new(&sdk()).join("../Cargo.lock");
        let is_own_version = line == "version = 4" || line == "version = \"0.1.0\"";
        assert!(
            is_own_version || fs::read_to_string(checkout).expect("the file is readable").contains(line),
            "{line}"
        );
    }
}

#[test]
fn a_crate_that_does_not_compile_is_cargos_to_explain() {
    let program = "//! x\nuse portcullis_sdk::{export_tools, tool};\n/// Fails.\n#[tool]\nfn broken() {}\nexport_tools![broken];\n";
    let author = Author::with_crate("broken", Some(program));
    for words in [&["tool", "build"][..], &["tool", "try", "broken"], &["tool", "test"]] {
        let (answer, stderr_text) = author.run_expecting(1, &[words, &["--dir", "crate"]].concat());
        assert_eq!(answer, "");
        assert!(stderr_text.contains("error: a tool is asynchronous: write `async fn`"), "{stderr_text}");
        assert!(
            stderr_text.contains("the module does not build; see cargo's messages above"),
            "{stderr_text}"
        );
    }
    let (_, stderr_text) = author.run_expecting(2, &["tool", "build"]);
    assert!(
        stderr_text.contains("there is no crate in `.`") && stderr_text.contains("portcullis tool new"),
        "{stderr_text}"
    );
}

#[test]
fn a_shipped_tools_name_is_refused_before_anything_is_made() {
    let author = Author::new();
    let sdk = sdk();
    for (name, expected_reason) in [
        ("file_read", "`file_read` is the name of a shipped tool"),
        ("shell_exec", "`shell_exec` is the name of a shipped tool"),
        ("vault_copyto_read", "`vault_copyto_read` is the name of a shipped tool"),
        ("f1le-read", "`f1le-read` looks like the shipped tool `file_read`"),
    ] {
        let (_, stderr_text) = author.run_expecting(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(
            stderr_text.contains(expected_reason) && stderr_text.contains("choose another"),
            "{stderr_text}"
        );
        assert!(!author.path(name).exists());
    }
}

#[test]
fn a_program_without_export_tools_is_reported() {
    let program = "//! x\nuse portcullis_sdk::tool;\n/// Forgotten.\n#[tool]\npub async fn forgotten() {}\n";
    let author = Author::with_crate("forgotten", Some(program));
    for words in [&["tool", "build"][..], &["tool", "try", "forgotten"]] {
        let (_, stderr_text) = author.run_expecting(1, &[words, &["--dir", "crate"]].concat());
        assert!(stderr_text.contains("src/main.rs` has no `export_tools!`"), "{stderr_text}");
        assert!(stderr_text.contains("`export_tools![NAME];`"), "{stderr_text}");
    }
    // This crate builds, and exports nothing.
    fs::write(author.path("crate/src/main.rs"), format!("{program}fn main() {{}}\n")).expect("written");
    let (_, stderr_text) = author.run_expecting(1, &["tool", "build", "--dir", "crate"]);
    assert!(stderr_text.contains("must end with `export_tools!`"), "{stderr_text}");
}

#[test]
fn a_tool_with_a_shipped_tools_name_is_refused() {
    let program = "//! x\nuse portcullis_sdk::{export_tools, tool};\n/// Reads.\n#[tool]\nasync fn file_read() {}\nexport_tools![file_read];\n";
    let author = Author::with_crate("reader", Some(program));
    let (_, stderr_text) = author.run_expecting(2, &["tool", "build", "--dir", "crate"]);
    assert!(
        stderr_text.contains("two tools are named `file_read`: one is shipped with Portcullis"),
        "{stderr_text}"
    );
}

#[test]
fn a_workspace_that_is_a_file_is_called_one() {
    let author = Author::new();
    fs::write(author.path("notes.txt"), "mine").expect("written");
    for words in [&["call", "echo", "{}"][..], &["tools"], &["policy", "check"], &["doctor"]] {
        let output = author.run(&[words, &["--workspace", "notes.txt"]].concat());
        let stderr_text = super::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr_text}");
        assert!(
            stderr_text.contains("notes.txt`") && stderr_text.contains("it is a file"),
            "{words:?}: {stderr_text}"
        );
        assert!(!stderr_text.contains("portcullis.toml"), "{words:?}: {stderr_text}");
    }
}

#[test]
fn a_missing_target_is_reported_in_one_line() {
    let author = Author::with_crate("untargeted", None);
    let real_cargo = find_program("cargo");
    let tools = author.path("tools");
    fs::create_dir(&tools).expect("the folder can be made");
    let script = |name: &str, text: &str| {
        let path = tools.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    };
    script(
        "cargo",
        &format!(
            "[ \"$1\" = metadata ] && exec '{}' \"$@\"\necho 'error[E0463]: no std' >&2; exit 101",
            real_cargo.display()
        ),
    );
    let rustc = find_program("rustc");
    let libdir_answer = "[ \"$1\" = --print ] && echo /nowhere/at/all && exit 0";
    script("rustc", &format!("{libdir_answer}\nexec '{}' \"$@\"", rustc.display()));
    let run = |path: &str| {
        author
            .command(&portcullis_testing::binary())
            .args(["tool", "build", "--dir", "crate"])
            .env("PATH", path)
            .output()
            .expect("starts")
    };
    let usual_path = std::env::var("PATH").expect("a path");
    let output = run(&format!("{}:{usual_path}", tools.display()));
    let stderr_text = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr_text}");
    assert!(
        stderr_text.contains("error[E0463]") && stderr_text.contains("rustup target add wasm32-wasip1"),
        "{stderr_text}"
    );
    let output = run("/nowhere");
    let stderr_text = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr_text}");
    assert!(stderr_text.contains("cannot start `cargo`"), "{stderr_text}");
}

fn find_program(program: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.exists())
        .expect("installed")
}

#[test]
fn a_module_that_is_too_large_or_wants_too_much_says_so() {
    let author = Author::with_crate("outsized", None);
    author.run_successfully(&["tool", "build", "--dir", "crate"]);
    let module = target().join("wasm32-wasip1/release/tool-outsized.wasm");
    let _built = RestoreFile(module.clone(), fs::read(&module).expect("the file is readable"));
    // Cargo does nothing here, because the module that it should build already exists.
    let wat = "(module (import \"env\" \"clock\" (func)) (import \"wasi_snapshot_preview1\" \"sock_open\" (func (param i32))) (memory (export \"memory\") 1) (func (export \"_start\")))";
    fs::write(&module, wat::parse_str(wat).expect("a module")).expect("written");
    let (answer, stderr_text) = author.run_expecting(1, &["tool", "build", "--dir", "crate"]);
    assert_eq!(answer, "");
    assert!(
        stderr_text.contains(
            "it imports functions that guests cannot have: `env::clock`, `wasi_snapshot_preview1::sock_open`"
        ),
        "{stderr_text}"
    );
    assert!(stderr_text.contains("module "), "{stderr_text}");
    fs::write(&module, vec![0; (16 << 20) + 1]).expect("written");
    let (_, stderr_text) = author.run_expecting(1, &["tool", "build", "--dir", "crate"]);
    assert!(stderr_text.contains("has 16777217 bytes; at most 16777216 are loaded"), "{stderr_text}");
}

/// Restores a file on drop, because cargo would not build it again.
struct RestoreFile(std::path::PathBuf, Vec<u8>);

impl Drop for RestoreFile {
    fn drop(&mut self) {
        fs::write(&self.0, &self.1).expect("written");
    }
}
