//! Existing folders as projects, through the program: `init`, discovery, the mount `project`, `--mount`.

mod hostile;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{Fixture, binary, with_policy_key};
use serde_json::{Value, json};

use crate::agent::model::{Model, calls, text};

/// A home folder whose folder `code` has a small repository.
struct Home(Fixture);

impl Home {
    fn new() -> Self {
        let home = Self(Fixture::new());
        for folder in ["code/src", "config", "states"] {
            fs::create_dir_all(home.path(folder)).expect("a folder");
        }
        fs::write(home.path("code/src/main.rs"), "fn main() {}\n").expect("written");
        home
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.root().join("home").join(below)
    }

    /// Runs the program with these arguments in a folder of the home.
    fn run(&self, folder: &str, words: &[&str]) -> Output {
        self.run_with(&[], folder, words)
    }

    /// Like [`Self::run`], with further environment variables.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    fn run_with(&self, variables: &[(&str, &OsStr)], folder: &str, words: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.path("")).env("XDG_CONFIG_HOME", self.path("config"));
        command.env("XDG_STATE_HOME", self.path("states"));
        command.envs(variables.iter().copied());
        command.current_dir(self.path(folder)).args(words).output().expect("starts")
    }

    /// Runs the program, asserts success, and returns its standard output.
    #[track_caller]
    fn answer(&self, folder: &str, words: &[&str]) -> String {
        let output = self.run(folder, words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("the output is UTF-8")
    }

    /// Runs the program, asserts the exit code, and returns its standard error.
    #[track_caller]
    fn refusal(&self, folder: &str, words: &[&str], code: i32) -> String {
        let output = self.run(folder, words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).expect("the output is UTF-8")
    }

    fn call(&self, folder: &str, tool: &str, arguments: &Value) -> String {
        self.answer(folder, &["call", tool, &arguments.to_string()])
    }

    /// Creates a project in `code`. It reuses the core tools that an earlier fixture compiled.
    fn with_project() -> Self {
        let home = Self::new();
        home.answer("code", &["init"]);
        let state = home.answer("code", &["policy", "check"]);
        assert!(state.contains("/project = "), "{state}");
        home
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("the name is UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn an_existing_folder_becomes_a_project_and_stops_being_one() {
    let home = Home::new();
    let shown = home.run("code", &["init", "--show"]);
    let policy = String::from_utf8(shown.stdout).expect("the output is UTF-8");
    assert!(policy.contains("[project]\npath = ") && policy.contains("home = \"project\""), "{policy}");
    assert!(names(&home.path("config")).is_empty());

    let said = home.answer("", &["init", "code"]);
    let file = home.path("config/portcullis/projects/code.toml");
    assert!(
        said.contains("project code") && said.contains(file.to_str().expect("the path is UTF-8")),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&file).expect("written"), policy);
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("the file has metadata"));
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        (names(&home.path("code")), names(&home.path("states"))),
        (vec!["src".to_owned()], Vec::new())
    );

    let again = home.refusal("code", &["init"], 2);
    assert!(again.contains("it is already a project"), "{again}");
    let said = home.answer("code", &["init", "--remove"]);
    assert!(said.contains("removed") && !file.exists(), "{said}");
    let gone = home.refusal("code", &["init", "--remove"], 2);
    assert!(gone.contains("nothing to remove"), "{gone}");
}

