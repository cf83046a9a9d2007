//! A call that any gate refuses does nothing and leaves one row, for every kind of adapter.

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
use portcullis_testing::{World, approving, binary, guest};
use portcullis_tools::{
    Caller, ToolRegistry, ToolResult,
    approval::{ApprovalAnswer, ApprovalRule},
    audit::{self, Event, Outcome, Row, Verdict},
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
    support::{Scripted, Spy, raw, snapshot},
};

/// One kind of adapter, with a tool of it.
#[derive(Debug, Clone, Copy)]
struct Adapter {
    tool: &'static str,
    /// Whether it is a native tool, added by an embedder.
    is_native: bool,
    /// Arguments of a call whose effect differs from that of every other number.
    arguments: fn(usize) -> Value,
    /// The same arguments with a part that the policy refuses for its subject, and the code of that refusal.
    refused: fn(usize) -> Vec<(Value, &'static str)>,
}

const ADAPTERS: [Adapter; 8] = [
    // The attribute macro.
    Adapter {
        tool: "marking",
        is_native: true,
        arguments: |n| json!({"path": format!("made{n}")}),
        refused: |_| bad_paths().map(|(path, code)| (json!({"path": path}), code)).to_vec(),
    },
    // The trait.
    Adapter {
        tool: "spy",
        is_native: true,
        arguments: |n| json!({"path": format!("made{n}")}),
        refused: |_| bad_paths().map(|(path, code)| (json!({"path": path}), code)).to_vec(),
    },
    // The trait of specification 000, which declares no paths.
    Adapter { tool: "everruns", is_native: true, arguments: |n| json!({"n": n}), refused: |_| Vec::new() },
    // The trait of specification 002, which declares none either.
    Adapter { tool: "yoagent", is_native: true, arguments: |n| json!({"n": n}), refused: |_| Vec::new() },
    // A shipped module.
    Adapter {
        tool: "file_write",
        is_native: false,
        arguments: |n| json!({"path": format!("folder{n}/made"), "content": "x"}),
        refused: |_| bad_paths().map(|(path, code)| (json!({"path": path, "content": "x"}), code)).to_vec(),
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
            bad_paths().map(copy).to_vec()
        },
    },
];

/// Paths that none of these tools may write.
fn bad_paths() -> [(&'static str, &'static str); 5] {
    [
        ("/etc/made", "unknown_mount"),
        ("/vault/made", "mount_not_granted"),
        ("../vault/made", "path_escapes_mount"),
        (".git/hooks/made", "protected_path"),
        ("/tmp/a/.BASHRC", "protected_path"),
    ]
}

/// Why a gate refuses a call that would otherwise run.
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
    /// The approver says no.
    Refused,
    /// There is no approver.
    Nobody,
    /// The approver panics.
    Panic,
    /// The call is cancelled before it begins.
    GivenUp,
}

/// How often native tools ran.
static RAN: AtomicUsize = AtomicUsize::new(0);

fn ran() -> ToolOutput {
    RAN.fetch_add(1, Ordering::SeqCst);
    ToolOutput::text("ran")
}

/// Counts that it ran.
#[tool(tier = SideEffecting)]
async fn marking(#[arg(path = "write")] path: &str) -> String {
    let _ = path;
    ran().joined_text()
}

/// Counts that it ran, behind either foreign interface.
struct Foreign;

fn number() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

#[async_trait]
impl everruns::Tool for Foreign {
    fn name(&self) -> &'static str {
        "everruns"
    }
    fn description(&self) -> &'static str {
        "Counts that it ran."
    }
    fn parameters_schema(&self) -> Value {
        number()
    }
    async fn execute(&self, _: Value) -> ToolExecutionResult {
        ToolExecutionResult::success(ran().joined_text())
    }
}

/// The same for yoagent, since a type implements one of the two interfaces.
struct Other;

#[async_trait]
impl yoagent::AgentTool for Other {
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
        number()
    }
    async fn execute(
        &self,
        _: Value,
        _: yoagent::ToolContext,
    ) -> Result<yoagent::ToolResult, yoagent::ToolError> {
        let content = vec![yoagent::Content::text(ran().joined_text())];
        Ok(yoagent::ToolResult { content, details: Value::Null })
    }
}

/// A hook that turns agents away by their names.
struct Doorkeeper;

const KEPT_OUT: &str = "kept_out";
const FEARED: &str = "feared";

