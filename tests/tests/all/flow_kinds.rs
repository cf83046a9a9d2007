//! Writes of protected kinds after a read of the data that a rule names. The approver is asked if an argument
//! names the file. A guest that writes another file of such a kind is refused.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{
    Caller, ToolRegistry,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer},
    new_call,
};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

const ASKS: &str = "[[flow]]\nafter = [\"mount:tmp\"]\nthen = [\"write:protected\"]\napproval = \"ask\"\n";
const RULE: &str = "flow[mount:tmp -> write:protected]";

/// The policy entry of the guest that tries any operation, with a grant to write.
const GUEST: &str = "[tools.raw_path]\nprofile = \"FileReadWrite\"\napproval = \"allow\"\n";

/// Approves everything, and counts the questions.
#[derive(Default)]
struct CountingApprover(AtomicUsize);

#[async_trait]
impl Approver for CountingApprover {
    async fn decide(&self, _request: &ApprovalRequest) -> AttributedAnswer {
        self.0.fetch_add(1, Ordering::Relaxed);
        ApprovalAnswer::Approve.into()
    }
}

fn fixture(policy: &str) -> Fixture {
    let fixture = Fixture::new().with_policy(policy);
    fs::create_dir_all(fixture.workspace().join("tmp")).expect("writable");
    fs::write(fixture.workspace().join("tmp/page"), "write what I say").expect("writable");
    fs::write(fixture.workspace().join("vault/key"), "secret").expect("writable");
    fixture.put("kept/Makefile", "all:\n");
    fixture
}

async fn call(registry: &ToolRegistry, caller: &Caller, tool: &str, arguments: Value) -> CallOutcome {
    CallOutcome(registry.execute_with_policy(new_call(tool, arguments.to_string()), caller).await)
}

/// Returns the caller of a run that has read the data that the rule names.
async fn caller_after_read(registry: &ToolRegistry) -> Caller {
    let caller = Caller::new("tester", "reads");
    let read = call(registry, &caller, "file_read", json!({ "path": "/tmp/page" })).await;
    assert!(read.text().contains("write what I say"));
    caller
}

fn write(path: &str) -> Value {
    json!({ "path": path, "content": "x" })
}

#[tokio::test]
async fn a_named_kind_is_asked_about_and_other_files_are_not() {
    let fixture = fixture(ASKS);
    let registry = fixture.registry().await;
    let caller = caller_after_read(&registry).await;
    for (tool, arguments) in [
        ("file_write", write("/shared/Makefile")),
        ("file_write", write("/shared/a/b/agents.MD")),
        ("file_write", write("/shared/run.sh")),
        ("file_write", write("/shared/.github/workflows/ci.yml")),
        ("file_write", write("/shared/x/../package.json")),
        ("file_edit", json!({ "path": "/shared/kept/Makefile", "old_text": "all", "new_text": "any" })),
        ("file_delete", json!({ "path": "/shared/kept/Makefile" })),
        ("vault_copyto", json!({ "source_path": "/vault/key", "destination_path": "/shared/setup.py" })),
    ] {
        let refused_write = call(&registry, &caller, tool, arguments.clone()).await;
        refused_write.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
        let row = fixture.rows().pop().expect("a row");
        assert_eq!(row.flow_rule.as_deref(), Some(RULE), "{tool} {arguments}");
    }
    for path in ["/shared/notes.md", "/shared/Makefile.txt", "/tmp/x", "/shared/.github/readme"] {
        let _written = call(&registry, &caller, "file_write", write(path)).await.text();
    }
    let read = call(&registry, &caller, "file_read", json!({ "path": "/shared/kept/Makefile" })).await;
    assert!(read.text().contains("all:"));
    // The other run has read nothing.
    let _written =
        call(&registry, &Caller::new("tester", "does not"), "file_write", write("/shared/Makefile"))
            .await
            .text();
}

#[tokio::test]
async fn an_approved_write_is_made_and_the_next_is_asked_about_again() {
    let fixture = fixture(ASKS);
    let registry = fixture.registry().await;
    let mut caller = caller_after_read(&registry).await;
    let approver = Arc::new(CountingApprover::default());
    caller.approver = Some(Arc::clone(&approver) as Arc<dyn Approver>);
    for expected_questions in 1..=2 {
        let _written = call(&registry, &caller, "file_write", write("/shared/Makefile")).await.text();
        assert_eq!(approver.0.load(Ordering::Relaxed), expected_questions);
    }
    assert_eq!(fs::read_to_string(fixture.shared("Makefile")).expect("written"), "x");
}

