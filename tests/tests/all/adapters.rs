//! For every kind of adapter: a refused call does nothing and leaves one row, whichever check refuses it.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis::OwnSidecar;
use portcullis_adapters::{
    IntoTool as _,
    everruns::{self, ToolExecutionResult},
    yoagent::types as yoagent,
};
use portcullis_sdk::tool;
use portcullis_testing::{Fixture, approving_caller, binary, guest};
use portcullis_tools::{
    Caller, ToolRegistry, ToolResult,
    approval::{ApprovalAnswer, ApprovalRule},
    audit::{self, Decision, Outcome, Row, RowEvent},
    hook::{BeforeCall, CallHook, HookedCall},
    policy::ToolOrigin,
    shell::ShellSource,
};
use portcullis_types::{
    Access, ArgumentRole, CancellationToken, SafetyTier,
    ToolErrorKind::{self, Cancelled, Denied, InvalidArguments, NotFound, RateLimited, Unavailable},
    ToolOutput, async_trait,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    pipeline::Always,
    support::{ScriptedApprover, Spy, raw_call, snapshot},
};

/// One kind of adapter, with one of its tools.
#[derive(Debug, Clone, Copy)]
struct Adapter {
    tool: &'static str,
    /// Whether the tool is native and added by an embedder.
    is_native: bool,
    /// Arguments of a call. Each number gives a distinct effect.
    arguments: fn(usize) -> Value,
    /// The same arguments with a subject that the policy refuses, and the code of that refusal.
    refused: fn(usize) -> Vec<(Value, &'static str)>,
}

const ADAPTERS: [Adapter; 8] = [
    // The attribute macro.
    Adapter {
        tool: "marking",
        is_native: true,
        arguments: |n| json!({"path": format!("made{n}")}),
        refused: |_| refused_paths().map(|(path, code)| (json!({"path": path}), code)).to_vec(),
    },
    // The trait.
    Adapter {
        tool: "spy",
        is_native: true,
        arguments: |n| json!({"path": format!("made{n}")}),
        refused: |_| refused_paths().map(|(path, code)| (json!({"path": path}), code)).to_vec(),
    },
    // The trait of Everruns, which declares no paths.
    Adapter { tool: "everruns", is_native: true, arguments: |n| json!({"n": n}), refused: |_| Vec::new() },
    // The trait of Yoagent, which declares no paths either.
    Adapter { tool: "yoagent", is_native: true, arguments: |n| json!({"n": n}), refused: |_| Vec::new() },
    // A shipped module.
    Adapter {
        tool: "file_write",
        is_native: false,
        arguments: |n| json!({"path": format!("folder{n}/made"), "content": "x"}),
        refused: |_| {
            refused_paths().map(|(path, code)| (json!({"path": path, "content": "x"}), code)).to_vec()
        },
    },
    // A foreign module. It does not declare its path argument to the policy.
    Adapter {
        tool: "raw_path",
        is_native: false,
        arguments: |n| json!({"op": "create", "path": format!("made{n}")}),
        refused: |_| Vec::new(),
    },
    // A command.
    Adapter {
        tool: "shell_exec",
        is_native: false,
        arguments: |n| json!({"command": format!("echo x > command{n}")}),
        refused: |n| vec![(json!({"command": format!("touch command{n}")}), "command_denied")],
    },
    // An operation of two steps.
    Adapter {
        tool: "vault_copyto",
        is_native: false,
        arguments: |n| json!({"source_path": "/vault/key", "destination_path": format!("copied{n}")}),
        refused: |_| {
            let copy = |(path, code)| (json!({"source_path": "/vault/key", "destination_path": path}), code);
            refused_paths().map(copy).to_vec()
        },
    },
];

/// Paths that none of these tools may write.
fn refused_paths() -> [(&'static str, &'static str); 5] {
    [
        ("/etc/made", "unknown_mount"),
        ("/vault/made", "mount_not_granted"),
        ("../vault/made", "path_escapes_mount"),
        (".git/hooks/made", "protected_path"),
        ("/tmp/a/.BASHRC", "protected_path"),
    ]
}

/// The reason for which an otherwise permitted call is refused.
#[derive(Debug, Clone)]
enum Reason {
    /// There is no such tool.
    Unknown,
    /// The arguments do not match the tool's schema.
    Arguments(String),
    /// The policy refuses the subject that one of the arguments names.
    Subject(usize),
    /// A hook of the embedder denies or panics.
    Hook(&'static str),
    /// The caller's approval policy denies.
    CallersPolicy,
    Refused,
    /// There is no approver.
    Nobody,
    /// The approver panics.
    Panic,
    /// The call is cancelled before it starts.
    GivenUp,
}

/// The number of times that native tools ran.
static NATIVE_RUNS: AtomicUsize = AtomicUsize::new(0);

fn count_native_run() -> ToolOutput {
    NATIVE_RUNS.fetch_add(1, Ordering::SeqCst);
    ToolOutput::text("ran")
}

/// Counts that it ran.
#[tool(tier = SideEffecting)]
async fn marking(#[arg(path = "write")] path: &str) -> String {
    let _ = path;
    count_native_run().joined_text()
}

/// Counts that it ran, behind either foreign interface.
struct EverrunsTool;

fn number_schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

#[async_trait]
impl everruns::Tool for EverrunsTool {
    fn name(&self) -> &'static str {
        "everruns"
    }
    fn description(&self) -> &'static str {
        "Counts that it ran."
    }
    fn parameters_schema(&self) -> Value {
        number_schema()
    }
    async fn execute(&self, _: Value) -> ToolExecutionResult {
        ToolExecutionResult::success(count_native_run().joined_text())
    }
}

