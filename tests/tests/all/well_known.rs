//! Well-known third-party projects, set up as users have them: an agent fixes a failing test of each without
//! a question, and `undo` restores the tree. Runs in `strong` and in `contained` sessions.
//!
//! `.ci/well-known-projects` fetches the projects, and `PORTCULLIS_WELL_KNOWN` names their folder. Without
//! the variable the tests skip. With `PORTCULLIS_REQUIRE_LANGUAGES` set, as `.ci/run` sets it, they fail
//! instead.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{binary, kernel_environment::KernelEnvironment, with_policy_key};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    agent::model::{Model, calls, text},
    projects::tool_home,
};

/// A machine with namespaces: sessions are `strong`.
const STRONG: KernelEnvironment = KernelEnvironment::Nothing;
/// A machine without namespaces: sessions are `contained`.
const CONTAINED: KernelEnvironment = KernelEnvironment::StockContainer;

/// A project, and one line of it that the test breaks.
struct WellKnown {
    name: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
    /// The command that runs the tests.
    tests: &'static str,
    /// The rule that allows this command without a question.
    rule: &'static str,
    /// The output of the command if a test fails, and its output if all pass.
    marks: [&'static str; 2],
}

const EITHER: WellKnown = WellKnown {
    name: "either",
    file: "src/lib.rs",
    right: "            Right(r) => Some(r),",
    wrong: "            Right(_) => None::<R>,",
    tests: "cargo test --lib",
    rule: "cargo test *",
    marks: ["test result: FAILED", "test result: ok"],
};

const EVENTS: WellKnown = WellKnown {
    name: "events",
    file: "events.js",
    right: "prepend ? [listener, existing] : [existing, listener]",
    wrong: "prepend ? [existing, listener] : [existing, listener]",
    tests: "npm test",
    rule: "npm test",
    marks: ["not ok ", "# ok"],
};

const CLICK: WellKnown = WellKnown {
    name: "click",
    file: "src/click/types.py",
    right: "\"off\": False",
    wrong: "\"off\": True",
    tests: "pytest -q tests/test_basic.py",
    rule: "pytest *",
    marks: [" failed", " passed"],
};

const UUID: WellKnown = WellKnown {
    name: "uuid",
    file: "uuid.go",
    right: "strings.ToLower(s[:9]) != \"urn:uuid:\"",
    wrong: "strings.ToLower(s[:9]) != \"urn:guid:\"",
    tests: "go test ./...",
    rule: "go test *",
    marks: ["FAIL", "ok  \t"],
};

/// A person with a copy of a project. The folders are outside `/tmp`, because each session has its own
/// `/tmp`.
struct Person {
    root: TempDir,
    machine: KernelEnvironment,
    variables: Vec<(&'static str, OsString)>,
}

impl Person {
    /// Returns `None` if the projects are missing and not required.
    #[expect(clippy::print_stdout, reason = "a test that skips says why")]
    fn with_copy(of: &WellKnown, machine: KernelEnvironment) -> Option<Self> {
        let Some(projects) = env::var_os("PORTCULLIS_WELL_KNOWN").map(PathBuf::from) else {
            assert!(
                env::var_os("PORTCULLIS_REQUIRE_LANGUAGES").is_none(),
                "PORTCULLIS_WELL_KNOWN is not set"
            );
            println!("skipped: PORTCULLIS_WELL_KNOWN names no folder; `.ci/well-known-projects` makes it");
            return None;
        };
        let root = tempfile::tempdir_in("/var/tmp").expect("a folder");
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("opened");
        let mut person = Self { root, machine, variables: Vec::new() };
        for folder in ["config", "states", "bin"] {
            fs::create_dir(person.path(folder)).expect("the folder can be made");
        }
        symlink(binary(), person.path("bin/portcullis")).expect("linked");
        copy(&projects.join(of.name), &person.path(of.name));
        person.shell(
            of.name,
            "git init --quiet && git add --all && git -c user.name=a -c user.email=a@b commit --quiet -m All",
        );
        if of.name == EITHER.name {
            for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                let folder = tool_home(variable, folder).expect("this test runs under rustup");
                person.variables.push((variable, folder.into()));
            }
        }
        if of.name == CLICK.name {
            person.make_environment(&projects);
        }
        person.answer(of.name, &["init"]);
        Some(person)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// Makes a virtual environment beside the project `click`, which is installed in it as by `pip install --editable`.
    fn make_environment(&self, projects: &Path) {
        copy(&projects.join("click-venv"), &self.path("venv"));
        let venv = self.path("venv");
        let program = fs::read_to_string(venv.join("bin/pytest")).expect("a program");
        let made_at = projects.with_extension("new").join("click-venv");
        let program = program
            .replace(made_at.to_str().expect("the path is UTF-8"), venv.to_str().expect("the path is UTF-8"));
        assert!(program.contains(venv.to_str().expect("the path is UTF-8")), "{program}");
        fs::write(venv.join("bin/pytest"), program).expect("written");
        let versions = fs::read_dir(venv.join("lib")).expect("readable");
        let version = versions.map(|entry| entry.expect("readable").path()).next().expect("a version");
        let source = format!("{}\n", self.path("click/src").display());
        fs::write(version.join("site-packages/click.pth"), source).expect("written");
    }