#[test]
fn tools_work_on_the_project_from_every_folder_in_it() {
    let home = Home::with_project();
    for folder in ["code", "code/src"] {
        assert_eq!(home.call(folder, "file_read", &json!({"path": "src/main.rs"})), "fn main() {}\n");
        assert_eq!(
            home.call(folder, "file_read", &json!({"path": "/project/src/main.rs"})),
            "fn main() {}\n"
        );
    }
    let list = home.call("code", "file_list", &json!({}));
    assert!(list.contains("src/") && !list.contains("portcullis"), "{list}");
    let found = home.call("code", "file_search", &json!({"query": "main"}));
    assert!(found.contains("src/main.rs"), "{found}");
    home.call("code/src", "file_write", &json!({"path": "src/lib.rs", "content": "//! A library.\n"}));
    assert_eq!(fs::read_to_string(home.path("code/src/lib.rs")).expect("written"), "//! A library.\n");
    home.call(
        "code",
        "file_edit",
        &json!({"path": "./src/lib.rs", "old_text": "A library", "new_text": "Mine"}),
    );
    assert_eq!(fs::read_to_string(home.path("code/src/lib.rs")).expect("edited"), "//! Mine.\n");
    // The folder has no changes except those of the tools. The audit log is in the project's state folder.
    assert_eq!(
        (names(&home.path("code")), names(&home.path("code/src"))),
        (vec!["src".to_owned()], vec!["lib.rs".to_owned(), "main.rs".to_owned()])
    );
    let log = home.answer("code/src", &["audit", "log"]);
    assert!(log.contains("/project/src/lib.rs"), "{log}");
    let listing = home.answer("code", &["tools"]);
    assert!(listing.starts_with("project code: ") && listing.contains("/project"), "{listing}");
    let schema = home.answer("code", &["tools", "--openai"]);
    assert!(schema.contains("Relative paths start at `/project`") && !schema.contains("/shared"), "{schema}");
    // The policy does not apply outside the project.
    assert!(!home.answer("", &["tools"]).contains("project code"));
}

#[test]
fn a_policy_in_a_repository_only_narrows() {
    let home = Home::with_project();
    let overlay = home.path("code/portcullis.toml");
    for (text, said) in [
        ("[mounts]\nproject = \"/\"\n", "only the operator's policy may set this key"),
        ("[project]\npath = \"/\"\n", "only the operator's policy may set this key"),
        ("home = \"vault\"\n", "only the operator's policy may set this key"),
        ("[profiles.FileReadOnly]\nmounts = { tmp = \"write\" }\n", "may only reduce"),
    ] {
        fs::write(&overlay, text).expect("written");
        let refusal = home.refusal("code/src", &["call", "file_list"], 2);
        assert!(refusal.contains(said) || refusal.contains("portcullis.toml:"), "{text}: {refusal}");
    }
    fs::write(&overlay, "[tools.file_write]\nenabled = false\n").expect("written");
    let write = json!({"path": "src/x", "content": "x"}).to_string();
    home.refusal("code", &["call", "file_write", &write], 3);
    // No tool may remove the restriction, or create a new one.
    let edit = json!({"path": "portcullis.toml", "old_text": "false", "new_text": "true"}).to_string();
    let refusal = home.refusal("code", &["call", "file_edit", &edit], 3);
    assert!(refusal.contains("`portcullis.toml` is protected at any depth"), "{refusal}");
    let delete = json!({"path": "portcullis.toml"}).to_string();
    home.refusal("code", &["call", "file_delete", &delete], 3);
    assert_eq!(
        fs::read_to_string(&overlay).expect("the file is readable"),
        "[tools.file_write]\nenabled = false\n"
    );
}

