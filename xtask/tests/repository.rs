//! Checks rules of the repository: layering, headers, sizes, and the files that may use `unsafe`, sockets and
//! environment variables.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use toml::Table;

/// The exact list of this workspace's crates that each crate depends on. Dev-dependencies may be more.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("tools-macros", &[]),
    ("sdk", &["types", "tools-macros"]),
    ("guest-tools", &["sdk"]),
    ("guest-build", &[]),
    ("policy", &["types"]),
    ("confine", &[]),
    ("egress", &["confine"]),
    ("audit", &["types"]),
    ("undo", &["types"]),
    ("store", &[]),
    ("sandbox", &["types", "policy", "confine"]),
    ("shell-protocol", &[]),
    (
        "tools",
        &[
            "types",
            "policy",
            "confine",
            "audit",
            "sandbox",
            "egress",
            "shell-protocol",
            "undo",
            "guest-build",
        ],
    ),
    ("agent", &["types", "egress"]),
    ("adapters", &["agent", "tools", "types"]),
    ("http-server", &[]),
    ("gateway", &["adapters", "agent", "http-server", "runs", "store", "tools", "types"]),
    ("mcp", &["http-server", "tools", "types"]),
    ("clients/rust", &[]),
    ("shell-daemon", &["types", "policy", "confine", "egress", "shell-protocol", "undo"]),
    ("runs", &["agent", "store", "tools", "types"]),
    ("temporal", &["agent", "runs", "types"]),
    ("tasks", &["types"]),
    (
        "runtime",
        &[
            "adapters",
            "agent",
            "gateway",
            "http-server",
            "mcp",
            "runs",
            "tasks",
            "temporal",
            "tools",
            "shell-daemon",
            "types",
            "guest-build",
        ],
    ),
    ("testing", &["runtime", "tools", "types", "guest-build"]),
];

/// Files that may use `unsafe`: the system calls, the checked loading of compiled modules, and the declaration of
/// functions that guests import. The hostile guests make calls that the standard library does not offer; they are
/// never shipped.
const UNSAFE: &[&str] = &[
    "confine/src/sys.rs",
    "sandbox/src/cache.rs",
    "sdk/src/http/import.rs",
    "sdk/src/fs/lock/import.rs",
    "guest-tools/src/bin/hostile_",
];

/// Ways to connect to another machine or to resolve its name. Clients of protocols get a connection that the HTTP
/// client's threads have opened.
const WAYS_OUT: &[&str] = &[
    "TcpStream::connect",
    "TcpSocket",
    "UdpSocket",
    "HttpConnector",
    "HttpInfo",
    "reqwest",
    "ureq::",
    "to_socket_addrs",
    "ToSocketAddrs",
    "lookup_host",
    "getaddrinfo",
    "AddressFamily::INET",
    "libc::AF_INET",
    "libc::connect",
    "net::connect",
    "Connection::connect",
    "connect_timeout(",
];

/// The path prefixes of files that may contain such a way: the client itself; `confine/`, whose attempts and
/// filters name these calls; the store, which reaches the operator's PostgreSQL; the worker for Temporal; and
/// the client for other programs, which no other crate uses.
const MAY_CONNECT: &[&str] =
    // The last file uses a stream that the HTTP client has opened.
    &[
        "clients/rust/src/transport.rs",
        "egress/src/",
        "confine/src/",
        "store/src/postgres",
        "temporal/src/server.rs",
        "tools/src/web/notification/smtp.rs",
    ];

/// Ways to open a socket of any kind.
const SOCKETS: &[&str] = &[
    "UnixStream::connect",
    "UnixStream::pair",
    "UnixListener::bind",
    "TcpListener::bind",
    "socketpair(",
    "socket_with(",
];

/// The path prefixes of files that try to open sockets and expect a refusal.
const CANARIES: &[&str] =
    &["confine/src/canary", "confine/src/namespaces/probe.rs", "confine/src/testing.rs"];