#[tokio::test]
async fn a_rule_that_denies_names_its_place() {
    let fixture = fixture(&ASKS.replace("\"ask\"", "\"deny\""));
    let registry = fixture.registry().await;
    let caller = caller_after_read(&registry).await;
    let denied = call(&registry, &caller, "file_write", write("/shared/Makefile")).await;
    let message = denied.assert_refused(ToolErrorKind::Denied, "flow_denied");
    for part in ["`[[flow]]`", "`mount:tmp` in `after`", "`write:protected` in `then`"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!fixture.shared("Makefile").exists());
    let _written = call(&registry, &caller, "file_write", write("/shared/notes")).await.text();
}

/// A guest writes a file that its arguments do not name.
#[tokio::test]
async fn a_guest_writes_no_kind_that_its_call_does_not_name() {
    let fixture = fixture(&format!("{GUEST}{ASKS}"));
    fixture.put("notes", "x");
    std::os::unix::fs::symlink("kept/Makefile", fixture.shared("link")).expect("links");
    let registry = fixture.registry_with(&["raw_path"]).await;
    let caller = caller_after_read(&registry).await;
    let allowed_arguments = json!({ "op": "create", "path": "fine", "named": "/shared/notes" });
    assert!(call(&registry, &caller, "raw_path", allowed_arguments).await.text().starts_with("ok"));
    for (op, path, to) in [
        ("create", "Makefile", ""),
        ("create", "sub.sh", ""),
        ("write", "kept/Makefile", ""),
        ("write", "link", ""),
        ("truncate", "kept/Makefile", ""),
        ("remove", "kept/Makefile", ""),
        ("rename", "notes", "Makefile"),
        ("rename", "kept/Makefile", "moved"),
        ("rename", "notes", ".github"),
        ("symlink", "notes", "AGENTS.md"),
        ("mkdir", ".cargo", ""),
        ("touch", "kept/Makefile", ""),
    ] {
        let arguments = json!({ "op": op, "path": path, "to": to, "named": "/shared/notes" });
        let refused = call(&registry, &caller, "raw_path", arguments).await;
        let message = refused.assert_refused(ToolErrorKind::Denied, "kind_withheld");
        assert!(message.contains("protected kind"), "{op} {path}: {message}");
    }
    assert_eq!(fs::read_to_string(fixture.shared("kept/Makefile")).expect("the file is readable"), "all:\n");
    for absent in ["Makefile", "sub.sh", "AGENTS.md", ".github", ".cargo", "moved"] {
        assert!(!fixture.shared(absent).exists(), "{absent}");
    }
    // In a run without the label, the same guest may write the file.
    let other = Caller::new("tester", "does not");
    let arguments = json!({ "op": "create", "path": "Makefile", "named": "/shared/notes" });
    assert!(call(&registry, &other, "raw_path", arguments).await.text().starts_with("ok"));
}

/// If no argument names the files that a call writes, they are unknown.
#[tokio::test]
async fn a_tool_without_a_role_is_asked_about_as_a_whole() {
    let fixture = fixture(&format!("{GUEST}{ASKS}"));
    let registry = fixture.registry_with(&["raw_path"]).await;
    let caller = caller_after_read(&registry).await;
    let arguments = json!({ "op": "create", "path": "notes" });
    call(&registry, &caller, "raw_path", arguments)
        .await
        .assert_refused(ToolErrorKind::Denied, "approval_unavailable");
    assert_eq!(fixture.rows().pop().expect("a row").flow_rule.as_deref(), Some(RULE));
    assert!(!fixture.shared("notes").exists());
}

#[tokio::test]
async fn a_name_that_is_no_longer_protected_is_a_kind() {
    let fixture = fixture(ASKS)
        .with_policy_edit("\".envrc\", ", "")
        .with_policy_edit("\"*.sh\", ", "")
        .with_policy_edit("[protect] ", "[protect]\nexcept = [\".envrc\", \"*.sh\"]\n");
    let registry = fixture.registry().await;
    let caller = caller_after_read(&registry).await;
    let refused_write = call(&registry, &caller, "file_write", write("/shared/.envrc")).await;
    refused_write.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
    let _written = call(&registry, &caller, "file_write", write("/shared/run.sh")).await.text();
    let protected = call(&registry, &caller, "file_write", write("/shared/.bashrc")).await;
    protected.assert_refused(ToolErrorKind::Denied, "protected_path");
}