#[test]
fn links_of_a_repository_lead_nowhere() {
    let home = Home::with_project();
    fs::write(home.path("key"), "secret\n").expect("written");
    symlink(home.path("key"), home.path("code/key")).expect("linked");
    symlink("../../..", home.path("code/src/up")).expect("linked");
    for path in ["key", "src/up", "../key", "/home/key"] {
        let read = json!({"path": path}).to_string();
        let output = home.run("code", &["call", "file_read", &read]);
        assert_eq!(output.status.code(), Some(3), "{path}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("secret"));
    }
}

#[test]
fn a_folder_that_two_files_name_is_not_a_project() {
    let home = Home::with_project();
    let projects = home.path("config/portcullis/projects");
    fs::copy(projects.join("code.toml"), projects.join("other.toml")).expect("copied");
    let refusal = home.refusal("code/src", &["call", "file_list"], 2);
    assert!(refusal.contains("code.toml") && refusal.contains("other.toml"), "{refusal}");
    // Outside the folder the fault has no effect, and a named policy takes precedence over it.
    home.answer("", &["policy", "default"]);
    let policy = projects.join("other.toml");
    home.answer("code", &["--policy", policy.to_str().expect("the path is UTF-8"), "policy", "check"]);
}

#[test]
fn a_folder_with_private_files_is_not_a_project() {
    let home = Home::new();
    for folder in [
        "/",
        home.path("").to_str().expect("the path is UTF-8"),
        home.path("config").to_str().expect("the path is UTF-8"),
    ] {
        fs::create_dir_all(home.path("config/portcullis/projects")).expect("a folder");
        let refusal = home.refusal("code", &["init", folder], 2);
        assert!(refusal.contains("cannot turn"), "{folder}: {refusal}");
    }
    fs::write(home.path("file"), "").expect("written");
    for folder in ["../file", "../gone"] {
        let refusal = home.refusal("code", &["init", folder], 2);
        assert!(refusal.contains("not an existing folder"), "{refusal}");
    }
    assert!(names(&home.path("config/portcullis/projects")).is_empty());
}

#[test]
fn a_further_mount_is_as_writable_as_the_home_or_less() {
    let home = Home::with_project();
    fs::create_dir_all(home.path("data/deep")).expect("a folder");
    fs::write(home.path("data/a.txt"), "a\n").expect("written");
    symlink(home.path("data"), home.path("alias")).expect("linked");
    let data = format!("data={}", home.path("alias").display());
    let read = json!({"path": "/data/a.txt"}).to_string();
    let write = json!({"path": "/data/b.txt", "content": "b\n"}).to_string();
    assert_eq!(home.answer("code", &["--mount", &data, "call", "file_read", &read]), "a\n");
    home.answer("code", &["--mount", &data, "call", "file_write", &write]);
    assert_eq!(fs::read_to_string(home.path("data/b.txt")).expect("written"), "b\n");
    let read_only = format!("{data}:ro");
    assert_eq!(home.answer("code", &["--mount", &read_only, "call", "file_read", &read]), "a\n");
    home.refusal("code", &["--mount", &read_only, "call", "file_write", &write], 3);
    home.refusal("code", &["call", "file_read", &read], 3);

    for (mount, said) in [
        (format!("src={}", home.path("code/src").display()), "only the outer folder"),
        (format!("all={}", home.path("").display()), "only the outer folder"),
        (format!("states={}", home.path("states").display()), "only the outer folder"),
        ("gone=/gone".to_owned(), "must be an existing folder"),
        ("gone=../gone".to_owned(), "must be an existing folder"),
        ("proc=/proc".to_owned(), "kernel file system"),
        (format!("tmp={}", home.path("data").display()), "the policy has a mount of this name"),
    ] {
        let refusal = home.refusal("code", &["--mount", &mount, "call", "file_list"], 2);
        assert!(refusal.contains(said), "{mount}: {refusal}");
    }
}

#[test]
fn commands_begin_in_the_project() {
    let home = Home::with_project();
    let run = |command: &str| {
        home.answer("code", &["call", "--approve", "shell_exec", &json!({"command": command}).to_string()])
    };
    let answer =
        run("ls && cat \"$PORTCULLIS_PROJECT/src/main.rs\" && echo x > made && ls \"$PORTCULLIS_TMP\"");
    assert_eq!(answer, "src\nfn main() {}\n");
    assert_eq!(fs::read_to_string(home.path("code/made")).expect("written"), "x\n");
    let outside = run("cat ../key /home/key 2>&1 | wc -l; ls ~");
    assert!(!outside.contains("config"), "{outside}");
}

/// Returns the rustup or cargo home of the user who runs the tests.
pub(crate) fn tool_home(variable: &str, folder: &str) -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(folder));
    std::env::var_os(variable).map(PathBuf::from).or_else(home).filter(|path| path.is_dir())
}