    fn command(&self, program: &str, folder: &str) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test, and a person's programs")]
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.path(""))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_STATE_HOME", self.path("states"))
            .envs(self.variables.iter().cloned())
            .current_dir(self.path(folder));
        command
    }

    /// Runs the program on this person's machine.
    fn run(&self, folder: &str, words: &[&str]) -> Output {
        let program = binary();
        self.machine.start(|| {
            self.command(program.to_str().expect("the path is UTF-8"), folder)
                .args(words)
                .output()
                .expect("starts")
        })
    }

    /// Runs the program, asserts success, and returns its standard output.
    #[track_caller]
    fn answer(&self, folder: &str, words: &[&str]) -> String {
        succeeded(&self.run(folder, words))
    }

    /// Runs a shell outside the sandbox, and returns its output.
    #[track_caller]
    fn shell(&self, folder: &str, script: &str) -> String {
        let output = self
            .machine
            .start(|| self.command("/bin/sh", folder).args(["-ec", script]).output().expect("starts"));
        succeeded(&output)
    }

    /// Adds to the policy the rule for the tests, and the grants that their programs need besides `init`'s
    /// proposals.
    fn edit_policy(&self, of: &WellKnown) {
        let file = self.path(&format!("config/portcullis/projects/{}.toml", of.name));
        let mut policy = fs::read_to_string(&file).expect("readable");
        let mut edit = |old: &str, new: &str| {
            assert!(policy.contains(old), "{old}: {policy}");
            policy = policy.replacen(old, new, 1);
        };
        if of.name == CLICK.name {
            let venv = self.path("venv");
            let lines = format!("\nread = [{venv:?}]\npath = [{:?}]\n# read", venv.join("bin"));
            edit("\n# read", &lines);
        }
        if let (true, Ok(toolchain)) = (of.name == EITHER.name, env::var("RUSTUP_TOOLCHAIN")) {
            // Rustup would install the user's default toolchain, which can differ from that of this test.
            edit("\nvariables = {", &format!("\nvariables = {{ RUSTUP_TOOLCHAIN = {toolchain:?},"));
        }
        let policy = with_policy_key(&policy, "shell.unasked", &format!("[{:?}]", of.rule));
        fs::write(&file, policy).expect("written");
    }

    /// Breaks the line, and returns the tree after that.
    fn break_line(&self, of: &WellKnown) -> Tree {
        let file = self.path(of.name).join(of.file);
        let source = fs::read_to_string(&file).expect("the file is readable");
        assert!(source.contains(of.right), "{}", of.file);
        fs::write(&file, source.replacen(of.right, of.wrong, 1)).expect("written");
        tree(&self.path(of.name))
    }
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("the output is UTF-8")
}

#[expect(clippy::disallowed_methods, reason = "a copy with links and permissions")]
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().expect("starts");
    assert!(status.success(), "{}", from.display());
}

/// Each path below a folder, with its permissions and its content or the target of the link.
type Tree = BTreeMap<PathBuf, (u32, Option<Vec<u8>>)>;

fn tree(folder: &Path) -> Tree {
    let mut tree = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let data = path.symlink_metadata().expect("readable");
        let content = if data.is_dir() {
            pending
                .extend(fs::read_dir(&path).expect("readable").map(|entry| entry.expect("readable").path()));
            None
        } else if data.is_symlink() {
            Some(fs::read_link(&path).expect("readable").into_os_string().into_encoded_bytes())
        } else {
            Some(fs::read(&path).expect("readable"))
        };
        tree.insert(path, (data.permissions().mode(), content));
    }
    tree
}

