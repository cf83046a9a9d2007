//! A registry whose tools change while it serves.

use std::sync::{Arc, atomic::Ordering};

use portcullis_testing::Fixture;
use portcullis_tools::{BootstrapError, PolicyFiles, RegistryBuilder, RegistryError, ToolRegistry};
use portcullis_types::{SandboxTier, ToolErrorKind, ToolMeta, ToolName, ToolOutput};
use tokio::sync::Notify;

use crate::support::{Spy, caller, enabling_entry, fixture_enabling, raw_call};

/// Creates a builder under the fixture's policy.
fn builder(fixture: &Fixture) -> RegistryBuilder {
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    ToolRegistry::builder().policy(policy).state(fixture.state()).default_tools()
}

fn name(text: &str) -> ToolName {
    ToolName::parse(text).expect("a name")
}

fn registry_awaiting(fixture: &Fixture, names: &[&str]) -> ToolRegistry {
    builder(fixture).declare_late_tools(names.iter().map(|text| name(text))).build().expect("builds")
}

async fn error_kind(registry: &ToolRegistry, tool: &str) -> Option<ToolErrorKind> {
    let result = registry.execute_with_policy(raw_call(tool, "{}"), &caller()).await;
    result.into_result().err().map(|error| error.kind())
}

#[tokio::test]
async fn a_tool_is_called_from_when_it_is_added_until_it_is_removed() {
    let fixture = fixture_enabling(&["late"]);
    let registry = registry_awaiting(&fixture, &["late"]);
    assert_eq!(error_kind(&registry, "late").await, Some(ToolErrorKind::NotFound));
    let mut changes = registry.changes();
    for _ in 0..2 {
        registry.add_tool(Arc::new(Spy::repeating("late"))).expect("added");
        assert!(changes.has_changed());
        changes.changed().await;
        assert!(!changes.has_changed());
        assert_eq!(error_kind(&registry, "late").await, None);
        assert!(registry.offered().iter().any(|tool| tool.decl().name == "late"));
        assert_eq!(registry.remove_tool("late").expect("the tool is registered").decl().name, "late");
        changes.changed().await;
        assert_eq!(error_kind(&registry, "late").await, Some(ToolErrorKind::NotFound));
        assert!(registry.get("late").is_none() && registry.remove_tool("late").is_none());
    }
    let outcomes: Vec<_> =
        fixture.rows().iter().filter_map(|row| row.outcome).map(|end| end.to_string()).collect();
    assert_eq!(outcomes.len(), 5, "each call has its row: {outcomes:?}");
}

#[tokio::test]
async fn the_policy_holds_for_a_tool_that_is_added_too() {
    // A tool that the program adds is denied unless an entry enables it.
    let fixture = Fixture::new();
    let registry = registry_awaiting(&fixture, &["late"]);
    let spy = Spy::repeating("late");
    let calls = spy.calls();
    registry.add_tool(Arc::new(spy)).expect("added");
    assert_eq!(error_kind(&registry, "late").await, Some(ToolErrorKind::Denied));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(registry.offered().iter().all(|tool| tool.decl().name != "late"));
    // An entry for a name that the builder does not await is a fault.
    let fixture = Fixture::new().with_policy(&enabling_entry("late"));
    let fault = builder(&fixture).build().expect_err("no tool has this name");
    assert!(matches!(fault, BootstrapError::Policy(_)), "{fault:?}");
}