#[async_trait]
impl CallHook for Doorkeeper {
    async fn before(&self, call: &HookedCall) -> BeforeCall {
        match call.agent_id.as_str() {
            KEPT_OUT => BeforeCall::Deny { reason: "not you".to_owned() },
            FEARED => panic!("at the door"),
            _ => BeforeCall::Allow,
        }
    }
}

/// A world with a tool of every kind.
struct Stage {
    world: World,
    registry: ToolRegistry,
    calls: usize,
}

/// Observable effects of calls.
type Done = (usize, BTreeMap<String, String>);

impl Stage {
    /// A stage whose policy has the first lines for each native tool, and the second for each other tool.
    async fn new(native: &str, other: &str, per_minute: u32) -> Self {
        let mut world = World::new()
            .with_policy_edit("calls_per_minute = 600", &format!("calls_per_minute = {per_minute}"))
            .with_policy_edit("deny        = []", "deny        = [\"touch\"]")
            .with_policy_edit("[tools.vault_copyto]", &format!("[tools.vault_copyto]\n{other}\n"));
        for Adapter { tool, is_native, .. } in ADAPTERS {
            let lines = match tool {
                "vault_copyto" => continue,
                "raw_path" => format!("profile = \"FileReadWrite\"\n{other}"),
                _ if is_native => native.to_owned(),
                _ => other.to_owned(),
            };
            world = world.with_policy(&format!("[tools.{tool}]\n{lines}\n"));
        }
        fs::write(world.workspace().join("vault/key"), "secret").expect("writable");
        let properties = json!({"path": {"type": "string"}});
        let spy = Spy::new("spy", |_, _| async { Ok(ran()) })
            .tier(SafetyTier::SideEffecting)
            .parameters(json!({"type": "object", "properties": properties, "required": ["path"]}))
            .role(ArgumentRole::path("path", Access::Write));
        let builder = world.builder().await.expect("bootstraps");
        let builder = builder.module("raw_path", guest("raw_path"), ToolOrigin::ForeignModule).await;
        let registry = builder
            .expect("describes itself")
            .shell(ShellSource::Own(Arc::new(OwnSidecar::new(binary()))))
            .hook(Doorkeeper)
            .tool(marking_tool())
            .tool(spy)
            .shared_tool(Foreign.into_tool())
            .shared_tool(Other.into_tool())
            .build()
            .expect("builds");
        Self { world, registry, calls: 0 }
    }

    fn done(&self) -> Done {
        (RAN.load(Ordering::SeqCst), snapshot(&self.world.workspace()))
    }

    /// A number that no earlier call had.
    fn next(&mut self) -> usize {
        self.calls += 1;
        self.calls
    }

    async fn call(&self, tool: &str, arguments: &str, caller: &Caller) -> ToolResult {
        self.registry.execute_with_policy(raw(tool, arguments), caller).await
    }

    /// Asserts that an unhindered call runs and leaves an effect.
    async fn runs(&mut self, adapter: Adapter) {
        let (done, rows) = (self.done(), self.world.rows().len());
        let arguments = (adapter.arguments)(self.next()).to_string();
        let result = self.call(adapter.tool, &arguments, &approving()).await;
        assert!(result.outcome.is_ok(), "{}: {:?}", adapter.tool, result.outcome);
        assert_ne!(self.done(), done, "{} leaves nothing that could be seen", adapter.tool);
        let events: Vec<_> = self.world.rows()[rows..].iter().map(|row| row.event).collect();
        assert!(events.contains(&Event::Begin), "{}: {events:?}", adapter.tool);
    }

    /// Asserts that a call is refused with this error, does nothing and leaves one row.
    async fn refuses(&self, tool: &str, arguments: &str, caller: &Caller, kind: ToolErrorKind, code: &str) {
        let (done, rows) = (self.done(), self.world.rows().len());
        let result = self.call(tool, arguments, caller).await;
        let shown = format!("{tool} {arguments}: {:?}", result.outcome);
        let error = result.outcome.expect_err(&shown);
        assert_eq!((error.kind(), error.code()), (kind, code), "{shown}");
        assert_eq!(self.done(), done, "{shown}");
        let rows: Vec<Row> = self.world.rows().split_off(rows);
        let [row] = rows.as_slice() else { panic!("{shown}: {rows:#?}") };
        assert_eq!((row.event, &*row.tool), (Event::End, tool), "{shown}");
        assert_eq!(row.outcome, Some(Outcome::Error(kind)), "{shown}");
        assert_eq!(row.code.as_deref(), Some(code), "{shown}");
        if kind == Denied {
            assert_eq!(row.decision, Some(Verdict::Deny), "{shown}: {row:#?}");
        }
    }