/// Files that read environment variables, with the names that ARCHITECTURE.md must list. A file without names
/// reads variables that ARCHITECTURE.md describes in words.
const ENVIRONMENT: &[(&str, &[&str])] = &[
    ("adapters/src/yoagent/provider.rs", &[]),
    ("agent/src/providers/key.rs", &[]),
    ("audit/src/ssh_agent.rs", &["SSH_AUTH_SOCK"]),
    (
        "confine/src/user_folders.rs",
        &[
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "HOME",
            "CARGO_HOME",
            "RUSTUP_HOME",
            "PYENV_ROOT",
            "GOPATH",
        ],
    ),
    ("gateway/build.rs", &[]),
    ("guest-build/src/lib.rs", &[]),
    ("runtime/src/command/agent/detached.rs", &["PORTCULLIS_BACKGROUND_RUN"]),
    ("runtime/src/command/agent/model.rs", &[]),
    ("runtime/src/command/author/cargo.rs", &[]),
    ("runtime/src/command/init.rs", &["HOME"]),
    ("runtime/src/run.rs", &["PORTCULLIS_LOG"]),
    ("runtime/src/run_store.rs", &["PORTCULLIS_STORE"]),
    ("shell-daemon/src/server/logs.rs", &["RUST_LOG", "NO_COLOR"]),
    ("tools/build.rs", &["PORTCULLIS_GUESTS_DIR"]),
    ("tools/src/process_start.rs", &["PORTCULLIS_INSTANCE"]),
    ("tools/src/sealing.rs", &["CREDENTIALS_DIRECTORY"]),
    ("tools/src/shell/sidecar.rs", &[]),
    ("tools/src/web/secrets.rs", &["CREDENTIALS_DIRECTORY"]),
];

/// Ways to start a thread, or to run code on one of tokio's.
const SPAWNS: &[&str] = &["thread::spawn(", "thread::Builder", "thread::scope(", "task::spawn_blocking("];

/// The files that start threads. Landlock and seccomp apply to a thread, so each new thread must either need
/// no confinement or confine itself.
const MAY_SPAWN: &[&str] = &[
    "audit/src/sync.rs",
    "confine/src/testing.rs",
    "confine/src/thread.rs",
    "egress/src/lazy.rs",
    "egress/src/thread.rs",
    "gateway/src/routes/runs.rs",
    "mcp/src/stdio.rs",
    "mcp/src/streams.rs",
    "policy/src/commands/read.rs",
    "runtime/src/command/author/try_call/native.rs",
    "runtime/src/command/interrupts.rs",
    "runtime/src/setup.rs",
    "runtime/src/terminal_approver.rs",
    "tasks/src/processor.rs",
    "tasks/src/task_file.rs",
    "temporal/benches/overhead.rs",
    "sandbox/src/compiler.rs",
    "sandbox/src/hard_links/examine.rs",
    "sandbox/src/hard_links/search.rs",
    "sandbox/src/ticker.rs",
    "sandbox/src/worker.rs",
    "shell-daemon/src/background.rs",
    "shell-daemon/src/changes.rs",
    "shell-daemon/src/server/health.rs",
    "shell-daemon/src/server/session_egress.rs",
    "shell-daemon/src/server/session_thread.rs",
    "shell-daemon/src/watch.rs",
    "store/src/open.rs",
    "store/src/sqlite/readers.rs",
    "store/src/sqlite/writer.rs",
    "tools/src/spawn.rs",
    "tools/src/web/http_client.rs",
    "tools/src/witnesses.rs",
];

