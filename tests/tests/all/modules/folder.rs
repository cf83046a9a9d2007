//! The folder of modules: which of its files are loaded, which are refused, and where the folder may be.

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{
    BootstrapError, OVERLAY_FILE, modules::ModuleFolderError, policy::ToolOrigin, sandbox::MAX_MODULE_BYTES,
    sandbox::mounts::MountError,
};
use portcullis_types::{SafetyTier, ToolErrorKind::Denied};
use serde_json::json;

use super::{fixture, folder, module, portcullis, refused_modules, stderr, stdout};
use crate::{
    hostile::wat_guest::WatGuest,
    support::{caller, raw_call},
};

/// The description of a module that asks for every grant.
const GREEDY: &str = r#"{"v":1,"tools":[{"name":"greedy","parameters":{"type":"object"},"tier":"read_only",
    "policy":"auto","profile":"FileReadWrite","hosts":["https://example.org"],"timeout_ms":86400000}]}"#;

#[tokio::test]
async fn a_module_gets_the_policys_rights_and_not_those_it_claims() {
    let greedy = WatGuest::describing(&GREEDY.replace('\n', "")).bytes();
    let fixture = fixture(&[("greedy.wasm", &greedy)]);
    let registry = fixture.registry().await;
    let tool = registry.get("greedy").expect("loaded");
    assert_eq!(tool.descriptor().origin, ToolOrigin::ForeignModule);
    let assigned = registry.assignment(&tool).expect("enabled");
    assert_eq!((assigned.profile.as_str(), assigned.approval.as_str()), ("Nothing", "ask"));
    assert_eq!(assigned.tier, SafetyTier::ReadOnly);
    assert_eq!(assigned.timeout, registry.policy().limits().max_timeout);
    let unasked = registry.execute_with_policy(raw_call("greedy", "{}"), &caller()).await;
    assert_eq!(unasked.into_result().expect_err("nobody to ask").code(), "approval_unavailable");
    assert_eq!(CallOutcome::run(&registry, "greedy", json!({})).await.text(), "done");
    let row = fixture.rows().pop().expect("a row");
    assert!(row.mounts.is_empty(), "{row:?}");
    assert_eq!(
        row.module_sha256.as_deref(),
        tool.module().map(|module| module.digest().to_string()).as_deref()
    );
}

#[tokio::test]
async fn a_policy_entry_holds_but_a_privileged_tier_is_asked_about() {
    let entry = "[tools.mine]\nprofile = \"WorkspaceRead\"\napproval = \"allow\"\n";
    for (tier, approval) in [("read_only", "allow"), ("side_effecting", "allow"), ("privileged", "ask")] {
        let describe = format!(
            r#"{{"v":1,"tools":[{{"name":"mine","parameters":{{"type":"object"}},"tier":"{tier}"}}]}}"#
        );
        let fixture = fixture(&[("m.wasm", &WatGuest::describing(&describe).bytes())]).with_policy(entry);
        let registry = fixture.registry().await;
        let assigned = registry.assignment(&registry.get("mine").expect("loaded")).expect("enabled");
        assert_eq!((assigned.profile.as_str(), assigned.approval.as_str()), ("WorkspaceRead", approval));
    }
}

#[tokio::test]
async fn one_module_may_have_several_tools() {
    let describe = r#"{"v":1,"tools":[{"name":"one","parameters":{"type":"object"}},{"name":"two","parameters":{"type":"object"}}]}"#;
    let fixture = fixture(&[("both.wasm", &WatGuest::describing(describe).bytes())]);
    let registry = fixture.registry().await;
    for tool in ["one", "two"] {
        assert_eq!(CallOutcome::run(&registry, tool, json!({})).await.text(), "done");
        assert_eq!(registry.get(tool).expect("loaded").module_name(), Some("both.wasm"));
    }
}