#[test]
fn init_proposes_the_toolchains_and_none_of_their_keys() {
    let home = Home::new();
    let tools = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let tools = tools.path();
    fs::set_permissions(tools, fs::Permissions::from_mode(0o755)).expect("opened");
    fs::create_dir_all(tools.join("bin")).expect("the folder can be made");
    fs::write(tools.join("credentials.toml"), "token = \"secret\"\n").expect("written");
    let program = tools.join("bin/cargo-greet");
    fs::write(&program, "#!/bin/sh\necho hello; cat \"$CARGO_HOME/credentials.toml\"\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("made a program");
    let variables = [("CARGO_HOME", tools.as_os_str())];
    let made = home.run_with(&variables, "code", &["init"]);
    let answer = String::from_utf8(made.stdout).expect("the output is UTF-8");
    assert!(answer.contains("commands may read and run the toolchains of cargo"), "{answer}");

    let call = json!({"command": "cargo-greet; echo x > $CARGO_HOME/bin/new; ls $CARGO_HOME"}).to_string();
    let output = home.run("code", &["call", "--approve", "shell_exec", &call]);
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    assert!(text.starts_with("hello\n") && !text.contains("secret"), "{text}");
    assert!(!tools.join("bin/new").exists());

    // The whole folder contains a key, so no session starts if the policy names it.
    let file = home.path("config/portcullis/projects/code.toml");
    let policy = fs::read_to_string(&file).expect("readable");
    let wide = policy.replace(&format!("{}/bin", tools.display()), &tools.display().to_string());
    fs::write(&file, wide).expect("written");
    let output = home.run("code", &["call", "--approve", "shell_exec", &call]);
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("credentials.toml"), "{said}");
}

#[test]
fn a_toolchain_that_only_its_owner_reads_is_read_by_commands() {
    let home = Home::with_project();
    let tools = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let tools = tools.path();
    let program = tools.join("greet");
    fs::write(&program, "#!/bin/sh\necho hello\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("made a program");
    fs::set_permissions(tools, fs::Permissions::from_mode(0o700)).expect("closed");
    let file = home.path("config/portcullis/projects/code.toml");
    let policy = fs::read_to_string(&file).expect("readable");
    let shell = format!("\n[shell]\nread = [{tools:?}]\npath = [{tools:?}]\n");
    fs::write(&file, policy.replace("\n[shell] ", &format!("{shell}# "))).expect("written");
    let call = json!({"command": format!("greet; chmod 755 {program:?} || echo kept")}).to_string();
    let answer = home.answer("code", &["call", "--approve", "shell_exec", &call]);
    assert!(answer.starts_with("hello\n") && answer.contains("\nkept\n"), "{answer}");
    assert_eq!(fs::metadata(&program).expect("a file").permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_home_is_not_a_toolchain() {
    let home = Home::with_project();
    let file = home.path("config/portcullis/projects/code.toml");
    let policy = fs::read_to_string(&file).expect("readable");
    let persons_home = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let read = format!("\n[shell]\nread = [{:?}]\n", persons_home.path());
    fs::write(&file, policy.replace("\n[shell] ", &format!("{read}# "))).expect("written");
    let call = json!({"command": "true"}).to_string();
    let words = ["call", "--approve", "shell_exec", &call];
    let output = home.run_with(&[("HOME", persons_home.path().as_os_str())], "code", &words);
    let error_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error_text.contains("holds more than a toolchain"), "{output:?}");
    // The same folder may be a toolchain if it is not this user's home.
    home.answer("code", &words);
}

#[test]
fn the_tests_of_a_project_run_with_the_persons_own_toolchain() {
    let (Some(cargo), Some(rustup)) =
        (tool_home("CARGO_HOME", ".cargo"), tool_home("RUSTUP_HOME", ".rustup"))
    else {
        println!("skipped: this user has no rustup");
        return;
    };
    if !cargo.join("bin/cargo").exists() || cargo.starts_with("/tmp") {
        println!("skipped: this user has no cargo that a session could read");
        return;
    }
    let home = Home::new();
    fs::write(home.path("code/Cargo.toml"), "[package]\nname = \"code\"\nedition = \"2021\"\n")
        .expect("written");
    let test = "#[test] fn adds() { assert_eq!(1 + 1, 2); }\n";
    fs::write(home.path("code/src/lib.rs"), test).expect("written");
    let variables = [("CARGO_HOME", cargo.as_os_str()), ("RUSTUP_HOME", rustup.as_os_str())];
    home.run_with(&variables, "code", &["init"]);
    let file = home.path("config/portcullis/projects/code.toml");
    let policy = fs::read_to_string(&file).expect("readable");
    let mut policy = with_policy_key(&policy, "shell.unasked", "[\"cargo test *\"]");
    // Rustup would install the user's default toolchain, which can differ from that of this test.
    if let Ok(toolchain) = std::env::var("RUSTUP_TOOLCHAIN") {
        assert!(policy.contains("\nvariables = {"), "{policy}");
        policy =
            policy.replace("\nvariables = {", &format!("\nvariables = {{ RUSTUP_TOOLCHAIN = {toolchain:?},"));
    }
    fs::write(&file, policy).expect("written");
    let call = json!({"command": "cargo test --offline 2>&1"}).to_string();
    // The call runs without `--approve`, because the rule makes an approval unnecessary.
    let output = home.run("code", &["call", "shell_exec", &call]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("test adds ... ok"), "{output:?}");
    assert!(home.path("code/target").is_dir());
    assert!(!home.path("code/.cache").exists() && !home.path("code/.cargo").exists());
}

/// Returns the content of everything below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut tree = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let is_folder = path.is_dir();
        if is_folder {
            pending
                .extend(fs::read_dir(&path).expect("readable").map(|entry| entry.expect("readable").path()));
        }
        let content = (!is_folder).then(|| fs::read(&path).expect("readable"));
        tree.insert(path, content);
    }
    tree
}

