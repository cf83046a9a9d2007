//! `tool new`, and the messages of `tool build` about crates that do not build.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{Author, sdk, target};

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let author = Author::new();
    let sdk = sdk();
    for name in ["", "Words", "a b", "../x", "wörds", &"x".repeat(65)] {
        let (_, said) = author.exits(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(said.contains("not a tool name"), "{said}");
    }
    fs::create_dir(author.path("taken")).expect("made");
    fs::write(author.path("file"), "mine").expect("written");
    std::os::unix::fs::symlink("nowhere", author.path("link")).expect("links");
    for name in ["taken", "file", "link"] {
        let (_, said) = author.exits(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(said.contains("already exists"), "{said}");
    }
    let (_, said) = author.exits(2, &["tool", "new", "words", "--sdk", "taken"]);
    assert!(said.contains("`taken` is not the folder of the crate `portcullis-sdk`"), "{said}");
    author.exits(1, &["tool", "new", "words", "--dir", "no/such/folder/words", "--sdk", &sdk]);
    let mut left: Vec<_> = fs::read_dir(author.root.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    left.sort();
    assert_eq!(left, ["file", "link", "taken"]);
    assert_eq!(fs::read_to_string(author.path("file")).expect("there"), "mine");
}

#[test]
fn without_an_sdk_above_it_says_what_to_pass() {
    let author = Author::new();
    // A program outside any checkout.
    let program = author.path("portcullis");
    fs::copy(portcullis_testing::binary(), &program).expect("copied");
    let output = author.command(&program).args(["tool", "new", "words"]).output().expect("starts");
    let said = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--sdk DIR"), "{said}");
    assert!(!author.path("words").exists());
}

#[test]
fn a_crate_in_a_checkout_stands_alone_with_a_relative_sdk_path() {
    let author = Author::new();
    // A workspace that does not list the crate, as the checkout's workspace does not.
    fs::write(author.path("Cargo.toml"), "[workspace]\nmembers = []\nresolver = \"3\"\n").expect("written");
    std::os::unix::fs::symlink(sdk(), author.path("sdk")).expect("links");
    author.succeeds(&["tool", "new", "within"]);
    let manifest = fs::read_to_string(author.path("within/Cargo.toml")).expect("there");
    assert!(manifest.contains("[workspace]") && manifest.contains("/sdk\""), "{manifest}");
    let lock = fs::read_to_string(author.path("within/Cargo.lock")).expect("there");
    assert!(lock.contains("name = \"tool-within\"") && !lock.contains("name = \"wasmtime\""), "{lock}");
    for line in lock.lines().filter(|line| line.starts_with("version = ")) {
        let checkout = Path::new(&sdk()).join("../Cargo.lock");
        let ours = line == "version = 4" || line == "version = \"0.1.0\"";
        assert!(ours || fs::read_to_string(checkout).expect("there").contains(line), "{line}");
    }
}

#[test]
fn a_crate_that_does_not_compile_is_cargos_to_explain() {
    let program = "//! x\nuse portcullis_sdk::{export_tools, tool};\n/// Fails.\n#[tool]\nfn broken() {}\nexport_tools![broken];\n";
    let author = Author::with_crate("broken", Some(program));
    for words in [&["tool", "build"][..], &["tool", "try", "broken"], &["tool", "test"]] {
        let (answer, said) = author.exits(1, &[words, &["--dir", "crate"]].concat());
        assert_eq!(answer, "");
        assert!(said.contains("error: a tool is asynchronous: write `async fn`"), "{said}");
        assert!(said.contains("the module does not build; see cargo's messages above"), "{said}");
    }
    let (_, said) = author.exits(2, &["tool", "build"]);
    assert!(said.contains("there is no crate in `.`") && said.contains("portcullis tool new"), "{said}");
}

#[test]
fn a_shipped_tools_name_is_refused_before_anything_is_made() {
    let author = Author::new();
    let sdk = sdk();
    for (name, said_of_it) in [
        ("file_read", "`file_read` is the name of a shipped tool"),
        ("shell_exec", "`shell_exec` is the name of a shipped tool"),
        ("vault_copyto_read", "`vault_copyto_read` is the name of a shipped tool"),
        ("f1le-read", "`f1le-read` would be taken for the shipped tool `file_read`"),
    ] {
        let (_, said) = author.exits(2, &["tool", "new", name, "--sdk", &sdk]);
        assert!(said.contains(said_of_it) && said.contains("choose another"), "{said}");
        assert!(!author.path(name).exists());
    }
}

#[test]
fn a_program_without_export_tools_is_told_of_it() {
    let program = "//! x\nuse portcullis_sdk::tool;\n/// Forgotten.\n#[tool]\npub async fn forgotten() {}\n";
    let author = Author::with_crate("forgotten", Some(program));
    for words in [&["tool", "build"][..], &["tool", "try", "forgotten"]] {
        let (_, said) = author.exits(1, &[words, &["--dir", "crate"]].concat());
        assert!(said.contains("src/main.rs` has no `export_tools!`"), "{said}");
        assert!(said.contains("`export_tools![NAME];`"), "{said}");
    }
    // This one builds, and exports nothing.
    fs::write(author.path("crate/src/main.rs"), format!("{program}fn main() {{}}\n")).expect("written");
    let (_, said) = author.exits(1, &["tool", "build", "--dir", "crate"]);
    assert!(said.contains("ends with `export_tools!`"), "{said}");
}

#[test]
fn a_tool_named_like_a_shipped_one_is_told_so() {
    let program = "//! x\nuse portcullis_sdk::{export_tools, tool};\n/// Reads.\n#[tool]\nasync fn file_read() {}\nexport_tools![file_read];\n";
    let author = Author::with_crate("reader", Some(program));
    let (_, said) = author.exits(1, &["tool", "build", "--dir", "crate"]);
    assert!(said.contains("two tools are named `file_read`: one is shipped with Portcullis"), "{said}");
}

#[test]
fn a_workspace_that_is_a_file_is_called_one() {
    let author = Author::new();
    fs::write(author.path("notes.txt"), "mine").expect("written");
    for words in [&["call", "echo", "{}"][..], &["tools"], &["policy", "check"], &["doctor"]] {
        let output = author.run(&[words, &["--workspace", "notes.txt"]].concat());
        let said = super::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("notes.txt`") && said.contains("it is a file"), "{words:?}: {said}");
        assert!(!said.contains("portcullis.toml"), "{words:?}: {said}");
    }
}

#[test]
fn a_target_that_is_not_installed_is_said_in_one_line() {
    let author = Author::with_crate("untargeted", None);
    let real = which("cargo");
    let tools = author.path("tools");
    fs::create_dir(&tools).expect("made");
    let script = |name: &str, text: &str| {
        let path = tools.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
    };
    script(
        "cargo",
        &format!(
            "[ \"$1\" = metadata ] && exec '{}' \"$@\"\necho 'error[E0463]: no std' >&2; exit 101",
            real.display()
        ),
    );
    let rustc = which("rustc");
    let asked = "[ \"$1\" = --print ] && echo /nowhere/at/all && exit 0";
    script("rustc", &format!("{asked}\nexec '{}' \"$@\"", rustc.display()));
    let run = |path: &str| {
        author
            .command(&portcullis_testing::binary())
            .args(["tool", "build", "--dir", "crate"])
            .env("PATH", path)
            .output()
            .expect("starts")
    };
    let usual = std::env::var("PATH").expect("a path");
    let output = run(&format!("{}:{usual}", tools.display()));
    let said = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("error[E0463]") && said.contains("rustup target add wasm32-wasip1"), "{said}");
    let output = run("/nowhere");
    let said = super::text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("cannot start `cargo`"), "{said}");
}