/// Tests of time itself, and tests that poll until a deadline.
const MAY_SLEEP: &[&str] = &[
    // A confined thread makes the system calls of a sleep.
    "confine/src/seccomp/tests.rs",
    // Slow clients and readers.
    "shell-daemon/tests/all/server/bytes.rs",
    "shell-daemon/tests/all/server/commands.rs",
    // Checkpoints after some time, and idle logs.
    "audit/src/tests/sealing.rs",
    "tests/tests/all/audit/sealed.rs",
    // The clock of a run, which is paused.
    "agent/src/agent_loop/tests.rs",
    "agent/src/telemetry/tests.rs",
    // The actions of agents, which the tests poll for.
    "gateway/tests/all/cycles.rs",
    "gateway/tests/all/world.rs",
    // The clock of a shell.
    "shell-daemon/tests/all/prepared_shell.rs",
    // The paused clock of a process that has died.
    "tasks/tests/all/world.rs",
    // Questions and deaths of processes, which the tests poll for.
    "runs/tests/all/external.rs",
    "runs/tests/all/questions.rs",
    "runs/tests/all/stepwise.rs",
    "runs/tests/all/world.rs",
    // Servers and workers that are waited for, effects that take time, and deaths at random times.
    "temporal/tests/all/kills.rs",
    "temporal/tests/all/server.rs",
    "temporal/tests/all/tools.rs",
    "temporal/tests/all/world.rs",
    // The helpers `wait_until_async` and `wait_until`.
    "shell-daemon/tests/all/server/sidecar.rs",
    "tests/tests/all/shell/backends.rs",
];

/// The maximum number of lines of a file, without its tests.
const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root").to_owned()
}

/// Returns all files of the repository with this extension, by path from the root, without build output and
/// generated sources.
fn files_ending_with(ending: &str) -> BTreeMap<String, String> {
    let root = root();
    let mut texts = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let kind = fs::symlink_metadata(&path).expect("the path exists").file_type();
            if kind.is_dir() && !matches!(name, "target" | ".git" | "node_modules" | "generated") {
                folders.push(path);
            } else if kind.is_file() && name.ends_with(ending)
                // Leave out files that are not text: they have no lines and no headers.
                && let Ok(text) = fs::read_to_string(&path)
            {
                let relative_path = path.strip_prefix(&root).expect("below the root");
                texts.insert(relative_path.to_string_lossy().into_owned(), text);
            }
        }
    }
    texts
}

#[track_caller]
fn assert_no_offenders(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n{}", offenders.join("\n"));
}