/// Counts the same for yoagent, because a type may implement only one of the two interfaces.
struct YoagentTool;

#[async_trait]
impl yoagent::AgentTool for YoagentTool {
    fn name(&self) -> &'static str {
        "yoagent"
    }
    fn label(&self) -> &'static str {
        "Yoagent"
    }
    fn description(&self) -> &'static str {
        "Counts that it ran."
    }
    fn parameters_schema(&self) -> Value {
        number_schema()
    }
    async fn execute(
        &self,
        _: Value,
        _: yoagent::ToolContext,
    ) -> Result<yoagent::ToolResult, yoagent::ToolError> {
        let content = vec![yoagent::Content::text(count_native_run().joined_text())];
        Ok(yoagent::ToolResult { content, details: Value::Null })
    }
}

/// A hook that refuses agents by their names.
struct RefusingHook;

const DENIED_AGENT: &str = "kept_out";
const PANICKING_AGENT: &str = "feared";

#[async_trait]
impl CallHook for RefusingHook {
    async fn before(&self, call: &HookedCall) -> BeforeCall {
        match call.agent_id.as_str() {
            DENIED_AGENT => BeforeCall::Deny { reason: "not you".to_owned() },
            PANICKING_AGENT => panic!("at the door"),
            _ => BeforeCall::Allow,
        }
    }
}

/// A fixture with a tool of every kind.
struct AdapterFixture {
    fixture: Fixture,
    registry: ToolRegistry,
    calls: usize,
}

/// The observable effects of calls.
type Effects = (usize, BTreeMap<String, String>);

impl AdapterFixture {
    /// Creates a fixture whose policy has the lines `native` for each native tool, and the lines `other` for
    /// each other tool.
    async fn new(native: &str, other: &str, per_minute: u32) -> Self {
        let mut fixture = Fixture::new()
            .with_policy_edit("calls_per_minute = 600", &format!("calls_per_minute = {per_minute}"))
            .with_policy_key("shell.deny", "[\"touch\"]")
            .with_policy_edit("[tools.vault_copyto]", &format!("[tools.vault_copyto]\n{other}\n"));
        for Adapter { tool, is_native, .. } in ADAPTERS {
            let lines = match tool {
                "vault_copyto" => continue,
                "raw_path" => format!("profile = \"FileReadWrite\"\n{other}"),
                _ if is_native => native.to_owned(),
                _ => other.to_owned(),
            };
            fixture = fixture.with_policy(&format!("[tools.{tool}]\n{lines}\n"));
        }
        fs::write(fixture.workspace().join("vault/key"), "secret").expect("writable");
        let properties = json!({"path": {"type": "string"}});
        let spy = Spy::new("spy", |_, _| async { Ok(count_native_run()) })
            .tier(SafetyTier::SideEffecting)
            .parameters(json!({"type": "object", "properties": properties, "required": ["path"]}))
            .role(ArgumentRole::path("path", Access::Write));
        let builder = fixture.builder().await.expect("bootstraps");
        let builder = builder.module("raw_path", guest("raw_path"), ToolOrigin::ForeignModule).await;
        let registry = builder
            .expect("describes itself")
            .shell(ShellSource::Own(Arc::new(OwnSidecar::new(binary()))))
            .hook(RefusingHook)
            .tool(marking_tool())
            .tool(spy)
            .shared_tool(EverrunsTool.into_tool())
            .shared_tool(YoagentTool.into_tool())
            .build()
            .expect("builds");
        Self { fixture, registry, calls: 0 }
    }

