//! Registries of native tools, which need no compiled guests.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use portcullis_tools::{
    Caller, RegistryBuilder, ToolRegistry,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer},
    new_call,
    policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy},
};
use portcullis_types::SandboxTier;
use tempfile::TempDir;

/// Returns a builder with the native tools under a policy, and the state folder, which must live as
/// long as the registry.
///
/// # Panics
/// If the policy does not load.
pub fn builder(policy: &str) -> (TempDir, RegistryBuilder) {
    let state = tempfile::tempdir().expect("a folder");
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: "test", text: policy },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    })
    .expect("loads");
    let builder = ToolRegistry::builder().default_tools().policy(policy).state(state.path());
    (state, builder)
}

/// Returns a registry with the native tools, under the shipped policy with an addition.
///
/// # Panics
/// If the policy does not load.
#[must_use]
pub fn registry(addition: &str) -> (TempDir, ToolRegistry) {
    let (state, builder) = builder(&format!("{DEFAULT_POLICY}\n{addition}"));
    (state, builder.build().expect("builds"))
}

/// Returns the approval request for a call of `echo`.
///
/// # Panics
/// If the approver receives no request.
#[must_use]
pub fn approval_request() -> ApprovalRequest {
    let (_state, registry) = registry("[tools.echo]\napproval = \"ask\"\nprofile = \"WorkspaceRead\"\n");
    let recording_approver = Arc::new(RecordingApprover::default());
    let mut caller = Caller::new("tester", "run");
    caller.approver = Some(Arc::clone(&recording_approver) as Arc<dyn Approver>);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let call = new_call("echo", r#"{"message": "a"}"#);
    runtime.block_on(registry.execute_with_policy(call, &caller)).into_result().expect_err("refused");
    recording_approver.0.lock().expect("not poisoned").take().expect("asked")
}

/// An approver that records the request and denies the call.
#[derive(Default)]
struct RecordingApprover(Mutex<Option<ApprovalRequest>>);

#[async_trait]
impl Approver for RecordingApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        *self.0.lock().expect("not poisoned") = Some(request.clone());
        ApprovalAnswer::Deny { reason: None }.into()
    }
}