#[test]
fn every_source_file_begins_with_what_it_is() {
    let sources = files_ending_with(".rs");
    assert!(sources.len() > 100, "the repository was found");
    let files_without_header: Vec<String> = sources
        .into_iter()
        // Inputs and outputs of macro expansions are compared verbatim, so they have no header.
        .filter(|(path, _)| !path.contains("/tests/expansions/"))
        // Programs that are included unchanged in the middle of another file have no header.
        .filter(|(path, _)| !path.starts_with("tests/specifications/fixtures/"))
        .filter(|(_, text)| !text.trim().is_empty() && !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert_no_offenders("files that do not begin with `//!`", &files_without_header);
}

#[test]
fn no_source_file_is_longer_than_the_limit() {
    let long_files: Vec<String> = files_ending_with(".rs")
        .iter()
        .filter(|(path, _)| !path.contains("/tests/") && !path.ends_with("/tests.rs"))
        .map(|(path, text)| (path, text.lines().take_while(|line| *line != "#[cfg(test)]").count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert_no_offenders(&format!("files of more than {MAX_LINES} lines without their tests"), &long_files);
}

#[test]
fn unsafe_code_is_where_it_is_expected() {
    let keyword = concat!("un", "safe");
    let mut offenders = Vec::new();
    for (path, text) in files_ending_with(".rs") {
        // The fixtures of the macro's tests are meant to fail.
        if UNSAFE.iter().any(|allowed| path.starts_with(allowed)) || path.starts_with("sdk/ui/tests/ui/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let uses =
                ["{", "fn", "impl", "trait", "extern", "(no_mangle", "(export_name"].iter().any(|after| {
                    code.contains(&format!("{keyword} {after}"))
                        || code.contains(&format!("{keyword}{after}"))
                });
            let allows = code.contains(&format!("{keyword}_code"))
                && (code.contains("allow(") || code.contains("expect("));
            if uses || allows {
                offenders.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_no_offenders(&format!("{keyword} code in unexpected places"), &offenders);
}

/// Returns the lines of shipped code, by path, each with its number and without comments.
fn shipped_code() -> BTreeMap<String, Vec<(usize, String)>> {
    let is_test = |path: &str| {
        ["/tests/", "tests/", "testing/", "sdk/ui/", "examples/"].iter().any(|part| path.contains(part))
            || path.ends_with("tests.rs")
            || path == "tools-macros/src/expansions.rs"
            || path.starts_with("guest-tools/src/bin/hostile_")
    };
    let mut code = BTreeMap::new();
    for (path, text) in files_ending_with(".rs") {
        // A test contains the names that it searches for.
        if is_test(&path) || path.starts_with("xtask/") {
            continue;
        }
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").enumerate();
        let lines = lines
            .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default().trim().to_owned()));
        code.insert(path, lines.collect());
    }
    code
}

/// Returns the rule of ARCHITECTURE.md that begins with these words.
fn rule_of_the_map(begin: &str) -> String {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    let mut lines = map.lines().skip_while(|line| !line.starts_with(begin));
    let head = lines.next().unwrap_or_else(|| panic!("no rule: {begin}"));
    let rule: Vec<&str> =
        std::iter::once(head).chain(lines.take_while(|line| line.starts_with("  - "))).collect();
    rule.join("\n")
}

#[test]
fn only_the_http_client_connects_to_other_machines() {
    let (mut offenders, mut allowed) = (Vec::new(), 0);
    for (path, lines) in shipped_code() {
        for (number, code) in lines {
            if !WAYS_OUT.iter().any(|way| code.contains(way)) {
                continue;
            }
            if MAY_CONNECT.iter().any(|begin| path.starts_with(begin)) {
                allowed += 1;
            } else {
                offenders.push(format!("{path}:{number}: {code}"));
            }
        }
    }
    assert!(allowed > 0, "the client is found by the same names");
    assert_no_offenders("connections outside of the HTTP client", &offenders);
}

#[test]
fn the_map_names_each_file_that_opens_a_socket() {
    let rule = rule_of_the_map("- No shipped code opens a socket, except the following.");
    let names: Vec<&str> = rule.split('`').skip(1).step_by(2).collect();
    let (mut offenders, mut allowed) = (Vec::new(), 0);
    for (path, lines) in shipped_code() {
        if CANARIES.iter().any(|begin| path.starts_with(begin)) {
            continue;
        }
        let is_named =
            names.iter().any(|name| path == *name || (name.ends_with('/') && path.starts_with(name)));
        for (number, code) in lines {
            if SOCKETS.iter().any(|way| code.contains(way)) {
                if is_named { allowed += 1 } else { offenders.push(format!("{path}:{number}: {code}")) }
            }
        }
    }
    assert!(allowed > 5, "only {allowed} sockets were found");
    assert_no_offenders("sockets that the map does not name", &offenders);
}

#[test]
fn threads_start_only_where_it_is_expected() {
    let starts = |code: &String| SPAWNS.iter().any(|way| code.contains(way));
    let files: BTreeSet<String> = shipped_code()
        .into_iter()
        .filter(|(_, lines)| lines.iter().any(|(_, code)| starts(code)))
        .map(|(path, _)| path)
        .collect();
    let expected: BTreeSet<String> = MAY_SPAWN.iter().map(|path| (*path).to_owned()).collect();
    let unexpected: Vec<String> = files.symmetric_difference(&expected).cloned().collect();
    assert_no_offenders("files that start threads, against `MAY_SPAWN`", &unexpected);
}

#[test]
fn the_map_lists_each_environment_variable_that_is_read() {
    let rule = rule_of_the_map("- No environment variable is read except");
    let reads =
        |code: &String| ["env::var(", "env::var_os(", "env::vars"].iter().any(|way| code.contains(way));
    let readers: BTreeSet<String> = shipped_code()
        .into_iter()
        .filter(|(_, lines)| lines.iter().any(|(_, code)| reads(code)))
        .map(|(path, _)| path)
        .collect();
    let expected: BTreeSet<String> = ENVIRONMENT.iter().map(|(path, _)| (*path).to_owned()).collect();
    let unexpected: Vec<String> = readers.symmetric_difference(&expected).cloned().collect();
    assert_no_offenders("files that read variables, against `ENVIRONMENT`", &unexpected);
    let names = ENVIRONMENT.iter().flat_map(|(_, names)| *names);
    let missing: Vec<String> =
        names.filter(|name| !rule.contains(&format!("`{name}`"))).map(|name| (*name).to_owned()).collect();
    assert_no_offenders("variables that the map does not list", &missing);
}

#[test]
fn the_map_lists_each_file_that_starts_programs() {
    let rule = rule_of_the_map("- Programs are started only by");
    // A type whose name ends with `Command` starts nothing.
    let starts_a_program = |code: &str| {
        code.match_indices("Command::new(")
            .any(|(index, _)| !code[..index].ends_with(|before: char| before.is_alphanumeric()))
    };
    let is_listed = |path: &str| {
        let folder = path.split('/').next().unwrap_or_default();
        rule.contains(&format!("`{path}`")) || rule.contains(&format!("`{folder}/`"))
    };
    let unlisted: Vec<String> = shipped_code()
        .into_iter()
        .filter(|(_, lines)| lines.iter().any(|(_, code)| starts_a_program(code)))
        .map(|(path, _)| path)
        .filter(|path| !is_listed(path))
        .collect();
    assert_no_offenders("files that start programs, which the map does not list", &unlisted);
}

/// A file that lists the files of its folder must list all that are shipped.
#[test]
fn tables_of_files_are_complete() {
    let mut missing = Vec::new();
    for (path, text) in files_ending_with(".rs") {
        let Some((head, _)) = text.split_once("\n\n") else { continue };
        let table: Vec<&str> = head.lines().filter(|line| line.starts_with("//! | ")).collect();
        if !table.first().is_some_and(|line| line.starts_with("//! | file |")) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let module = pair[1].strip_prefix("pub ").unwrap_or(pair[1]);
            let module = module.strip_prefix("pub(crate) ").unwrap_or(module);
            let Some(module) = module.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) else {
                continue;
            };
            let is_test = pair[0].starts_with("#[cfg(") && pair[0].contains("test");
            let names = [format!("`{module}.rs`"), format!("`{module}/`")];
            if !is_test && !table.iter().any(|row| names.iter().any(|name| row.contains(name))) {
                missing.push(format!("{path}: {module}.rs"));
            }
        }
    }
    assert_no_offenders("files that the table at the head of their module lacks", &missing);
}

#[test]
fn crates_depend_on_exactly_the_listed_layers() {
    let mut wrong = Vec::new();
    for (folder, expected) in LAYERS {
        let path = root().join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let manifest: Table = text.parse().expect("a manifest");
        let dependencies: BTreeSet<&str> = ["dependencies", "build-dependencies"]
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table())
            .flat_map(|table| table.keys().map(String::as_str))
            .filter(|name| name.starts_with("portcullis"))
            .collect();
        let actual: BTreeSet<&str> =
            dependencies.iter().map(|name| name.strip_prefix("portcullis-").unwrap_or("runtime")).collect();
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        wrong.extend(
            actual.difference(&expected).map(|dependency| format!("{folder} depends on {dependency}")),
        );
        wrong.extend(
            expected
                .difference(&actual)
                .map(|dependency| format!("{folder} does not depend on {dependency}")),
        );
    }
    assert_no_offenders("dependencies that are not as they are written down", &wrong);
}

/// The table of crates in ARCHITECTURE.md must have the same layers.
#[test]
fn the_map_has_the_same_layers() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    for (folder, expected) in LAYERS {
        let row = map.lines().find(|line| line.starts_with(&format!("| `{folder}/` |")));
        let cell = row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("no row for {folder}"));
        let documented: BTreeSet<&str> =
            cell.split(',').map(str::trim).filter(|name| !matches!(*name, "–" | "")).collect();
        assert_eq!(documented, expected.iter().copied().collect(), "{folder}");
    }
}