    fn effects(&self) -> Effects {
        (NATIVE_RUNS.load(Ordering::SeqCst), snapshot(&self.fixture.workspace()))
    }

    /// Returns a number that no earlier call has used.
    fn next_number(&mut self) -> usize {
        self.calls += 1;
        self.calls
    }

    async fn call(&self, tool: &str, arguments: &str, caller: &Caller) -> ToolResult {
        self.registry.execute_with_policy(raw_call(tool, arguments), caller).await
    }

    /// Asserts that a call that nothing refuses runs and leaves an effect.
    async fn assert_runs(&mut self, adapter: Adapter) {
        let (effects, rows) = (self.effects(), self.fixture.rows().len());
        let arguments = (adapter.arguments)(self.next_number()).to_string();
        let result = self.call(adapter.tool, &arguments, &approving_caller()).await;
        assert!(result.outcome.is_output(), "{}: {:?}", adapter.tool, result.outcome);
        assert_ne!(self.effects(), effects, "{} leaves nothing that could be seen", adapter.tool);
        let events: Vec<_> = self.fixture.rows()[rows..].iter().map(|row| row.event).collect();
        assert!(events.contains(&RowEvent::Begin), "{}: {events:?}", adapter.tool);
    }

    /// Asserts that a call is refused with this error, does nothing and leaves one row.
    async fn assert_refused(
        &self,
        tool: &str,
        arguments: &str,
        caller: &Caller,
        kind: ToolErrorKind,
        code: &str,
    ) {
        let (effects, rows) = (self.effects(), self.fixture.rows().len());
        let result = self.call(tool, arguments, caller).await;
        let description = format!("{tool} {arguments}: {:?}", result.outcome);
        let error = result.into_result().expect_err(&description);
        assert_eq!((error.kind(), error.code()), (kind, code), "{description}");
        assert_eq!(self.effects(), effects, "{description}");
        let rows: Vec<Row> = self.fixture.rows().split_off(rows);
        let [row] = rows.as_slice() else { panic!("{description}: {rows:#?}") };
        assert_eq!((row.event, &*row.tool), (RowEvent::End, tool), "{description}");
        assert_eq!(row.outcome, Some(Outcome::Error(kind)), "{description}");
        assert_eq!(row.code.as_deref(), Some(code), "{description}");
        if kind == Denied {
            assert_eq!(row.decision, Some(Decision::Deny), "{description}: {row:#?}");
        }
    }

    /// Asserts that a call is refused for a reason. Does nothing if the reason does not apply to the adapter.
    async fn assert_refused_for(&mut self, adapter: Adapter, reason: &Reason) {
        let n = self.next_number();
        let mut tool = adapter.tool.to_owned();
        let mut arguments = (adapter.arguments)(n).to_string();
        let mut caller = approving_caller();
        let set_ask_policy =
            |caller: &mut Caller| caller.approval_policy = Some(Arc::new(Always(ApprovalRule::Ask)));
        let (kind, code) = match reason {
            Reason::Unknown => {
                tool.push('x');
                (NotFound, "unknown_tool")
            }
            Reason::Arguments(text) => {
                arguments.clone_from(text);
                (InvalidArguments, "invalid_arguments")
            }
            Reason::Subject(nth) => {
                let refused_subjects = (adapter.refused)(n);
                let Some((text, code)) = refused_subjects.get(nth % refused_subjects.len().max(1)) else {
                    return;
                };
                arguments = text.to_string();
                (Denied, *code)
            }
            Reason::Hook(agent) => {
                (*agent).clone_into(&mut caller.agent_id);
                (Denied, "hook_refused")
            }
            Reason::CallersPolicy => {
                let deny = ApprovalRule::Deny { reason: "not today".to_owned() };
                caller.approval_policy = Some(Arc::new(Always(deny)));
                (Denied, "approval_denied")
            }
            Reason::Refused => {
                set_ask_policy(&mut caller);
                let no = ScriptedApprover::new(|_, _| ApprovalAnswer::Deny { reason: None });
                caller.approver = Some(Arc::new(no));
                (Denied, "approval_refused")
            }
            Reason::Nobody => {
                set_ask_policy(&mut caller);
                caller.approver = None;
                (Denied, "approval_unavailable")
            }
            Reason::Panic => {
                set_ask_policy(&mut caller);
                caller.approver = Some(Arc::new(ScriptedApprover::new(|_, _| panic!("at the approver's"))));
                (Denied, "approval_unavailable")
            }
            Reason::GivenUp => {
                caller.cancel = CancellationToken::new();
                caller.cancel.cancel();
                (Cancelled, "cancelled")
            }
        };
        self.assert_refused(&tool, &arguments, &caller, kind, code).await;
    }
}