#[tokio::test]
async fn a_name_that_is_taken_or_shipped_is_neither_added_nor_removed() {
    let fixture = fixture_enabling(&["late", "other"]);
    let registry = registry_awaiting(&fixture, &["late", "other"]);
    registry.add_tool(Arc::new(Spy::repeating("late"))).expect("added");
    let changes = registry.changes();
    for taken_name in ["late", "echo", "output_read", "vault_copyto_read"] {
        let error = registry.add_tool(Arc::new(Spy::repeating(taken_name))).expect_err(taken_name);
        assert!(matches!(error, RegistryError::Taken { .. }), "{taken_name}: {error:?}");
    }
    for other_case in ["Late", "eCho", "Output_Read"] {
        let error = registry.add_tool(Arc::new(Spy::repeating(other_case))).expect_err(other_case);
        assert!(matches!(error, RegistryError::DiffersInCase { .. }), "{other_case}: {error:?}");
    }
    let step = registry.add_tool(Arc::new(Spy::repeating("Vault_Copyto_Read"))).expect_err("a step");
    assert!(matches!(step, RegistryError::Taken { .. }), "{step:?}");
    let doubled = ToolMeta { aliases: vec!["second".to_owned(), "echo".to_owned()], ..ToolMeta::default() };
    let error = registry.add_tool(Arc::new(Spy::repeating("other").meta(doubled))).expect_err("an alias");
    assert!(matches!(error, RegistryError::Taken { .. }), "{error:?}");
    assert!(registry.get("other").is_none() && registry.get("second").is_none(), "nothing by half");
    for fixed_tool in ["echo", "output_read", "nothing"] {
        assert!(registry.remove_tool(fixed_tool).is_none(), "{fixed_tool}");
    }
    assert!(!changes.has_changed());
    assert_eq!(error_kind(&registry, "late").await, None);
}

#[tokio::test]
async fn a_call_ends_in_order_after_its_tool_is_removed() {
    let fixture = fixture_enabling(&["slow"]);
    let registry = registry_awaiting(&fixture, &["slow"]);
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun_by_spy, go_of_spy) = (Arc::clone(&begun), Arc::clone(&go));
    let slow = Spy::new("slow", move |_, _| {
        let (begun, go) = (Arc::clone(&begun_by_spy), Arc::clone(&go_of_spy));
        async move {
            begun.notify_one();
            go.notified().await;
            Ok(ToolOutput::text("done"))
        }
    });
    registry.add_tool(Arc::new(slow)).expect("added");
    let caller = caller();
    let call = registry.execute_with_policy(raw_call("slow", "{}"), &caller);
    let removal = async {
        begun.notified().await;
        assert!(registry.remove_tool("slow").is_some());
        assert_eq!(error_kind(&registry, "slow").await, Some(ToolErrorKind::NotFound));
        go.notify_one();
    };
    let (result, ()) = tokio::join!(call, removal);
    assert_eq!(result.into_result().expect("a result").joined_text(), "done");
}

/// Each call sees one complete list, even while tools are added and removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_and_calls_at_once_lose_nothing() {
    let names: Vec<String> = (0..8).map(|number| format!("late{number}")).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let fixture = fixture_enabling(&known);
    let registry = Arc::new(registry_awaiting(&fixture, &known));
    let mut tasks = tokio::task::JoinSet::new();
    for name in names.clone() {
        let registry = Arc::clone(&registry);
        tasks.spawn(async move {
            for _ in 0..50 {
                registry.add_tool(Arc::new(Spy::repeating(&name))).expect("added");
                assert_eq!(error_kind(&registry, &name).await, None, "its own tool is there");
                assert_eq!(error_kind(&registry, "echo").await, Some(ToolErrorKind::InvalidArguments));
                assert!(registry.remove_tool(&name).is_some());
                tokio::task::yield_now().await;
            }
            registry.add_tool(Arc::new(Spy::repeating(&name))).expect("added");
        });
    }
    tasks.join_all().await;
    assert!(names.iter().all(|name| registry.get(name).is_some()));
}

#[tokio::test]
async fn a_registry_that_is_dropped_drops_its_tools() {
    let fixture = fixture_enabling(&["early", "late"]);
    let [early, late] = ["early", "late"].map(|name| Arc::new(Spy::repeating(name)));
    let registry = builder(&fixture)
        .declare_late_tools([name("late")])
        .shared_tool(Arc::<Spy>::clone(&early))
        .build()
        .expect("builds");
    registry.add_tool(Arc::<Spy>::clone(&late)).expect("added");
    assert_eq!(error_kind(&registry, "late").await, None);
    drop(registry);
    assert_eq!((Arc::strong_count(&early), Arc::strong_count(&late)), (1, 1));
}
