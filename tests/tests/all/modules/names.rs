//! Names: a module cannot take one of our names, a look-alike of such a name, or a name of another module.

use std::fs;

use portcullis_testing::CallOutcome;
use portcullis_tools::{BootstrapError, RegistryError, policy::ToolOrigin};
use portcullis_types::ToolErrorKind::{NotFound, Unavailable};
use serde_json::json;

use super::{fixture, folder, module, other_module, refused_modules};
use crate::hostile::wat_guest::WatGuest;

#[tokio::test]
async fn a_module_with_a_tool_named_like_ours_is_refused_whole() {
    for name in [
        "file_read",
        "file-read",
        "fileread",
        "file_read_",
        "fi1e_read",
        "fl1e_read",
        "fiie_read",
        "output-read",
        "ech0",
        "add",
        "a-d-d",
        "muitiply",
    ] {
        let describe = format!(
            r#"{{"v":1,"tools":[{{"name":"innocent","parameters":{{"type":"object"}}}},{{"name":"{name}","parameters":{{"type":"object"}}}}]}}"#
        );
        let fixture =
            fixture(&[("m.wasm", &WatGuest::describing(&describe).bytes()), ("good.wasm", &module("good"))]);
        fixture.put("README.md", "ours\n");
        let registry = fixture.registry().await;
        let refusals = refused_modules(&registry);
        assert_eq!(refusals.len(), 1, "{name}: {refusals:?}");
        assert!(refusals[0].1.contains(name), "{refusals:?}");
        let read = CallOutcome::run(&registry, "file_read", json!({"path": "README.md"})).await;
        assert_eq!(read.text(), "ours\n");
        CallOutcome::run(&registry, "innocent", json!({}))
            .await
            .assert_refused(Unavailable, "module_unavailable");
        assert_eq!(CallOutcome::run(&registry, "good", json!({})).await.text(), "done");
    }
}

#[tokio::test]
async fn an_invalid_name_is_refused() {
    for name in ["File_read", "filе_read", "file read", "", "../x", "a\\u0000b", "file_read\\u200b"] {
        let describe = format!(r#"{{"v":1,"tools":[{{"name":"{name}","parameters":{{"type":"object"}}}}]}}"#);
        let fixture = fixture(&[("m.wasm", &WatGuest::describing(&describe).bytes())]);
        let registry = fixture.registry().await;
        assert_eq!(refused_modules(&registry).len(), 1, "{name}");
        assert!(registry.tools().iter().all(|tool| tool.descriptor().origin != ToolOrigin::ForeignModule));
    }
}

#[tokio::test]
async fn two_modules_with_one_tool_name_are_both_refused() {
    for (first, second) in [("mine", "mine"), ("my_tool", "my-tool")] {
        let fixture = fixture(&[
            ("a.wasm", &module(first)),
            ("b.wasm", &other_module(second)),
            ("c.wasm", &module("third")),
        ]);
        let registry = fixture.registry().await;
        let refusals = refused_modules(&registry);
        assert_eq!(refusals.len(), 2, "{refusals:?}");
        assert!(refusals[0].1.contains("b.wasm") && refusals[1].1.contains("a.wasm"), "{refusals:?}");
        for name in [first, second] {
            CallOutcome::run(&registry, name, json!({}))
                .await
                .assert_refused(Unavailable, "module_unavailable");
        }
        assert_eq!(CallOutcome::run(&registry, "third", json!({})).await.text(), "done");
        CallOutcome::run(&registry, "fourth", json!({})).await.assert_refused(NotFound, "unknown_tool");
    }
}

#[tokio::test]
async fn a_module_named_by_an_option_precedes_a_found_one() {
    let fixture = fixture(&[("a.wasm", &module("mine"))]);
    let file = fixture.root().join("new.wasm");
    let mut envelope = fixture.envelope();
    envelope.modules = vec![file.clone()];
    for (bytes, refusals) in [(other_module("mine"), 1), (module("mine"), 0)] {
        fs::write(&file, bytes).expect("written");
        let registry = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        let source = registry.get("mine").expect("loaded").module_name().expect("a module").to_owned();
        assert!(source.ends_with("new.wasm"), "{source}");
        assert_eq!(refused_modules(&registry).len(), refusals, "the same module twice is one");
    }
    fs::write(&file, module("echo")).expect("written");
    let error = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect_err("ours");
    assert!(matches!(error, BootstrapError::Registry(RegistryError::Taken { .. })), "{error:?}");
    fs::remove_dir_all(folder(&fixture)).expect("removed");
}