    /// Asserts that a call is refused for a reason. Does nothing where the adapter has no such refusals.
    async fn refuses_for(&mut self, adapter: Adapter, reason: &Reason) {
        let n = self.next();
        let mut tool = adapter.tool.to_owned();
        let mut arguments = (adapter.arguments)(n).to_string();
        let mut caller = approving();
        let asked = |caller: &mut Caller| caller.approval_policy = Some(Arc::new(Always(ApprovalRule::Ask)));
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
                let refused = (adapter.refused)(n);
                let Some((text, code)) = refused.get(nth % refused.len().max(1)) else { return };
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
                asked(&mut caller);
                let no = Scripted::new(|_, _| ApprovalAnswer::Deny { reason: None });
                caller.approver = Some(Arc::new(no));
                (Denied, "approval_refused")
            }
            Reason::Nobody => {
                asked(&mut caller);
                caller.approver = None;
                (Denied, "approval_unavailable")
            }
            Reason::Panic => {
                asked(&mut caller);
                caller.approver = Some(Arc::new(Scripted::new(|_, _| panic!("at the approver's"))));
                (Denied, "approval_unavailable")
            }
            Reason::GivenUp => {
                caller.cancel = CancellationToken::new();
                caller.cancel.cancel();
                (Cancelled, "cancelled")
            }
        };
        self.refuses(&tool, &arguments, &caller, kind, code).await;
    }
}

/// Every adapter with every reason, in any order, with garbage as arguments.
fn refusals() -> impl Strategy<Value = Vec<(Adapter, Reason)>> {
    let rubbish = prop_oneof![
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
    let subjects = (0..bad_paths().len()).map(|nth| Just(Reason::Subject(nth)).boxed());
    let always = [
        Reason::Unknown,
        Reason::Hook(KEPT_OUT),
        Reason::Hook(FEARED),
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
        .chain([rubbish.prop_map(Reason::Arguments).boxed()])
        .collect();
    let of_each: Vec<_> = ADAPTERS
        .into_iter()
        .flat_map(|adapter| reasons.clone().into_iter().map(move |reason| (Just(adapter), reason)))
        .collect();
    of_each.prop_shuffle()
}

async fn check(refusals: Vec<(Adapter, Reason)>) {
    let on = "enabled = true";
    let mut open = Stage::new(on, "", 600).await;
    for (adapter, reason) in refusals {
        open.refuses_for(adapter, &reason).await;
    }
    // The control: unhindered, each of them has an effect.
    for adapter in ADAPTERS {
        open.runs(adapter).await;
    }
    let log = audit::log_path(&open.world.state());
    fs::remove_file(&log).expect("removable");
    let done = open.done();
    for adapter in ADAPTERS {
        let arguments = (adapter.arguments)(open.next()).to_string();
        let result = open.call(adapter.tool, &arguments, &approving()).await;
        let error = result.outcome.expect_err(adapter.tool);
        assert_eq!((error.kind(), error.code()), (Unavailable, "audit_unwritable"), "{}", adapter.tool);
    }
    assert_eq!(open.done(), done, "nothing runs that cannot be recorded");
    assert!(!log.exists(), "there is no row");

    for (native, other, code) in [
        ("enabled = false", "enabled = false", "tool_disabled"),
        ("enabled = true\napproval = \"deny\"", "approval = \"deny\"", "approval_denied"),
        ("approval = \"allow\"", "enabled = false", "native_not_enabled"),
    ] {
        let mut closed = Stage::new(native, other, 600).await;
        for adapter in ADAPTERS.iter().filter(|adapter| adapter.is_native || code != "native_not_enabled") {
            let arguments = (adapter.arguments)(closed.next()).to_string();
            closed.refuses(adapter.tool, &arguments, &approving(), Denied, code).await;
        }
    }

    let mut slow = Stage::new(on, "", 1).await;
    for adapter in ADAPTERS {
        slow.runs(adapter).await;
        let arguments = (adapter.arguments)(slow.next()).to_string();
        slow.refuses(adapter.tool, &arguments, &approving(), RateLimited, "rate_limited").await;
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