#[test]
fn an_unasked_repair_of_a_test_can_be_undone() {
    if !Path::new("/usr/bin/python3").exists() {
        println!("skipped: there is no /usr/bin/python3");
        return;
    }
    let home = Home::new();
    fs::write(home.path("code/calc.py"), "def add(a, b):\n    return a - b\n").expect("written");
    let test = "import unittest\nfrom calc import add\n\n\nclass Adding(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n";
    fs::write(home.path("code/test_calc.py"), test).expect("written");
    home.answer("code", &["init"]);
    let file = home.path("config/portcullis/projects/code.toml");
    let policy = fs::read_to_string(&file).expect("readable");
    let policy = with_policy_key(&policy, "shell.unasked", "[\"python3 -m unittest *\"]");
    fs::write(&file, policy).expect("written");
    let before = tree(&home.path("code"));
    let run_tests = json!({"command": "python3 -m unittest -v test_calc"}).to_string();
    let mend = json!({"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}).to_string();
    let model = Model::answering(vec![
        calls(&[("shell_exec", &run_tests)]),
        calls(&[("file_read", r#"{"path": "calc.py"}"#)]),
        calls(&[("file_edit", &mend)]),
        calls(&[("shell_exec", &run_tests)]),
        text("The test passes."),
    ]);
    // There is no terminal, so a question would end the call.
    let agent = ["agent", "Mend the failing test.", "--model", "m", "--base-url", model.address()];
    assert_eq!(home.answer("code", &agent), "The test passes.\n");
    let requests = model.requests();
    let last_result = |request: &Value| {
        let messages = request["messages"].as_array().expect("messages");
        messages.last().expect("a message")["content"].to_string()
    };
    assert!(last_result(&requests[1]).contains("FAILED"), "{}", last_result(&requests[1]));
    let passed = last_result(&requests[4]);
    assert!(passed.contains("OK") && !passed.contains("FAILED"), "{passed}");
    assert_ne!(tree(&home.path("code")), before);

    let changes = home.answer("code", &["changes"]);
    let run = changes.split_whitespace().find(|word| word.starts_with("run_")).expect("a run");
    let difference = home.answer("code", &["changes", "--run", run]);
    assert!(difference.contains("-    return a - b\n+    return a + b\n"), "{difference}");
    home.answer("code", &["undo", "--run", run]);
    assert_eq!(tree(&home.path("code")), before);
}

#[test]
fn the_commands_of_the_document_work() {
    let home = Home::new();
    let bin = home.path("bin");
    fs::create_dir(&bin).expect("the folder can be made");
    symlink(binary(), bin.join("portcullis")).expect("linked");
    let document = include_str!("../../../docs/projects.md");
    // This section needs a model, so `well_known.rs` runs it.
    let (before, rest) = document.split_once("\n## From a failing test").expect("the walk-through");
    let document = format!("{before}{}", &rest[rest.find("\n## ").expect("a section after it")..]);
    let blocks = document.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let script: String = blocks.collect();
    assert!(script.lines().count() >= 10, "{script}");
    #[expect(clippy::disallowed_methods, reason = "a person's shell")]
    let output = Command::new("sh")
        .args(["-ec", &script])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("HOME", home.path(""))
        .env("XDG_CONFIG_HOME", home.path("config"))
        .env("XDG_STATE_HOME", home.path("states"))
        .current_dir(home.path(""))
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(home.path("code/notes.md")).expect("written"), "A note.\n");
    assert!(!home.path("config/portcullis/projects/code.toml").exists());
}

#[test]
fn hidden_names_are_seen_by_no_tool() {
    let home = Home::with_project();
    for (path, text) in [
        (".env", "KEY=secret\n"),
        ("src/.ENV.local", "secret\n"),
        ("src/server.pem", "secret\n"),
        (".ssh/config", "secret\n"),
        ("environment", "no key\n"),
    ] {
        fs::create_dir_all(home.path("code").join(path).parent().expect("a folder"))
            .expect("the folder can be made");
        fs::write(home.path("code").join(path), text).expect("written");
    }
    symlink(".env", home.path("code/alias")).expect("linked");
    symlink("../.ssh", home.path("code/src/folder")).expect("linked");
    for path in [
        ".env",
        "src/.env.local",
        "src/server.pem",
        ".ssh/config",
        ".ssh",
        "none/.env",
        "alias",
        "src/folder/config",
    ] {
        for (tool, arguments) in [
            ("file_read", json!({"path": path})),
            ("file_list", json!({"path": path})),
            ("file_write", json!({"path": path, "content": "x"})),
            ("file_delete", json!({"path": path})),
        ] {
            // A link may be deleted, because that does not touch the hidden file.
            if tool == "file_delete" && path == "alias" {
                continue;
            }
            let output = home.run("code", &["call", "--json", tool, &arguments.to_string()]);
            assert_eq!(output.status.code(), Some(3), "{tool} {path}: {output:?}");
            assert!(
                String::from_utf8_lossy(&output.stdout).contains("hidden_path"),
                "{tool} {path}: {output:?}"
            );
        }
    }
    let list = home.call("code", "file_list", &json!({"depth": 4}));
    assert!(list.contains("environment") && !list.to_lowercase().contains(".env"), "{list}");
    assert!(!list.contains("server.pem") && !list.contains(".ssh"), "{list}");
    let found =
        home.call("code", "file_search", &json!({"query": "secret|no key", "regex": true, "glob": "*"}));
    assert!(found.contains("environment") && !found.contains("secret"), "{found}");

    let run = |command: &str| {
        home.answer("code", &["call", "--approve", "shell_exec", &json!({"command": command}).to_string()])
    };
    let shown =
        run("cat .env src/.ENV.local src/server.pem .ssh/config alias 2>&1; cat environment; ls .ssh 2>&1");
    if home.answer("code", &["doctor"]).contains("hide=enforced") {
        assert!(!shown.contains("secret") && shown.contains("no key"), "{shown}");
        let changed = run("echo x > .env; rm -f .env src/server.pem; mv .ssh other; true");
        assert!(!changed.contains("secret"), "{changed}");
        assert_eq!(fs::read_to_string(home.path("code/.env")).expect("the file is readable"), "KEY=secret\n");
        assert!(home.path("code/.ssh/config").exists() && home.path("code/src/server.pem").exists());
    }
    assert_eq!(fs::read_to_string(home.path("code/.env")).expect("the file is readable"), "KEY=secret\n");
}