fn which(program: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.exists()).expect("installed")
}

#[test]
fn a_module_that_is_too_large_or_wants_too_much_says_so() {
    let author = Author::with_crate("outsized", None);
    author.succeeds(&["tool", "build", "--dir", "crate"]);
    let module = target().join("wasm32-wasip1/release/tool-outsized.wasm");
    let _built = PutBack(module.clone(), fs::read(&module).expect("there"));
    // A cargo that does nothing: the module to be built is there already.
    let wat = "(module (import \"env\" \"clock\" (func)) (import \"wasi_snapshot_preview1\" \"sock_open\" (func (param i32))) (memory (export \"memory\") 1) (func (export \"_start\")))";
    fs::write(&module, wat::parse_str(wat).expect("a module")).expect("written");
    let (answer, said) = author.exits(1, &["tool", "build", "--dir", "crate"]);
    assert_eq!(answer, "");
    assert!(
        said.contains("it imports what no guest gets: `env::clock`, `wasi_snapshot_preview1::sock_open`"),
        "{said}"
    );
    assert!(said.contains("module "), "{said}");
    fs::write(&module, vec![0; (16 << 20) + 1]).expect("written");
    let (_, said) = author.exits(1, &["tool", "build", "--dir", "crate"]);
    assert!(said.contains("has 16777217 bytes; at most 16777216 are loaded"), "{said}");
}

/// Restores a file on drop, since cargo would not build it anew.
struct PutBack(std::path::PathBuf, Vec<u8>);

impl Drop for PutBack {
    fn drop(&mut self) {
        fs::write(&self.0, &self.1).expect("written");
    }
}