/// Generates pairs of an adapter and a reason, in any order. Some of the reasons have arbitrary text as
/// arguments.
fn refusals() -> impl Strategy<Value = Vec<(Adapter, Reason)>> {
    let garbage = prop_oneof![
        "[^{}]{0,40}",
        Just("{}".to_owned()),
        Just("null".to_owned()),
        Just("{\"path\":1,\"n\":\"x\"".to_owned()),
        Just("[".repeat(100)),
        Just(
            r#"{"n":[],"path":[],"content":[],"op":[],"command":[],"source_path":[],"destination_path":[]}"#
                .to_owned()
        ),
    ];
    let subjects = (0..refused_paths().len()).map(|nth| Just(Reason::Subject(nth)).boxed());
    let always = [
        Reason::Unknown,
        Reason::Hook(DENIED_AGENT),
        Reason::Hook(PANICKING_AGENT),
        Reason::CallersPolicy,
        Reason::Refused,
        Reason::Nobody,
        Reason::Panic,
        Reason::GivenUp,
    ];
    let reasons: Vec<_> = always
        .into_iter()
        .map(|reason| Just(reason).boxed())
        .chain(subjects)
        .chain([garbage.prop_map(Reason::Arguments).boxed()])
        .collect();
    let pairs: Vec<_> = ADAPTERS
        .into_iter()
        .flat_map(|adapter| reasons.clone().into_iter().map(move |reason| (Just(adapter), reason)))
        .collect();
    pairs.prop_shuffle()
}

async fn check(refusals: Vec<(Adapter, Reason)>) {
    let enabled_line = "enabled = true";
    let mut open = AdapterFixture::new(enabled_line, "", 600).await;
    for (adapter, reason) in refusals {
        open.assert_refused_for(adapter, &reason).await;
    }
    // The control: without a refusal, each adapter's call has an effect.
    for adapter in ADAPTERS {
        open.assert_runs(adapter).await;
    }
    let log = audit::log_path(&open.fixture.state());
    fs::remove_file(&log).expect("removable");
    let effects = open.effects();
    for adapter in ADAPTERS {
        let arguments = (adapter.arguments)(open.next_number()).to_string();
        let result = open.call(adapter.tool, &arguments, &approving_caller()).await;
        let error = result.into_result().expect_err(adapter.tool);
        assert_eq!((error.kind(), error.code()), (Unavailable, "audit_unwritable"), "{}", adapter.tool);
    }
    assert_eq!(open.effects(), effects, "nothing runs that cannot be recorded");
    assert!(!log.exists(), "there is no row");

    for (native, other, code) in [
        ("enabled = false", "enabled = false", "tool_disabled"),
        ("enabled = true\napproval = \"deny\"", "approval = \"deny\"", "approval_denied"),
        ("approval = \"allow\"", "enabled = false", "native_not_enabled"),
    ] {
        let mut closed = AdapterFixture::new(native, other, 600).await;
        for adapter in ADAPTERS.iter().filter(|adapter| adapter.is_native || code != "native_not_enabled") {
            let arguments = (adapter.arguments)(closed.next_number()).to_string();
            closed.assert_refused(adapter.tool, &arguments, &approving_caller(), Denied, code).await;
        }
    }

    let mut slow = AdapterFixture::new(enabled_line, "", 1).await;
    for adapter in ADAPTERS {
        slow.assert_runs(adapter).await;
        let arguments = (adapter.arguments)(slow.next_number()).to_string();
        slow.assert_refused(adapter.tool, &arguments, &approving_caller(), RateLimited, "rate_limited").await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_refused_call_of_any_adapter_has_no_effect_and_one_row(refusals in refusals()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(check(refusals));
    }
}