/// Returns the paths that differ, for a message.
fn difference(before: &Tree, after: &Tree) -> Vec<PathBuf> {
    let paths = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
    paths.filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

/// Starts a model that runs the tests, fixes the line, and runs the tests again.
fn mending_model(of: &WellKnown) -> Model {
    let run_tests = json!({"command": of.tests}).to_string();
    let mend = json!({"path": of.file, "old_text": of.wrong, "new_text": of.right}).to_string();
    Model::answering(vec![
        calls(&[("shell_exec", &run_tests)]),
        calls(&[("file_search", &json!({"query": of.wrong.lines().next(), "path": of.file}).to_string())]),
        calls(&[("file_edit", &mend)]),
        calls(&[("shell_exec", &run_tests)]),
        text("The test passes."),
    ])
}

/// Checks what the model saw: the tests failed, then they passed.
fn check_results(of: &WellKnown, model: &Model) {
    let requests = model.requests();
    let result = |request: &Value| {
        let messages = request["messages"].as_array().expect("messages");
        messages.last().expect("a message")["content"]
            .as_str()
            .expect("the value is a JSON string")
            .to_owned()
    };
    let [failed, passed] = of.marks;
    let (first, last) = (result(&requests[1]), result(&requests[4]));
    assert!(first.contains(failed), "{first}");
    assert!(last.contains(passed) && !last.contains(failed), "{last}");
}

fn an_agent_mends(of: &WellKnown, machine: KernelEnvironment) {
    let Some(person) = Person::with_copy(of, machine) else { return };
    person.edit_policy(of);
    let before = person.break_line(of);
    let model = mending_model(of);
    // There is no terminal, so a question would end the call.
    let agent = ["agent", "A test fails. Mend it.", "--model", "m", "--base-url", model.address()];
    assert_eq!(person.answer(of.name, &agent), "The test passes.\n");
    check_results(of, &model);
    // Some machines have no namespaces.
    let doctor = person.answer(of.name, &["doctor"]);
    let posture = if doctor.contains("posture      strong ") { "strong(" } else { "contained(" };
    assert!(matches!(machine, KernelEnvironment::Nothing) || posture == "contained(", "{doctor}");
    let log = person.answer(of.name, &["audit", "log", "--json"]);
    assert!(log.contains(posture), "{log}");
    assert_ne!(tree(&person.path(of.name)), before);

    let changes = person.answer(of.name, &["changes"]);
    let run = changes.split_whitespace().find(|word| word.starts_with("run_")).expect("a run");
    assert!(person.answer(of.name, &["changes", "--run", run]).contains(of.file));
    person.answer(of.name, &["undo", "--run", run]);
    let after = tree(&person.path(of.name));
    assert!(after == before, "{:?}", difference(&before, &after));
    // The programs have left nothing in the person's home either.
    let mut names: Vec<_> = fs::read_dir(person.path(""))
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("the name is UTF-8"))
        .collect();
    names.sort();
    let mut expected = vec!["bin", "config", "states", of.name];
    expected.extend((of.name == CLICK.name).then_some("venv"));
    expected.sort_unstable();
    assert_eq!(
        names.iter().filter(|name| *name != ".cache").collect::<Vec<_>>(),
        expected.iter().collect::<Vec<_>>()
    );
}

#[test]
fn a_crate_in_a_strong_session() {
    an_agent_mends(&EITHER, STRONG);
}

#[test]
fn a_crate_in_a_contained_session() {
    an_agent_mends(&EITHER, CONTAINED);
}

#[test]
fn a_package_of_npm_in_a_strong_session() {
    an_agent_mends(&EVENTS, STRONG);
}

#[test]
fn a_package_of_npm_in_a_contained_session() {
    an_agent_mends(&EVENTS, CONTAINED);
}

#[test]
fn a_python_package_in_a_strong_session() {
    an_agent_mends(&CLICK, STRONG);
}

#[test]
fn a_python_package_in_a_contained_session() {
    an_agent_mends(&CLICK, CONTAINED);
}

#[test]
fn a_go_module_in_a_strong_session() {
    an_agent_mends(&UUID, STRONG);
}

#[test]
fn a_go_module_in_a_contained_session() {
    an_agent_mends(&UUID, CONTAINED);
}

/// Returns the blocks of the document's walk-through, in order: the language and the text of each.
fn walk_through() -> Vec<(&'static str, &'static str)> {
    let document = include_str!("../../../docs/projects.md");
    let (_, section) =
        document.split_once("\n## From a failing test to a passing one\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').expect("a language")).collect()
}

#[test]
fn the_walk_through_of_the_document_works() {
    let Some(mut person) = Person::with_copy(&EVENTS, STRONG) else { return };
    // The walk-through begins before `init`.
    person.answer("events", &["init", "--remove"]);
    let before = person.break_line(&EVENTS);
    let model = mending_model(&EVENTS);
    person.variables.push(("OPENAI_BASE_URL", model.address().into()));
    person.variables.push(("OPENAI_API_KEY", "key".into()));
    let blocks = walk_through();
    let languages: Vec<_> = blocks.iter().map(|(language, _)| *language).collect();
    assert_eq!(languages, ["sh", "toml", "sh", "sh"]);
    person.shell("", blocks[0].1);
    let file = person.path("config/portcullis/projects/events.toml");
    let policy = fs::read_to_string(&file).expect("init has written it");
    let rule = blocks[1].1.strip_prefix("[shell]\n").expect("the section");
    let with_rule = policy.replacen("\ndeny ", &format!("\n{rule}deny "), 1);
    assert_ne!(with_rule, policy);
    fs::write(&file, with_rule).expect("written");
    let printed = person.shell("events", blocks[2].1);
    check_results(&EVENTS, &model);
    assert!(printed.contains("The test passes."), "{printed}");
    assert!(printed.contains(&format!("-        {}", EVENTS.wrong)), "{printed}");
    assert!(printed.contains(&format!("+        {}", EVENTS.right)), "{printed}");
    // The document's shell is one shell, so set its variable again.
    let variable = blocks[2].1.lines().find(|line| line.starts_with("run=")).expect("the run");
    person.shell("events", &format!("{variable}\n{}", blocks[3].1));
    let after = tree(&person.path("events"));
    assert!(after == before, "{:?}", difference(&before, &after));
}