#[tokio::test]
async fn a_file_that_is_no_plain_module_hides_no_other() {
    let fixture = fixture(&[("good.wasm", &module("good")), ("empty.wasm", b""), ("text.wasm", b"(module)")]);
    let module_path = |name: &str| folder(&fixture).join(name);
    fs::write(fixture.root().join("elsewhere.wasm"), module("linked")).expect("written");
    symlink(fixture.root().join("elsewhere.wasm"), module_path("link.wasm")).expect("links");
    symlink(module_path("gone"), module_path("dangling.wasm")).expect("links");
    fs::create_dir(module_path("folder.wasm")).expect("the folder can be made");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        module_path("fifo.wasm"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(module_path("socket.wasm")).expect("a socket");
    fs::File::create(module_path("large.wasm"))
        .and_then(|file| file.set_len(MAX_MODULE_BYTES as u64 + 1))
        .expect("made");
    fs::write(folder(&fixture).join(std::ffi::OsStr::from_bytes(b"\xff.wasm")), module("unnamed"))
        .expect("written");
    fs::write(module_path(".hidden.wasm"), module("hidden")).expect("written");
    fs::write(module_path("README.md"), "no module").expect("written");

    let registry = fixture.registry().await;
    let refusals = refused_modules(&registry);
    for (name, why) in [
        ("dangling.wasm", "links are not followed"),
        ("empty.wasm", "cannot compile"),
        ("fifo.wasm", "not a regular file"),
        ("folder.wasm", "not a regular file"),
        ("large.wasm", "more than 16777216 bytes"),
        ("link.wasm", "links are not followed"),
        ("socket.wasm", "not a regular file"),
        ("text.wasm", "cannot compile"),
        ("\u{fffd}.wasm", "not UTF-8"),
    ] {
        let (_, problem) =
            refusals.iter().find(|(module, _)| module == name).unwrap_or_else(|| panic!("{name}"));
        assert!(problem.contains(why), "{name}: {problem}");
    }
    assert_eq!(refusals.len(), 9, "{refusals:?}");
    for tool in ["linked", "hidden", "unnamed"] {
        assert!(registry.get(tool).is_none(), "{tool}");
    }
    assert_eq!(CallOutcome::run(&registry, "good", json!({})).await.text(), "done");

    let listed = portcullis(&fixture, &["tools"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert!(stdout(&listed).contains("modules that are refused\n"), "{}", stdout(&listed));
    assert!(stdout(&listed).contains("  link.wasm: it is a link"), "{}", stdout(&listed));
    assert!(stderr(&listed).contains("fifo.wasm"), "the log says it too: {}", stderr(&listed));
    let json = stdout(&portcullis(&fixture, &["tools", "--json"]));
    let tools: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let good = tools.iter().find(|tool| tool["name"] == "good").expect("listed");
    assert_eq!((&good["origin"], &good["standing"]), (&json!("foreign_module"), &json!("unpinned")));
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_stops_the_start() {
    let missing = Fixture::new().with_policy("[modules]\ndir = \"modules\"");
    let error = missing.builder().await.expect_err("there is none");
    assert!(matches!(error, BootstrapError::Folder(ModuleFolderError::Unusable { .. })), "{error:?}");
    assert_eq!(portcullis(&missing, &["tools"]).status.code(), Some(2));

    let fixture = fixture(&[]);
    for number in 0..=256 {
        fs::write(folder(&fixture).join(format!("{number}.wasm")), b"").expect("written");
    }
    let error = fixture.builder().await.expect_err("too many");
    assert!(matches!(error, BootstrapError::Folder(ModuleFolderError::TooMany { .. })), "{error:?}");
    fs::remove_dir_all(folder(&fixture)).expect("removed");
    fs::write(folder(&fixture), b"").expect("written");
    let error = fixture.builder().await.expect_err("a file");
    assert!(matches!(error, BootstrapError::Folder(ModuleFolderError::Unusable { .. })), "{error:?}");
}

#[tokio::test]
async fn a_folder_that_touches_a_mount_is_refused_also_behind_a_link() {
    for dir in ["workspace/shared", "workspace/shared/modules", "workspace", "link", "link/modules"] {
        let fixture = Fixture::new().with_policy(&format!("[modules]\ndir = \"{dir}\""));
        fs::create_dir(fixture.shared("modules")).expect("the folder can be made");
        symlink(fixture.workspace().join("shared"), fixture.root().join("link")).expect("links");
        let error = fixture.builder().await.expect_err("a tool could write modules");
        assert!(matches!(error, BootstrapError::Mount(MountError::Overlap { .. })), "{dir}: {error:?}");
    }
    let fixture = Fixture::new();
    let absolute = format!("[modules]\ndir = \"{}\"", fixture.workspace().join("tmp").display());
    let fixture = fixture.with_policy(&absolute);
    let error = fixture.builder().await.expect_err("absolute");
    assert!(matches!(error, BootstrapError::Mount(MountError::Overlap { .. })), "{error:?}");
}

#[tokio::test]
async fn no_overlay_names_a_folder_of_modules() {
    let fixture = fixture(&[]);
    fs::create_dir(fixture.workspace().join("evil")).expect("the folder can be made");
    fs::write(fixture.workspace().join("evil/m.wasm"), module("evil")).expect("written");
    fs::write(fixture.workspace().join(OVERLAY_FILE), "[modules]\ndir = \"evil\"\n").expect("written");
    let error = fixture.builder().await.expect_err("an overlay takes away");
    assert!(
        matches!(&error, BootstrapError::Policy(faults) if faults.to_string().contains("modules")),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_overlay_disables_a_module_and_makes_none_known() {
    let fixture = fixture(&[("a.wasm", &module("alpha")), ("b.wasm", &module("beta"))]);
    let overlay = "[tools.alpha]\nenabled = false\n[tools.beta]\ntimeout = \"1s\"\n";
    fs::write(fixture.workspace().join(OVERLAY_FILE), overlay).expect("written");
    let registry = fixture.registry().await;
    CallOutcome::run(&registry, "alpha", json!({})).await.assert_refused(Denied, "tool_disabled");
    let beta = registry.assignment(&registry.get("beta").expect("loaded")).expect("enabled");
    assert_eq!((beta.profile.as_str(), beta.approval.as_str()), ("Nothing", "ask"));
}

#[test]
fn a_module_is_named_on_the_command_line() {
    let fixture = Fixture::new();
    let file = fixture.root().join("m.wasm");
    fs::write(&file, module("mine")).expect("written");
    let file = file.to_str().expect("the path is UTF-8");
    let refused_call = portcullis(&fixture, &["call", "mine", "--module", file]);
    assert_eq!(refused_call.status.code(), Some(3), "{}", stderr(&refused_call));
    let called = portcullis(&fixture, &["call", "mine", "{}", "--approve", "--module", file]);
    assert_eq!((called.status.code(), stdout(&called).as_str()), (Some(0), "done"), "{}", stderr(&called));
    assert!(stdout(&portcullis(&fixture, &["tools", "--module", file])).contains("mine"));
    assert!(!stdout(&portcullis(&fixture, &["tools"])).contains("mine"));
    assert_eq!(portcullis(&fixture, &["call", "mine", "--approve"]).status.code(), Some(1), "not found");
    for wrong in
        ["/dev/null", "/nowhere.wasm", "/tmp", fixture.policy_file().to_str().expect("the path is UTF-8")]
    {
        let output = portcullis(&fixture, &["call", "add", "{\"a\":1,\"b\":2}", "--module", wrong]);
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        assert!(stderr(&output).contains(wrong), "{}", stderr(&output));
    }
    let mut digests: Vec<_> = fixture.rows().into_iter().map(|row| row.policy_digest).collect();
    digests.dedup();
    assert_eq!(digests.len(), 2, "the module's hash is in the digest: {digests:?}");
}