/// Returns whether a word in backticks is the path of a folder, or of a file with one of these extensions.
fn is_path(name: &str, ends: &[&str]) -> bool {
    !name.starts_with(['/', '.'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !name.contains("NAME")
        && ends.iter().any(|end| name.ends_with(end))
}

/// Every source file that a document names must exist. The name is a path from the root, or the end of such a path.
#[test]
fn the_documents_name_files_that_are_there() {
    let all_paths: Vec<String> = files_ending_with("").into_keys().collect();
    let documents = all_paths.iter().filter(|path| path.starts_with("docs/") && path.ends_with(".md"));
    let (mut missing, mut names) = (Vec::new(), 0);
    for document in documents {
        let text = fs::read_to_string(root().join(document)).expect("readable");
        for name in text.split('`').skip(1).step_by(2).filter(|name| is_path(name, &[".rs", ".proto"])) {
            names += 1;
            let end = format!("/{name}");
            if !all_paths.iter().any(|path| path == name || path.ends_with(&end)) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(names > 150, "only {names} names were found");
    assert_no_offenders("what the documents name and is not there", &missing);
}

/// Every file and folder that ARCHITECTURE.md names must exist. A name in a crate's paragraph is a path below the
/// crate, or a path from the root.
#[test]
fn the_map_names_what_is_there() {
    const ENDS: [&str; 5] = ["/", ".rs", ".toml", ".proto", ".md"];
    let all_paths: Vec<String> = files_ending_with("").into_keys().collect();
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    let mut missing = Vec::new();
    let (mut crate_folder, mut names) = (String::new(), 0);
    for line in map.lines() {
        if line.starts_with('#') {
            crate_folder.clear();
        } else if let Some(folder) = line.strip_prefix("**`").and_then(|rest| rest.split_once("`**")) {
            crate_folder = folder.0.to_owned();
        }
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_path(name, &ENDS)) {
            names += 1;
            let is_below_crate = |path: &String| {
                let path = format!("/{path}");
                if name.ends_with('/') {
                    path.contains(&format!("/{name}"))
                } else {
                    path.ends_with(&format!("/{name}"))
                }
            };
            let is_from_root =
                |path: &String| path == name || (name.ends_with('/') && path.starts_with(name));
            let exists = all_paths.iter().any(is_from_root)
                || all_paths.iter().filter(|path| path.starts_with(&crate_folder)).any(is_below_crate);
            if !exists {
                missing.push(format!("{crate_folder} {name}"));
            }
        }
    }
    assert!(names > 180, "only {names} names were found");
    assert_no_offenders("what the map names and is not there", &missing);
}

#[test]
fn every_member_of_the_workspace_has_its_place_among_the_layers() {
    let manifest: Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("readable").parse().expect("a manifest");
    let members = manifest["workspace"]["members"].as_array().expect("members");
    for member in members.iter().filter_map(toml::Value::as_str) {
        let has_place = LAYERS.iter().any(|(folder, _)| *folder == member)
            || matches!(member, "sdk/ui" | "tests" | "tests/specifications" | "xtask");
        assert!(has_place, "`{member}` has no place among the layers of this test");
        let text = fs::read_to_string(root().join(member).join("Cargo.toml")).expect("readable");
        let table: Table = text.parse().expect("a manifest");
        assert_eq!(table["lints"]["workspace"].as_bool(), Some(true), "{member} uses the workspace's lints");
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let entries = table.get(section).and_then(toml::Value::as_table);
            for (name, entry) in entries.into_iter().flatten() {
                let shared = entry.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                // This is a crate of this workspace under another name, which a test of the macros needs.
                let renamed = entry.get("path").is_some() && entry.get("package").is_some();
                assert!(shared || renamed, "{member}: `{name}` is not declared once for all");
            }
        }
    }
}

#[test]
fn each_core_tool_has_its_own_file_and_its_tests() {
    let sources = files_ending_with(".rs");
    let module = sources.get("guest-tools/src/bin/core_tools.rs").expect("the module");
    let exported = module.split_once("export_tools![").and_then(|(_, rest)| rest.split_once(']'));
    let names: Vec<&str> = exported.expect("its list").0.split(',').map(str::trim).collect();
    let names: Vec<&str> = names
        .into_iter()
        .filter_map(|name| name.rsplit("::").next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.contains(&"file_read") && names.len() >= 3, "{names:?}");
    let docs: String = files_ending_with(".md")
        .into_iter()
        .filter(|(path, _)| path.starts_with("docs/"))
        .map(|(_, text)| text)
        .collect();
    for name in names {
        let source = sources
            .get(&format!("guest-tools/src/{name}.rs"))
            .unwrap_or_else(|| panic!("{name} has no file"));
        assert!(source.contains(&format!("pub async fn {name}(")), "{name} is not in its file");
        let tests = format!("guest-tools/src/{name}/tests.rs");
        assert!(sources.contains_key(&tests) || source.contains("mod tests {"), "{name} has no tests");
        assert!(docs.is_empty() || docs.contains(&format!("`{name}`")), "the docs do not mention {name}");
    }
}

#[test]
fn operations_have_exported_steps_and_are_in_the_docs() {
    let sources = files_ending_with(".rs");
    let modules = ["pdf_tools", "vault_tools", "web_tools"]
        .map(|name| &sources[&format!("guest-tools/src/bin/{name}.rs")]);
    let is_exported = |step: &str| modules.iter().any(|module| module.contains(&format!("::{step}")));
    // The steps that are not guests.
    let requests = ["fetch", "search", "notification", "notification/mail"]
        .map(|name| &sources[&format!("tools/src/web/{name}.rs")]);
    let is_request =
        |step: &str| requests.iter().any(|file| file.contains(&format!("_STEP: &str = \"{step}\"")));
    let docs: String = files_ending_with(".md").into_values().collect();
    for operation in portcullis_policy::Operation::ALL {
        for step in operation.steps {
            assert!(is_exported(step) || is_request(step), "{step} is in no module");
        }
        assert!(
            docs.contains(&format!("`{}`", operation.name)),
            "the docs do not mention {}",
            operation.name
        );
    }
}

#[test]
fn nothing_in_the_repository_names_the_machine_it_was_built_on() {
    let cargo_home = env::var("CARGO_HOME").ok().filter(|path| path.len() > 1);
    let home = env::var("HOME").ok().filter(|path| path.len() > 1).map(|home| format!("{home}/.cargo"));
    // Skip a short folder such as `/src`, because many texts contain it without meaning this machine.
    let root = Some(root()).filter(|root| root.components().count() > 2);
    let machine_paths = [root.map(|root| root.display().to_string()), cargo_home, home];
    let mut offenders = Vec::new();
    for (path, text) in files_ending_with("") {
        for (number, line) in text.lines().enumerate() {
            for machine_path in
                machine_paths.iter().flatten().filter(|machine_path| line.contains(machine_path.as_str()))
            {
                offenders.push(format!("{path}:{}: {machine_path}", number + 1));
            }
        }
    }
    assert_no_offenders("paths of this machine", &offenders);
}

#[test]
fn no_test_is_ignored_or_waits_for_time_to_pass() {
    let words = [concat!("#[ig", "nore"), concat!("thread::sl", "eep("), concat!("time::sl", "eep(")];
    let mut offenders = Vec::new();
    for (path, text) in files_ending_with(".rs") {
        let is_test =
            (path.contains("/tests/") || path.ends_with("/tests.rs")) && !MAY_SLEEP.contains(&path.as_str());
        for (number, line) in text.lines().enumerate().filter(|_| is_test) {
            if words.iter().any(|word| line.contains(word)) {
                offenders.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_no_offenders("tests that are ignored or sleep", &offenders);
}

/// The maximum length of a test's name, in characters.
const MAX_TEST_NAME_CHARS: usize = 60;

#[test]
fn test_names_are_short() {
    let mut offenders = Vec::new();
    for (path, text) in files_ending_with(".rs") {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let Some((name, _)) = function.and_then(|function| function.split_once('(')) {
                if is_test && name.len() > MAX_TEST_NAME_CHARS {
                    offenders.push(format!("{path}: {name}"));
                }
                is_test = false;
            }
        }
    }
    assert_no_offenders("test names of more than 60 characters", &offenders);
}
