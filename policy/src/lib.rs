//! The policy file and the decisions made from it.
//!
//! Callers pass the text of an operator's file and optionally the text of a workspace's overlay. They receive
//! a [`WorkspaceSecurityPolicy`], or a [`PolicyError`] that lists the faults with their positions. Each
//! decision is a [`Grant`], or a [`Denial`] that names the refused subject, the rule, and a hint.
//!
//! This crate opens no file, follows no symlink, reads no clock and asks no person, so that equal inputs give
//! equal decisions. It judges parsed guest paths. The directory handles of the mounts enforce the
//! decision.
//!
//! ```
//! use portcullis_policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy};
//! use portcullis_types::SandboxTier;
//!
//! let operator = PolicySource { name: "default.toml", text: DEFAULT_POLICY };
//! let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
//! let policy = WorkspaceSecurityPolicy::load(&options).expect("the shipped policy loads");
//! assert_eq!(policy.mounts().len(), 3);
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `source.rs` | the texts that a policy is loaded from |
//! | `file.rs`, `file/` | the policy file as text: its grammar, and a reader that finds every fault |
//! | `reduce.rs` | `[sandbox.TIER]` sections and the workspace's overlay, which can only reduce |
//! | `invariants.rs`, `error.rs` | the invariants of every policy, and all faults of one load |
//! | `policy.rs` | the loaded policy |
//! | `effective.rs`, `digest.rs`, `render.rs` | the effective policy: its values, its digest, its text |
//! | `provenance.rs`, `provenance/` | the text and the line of each value |
//! | `name.rs`, `mount.rs`, `limits.rs` | names of mounts, profiles and secrets; mounts; limits |
//! | `approval.rs`, `layer.rs`, `audit.rs` | approvals, required kernel layers, `[audit]` |
//! | `commands.rs`, `commands/`, `shell.rs`, `shell/` | rules about commands, and the shell that runs them |
//! | `network.rs`, `network/` | hosts, addresses, proxies, and the rules that judge each request |
//! | `search.rs`, `search/`, `notify.rs`, `secrets.rs`, `secrets/` | `[search]`, `[notify]` and the secrets of requests |
//! | `hidden.rs`, `protect.rs`, `protected_kinds.rs`, `repository.rs` | names that no tool can see, or may write |
//! | `flow.rs`, `path_rules.rs` | flow rules, and paths that need no approval |
//! | `tool.rs`, `operation.rs` | a tool as the policy sees it, and the steps of an operation |
//! | `shipped.rs`, `gateway.rs`, `known.rs` | the shipped tools, the gateway's tools, and the names of all known tools |
//! | `assign.rs`, `evaluate.rs` | the two halves of a decision: the tool's assignment, and the call's subjects |
//! | `grant.rs`, `denial.rs`, `trace.rs` | the outcome of a decision, and the rules that it considered |
//! | `lint.rs`, `lint/`, `warnings.rs` | likely mistakes |
//! | `classes.rs`, `classes/`, `diff.rs`, `diff/`, `expect.rs`, `expect/` | what a policy allows over all paths, compared or expected |
//! | `policy_locations.rs` | the names and locations of policy files |
#![forbid(unsafe_code)]
#![warn(clippy::wildcard_enum_match_arm)]

mod approval;
mod assign;
mod audit;
mod classes;
mod commands;
mod denial;
mod diff;
mod digest;
mod effective;
mod error;
mod evaluate;
mod expect;
mod file;
mod flow;
mod gateway;
mod grant;
mod hidden;
mod invariants;
mod known;
mod layer;
mod limits;
mod lint;
mod mount;
mod name;
mod network;
mod notify;
mod operation;
mod path_rules;
mod policy;
mod policy_locations;
mod protect;
mod protected_kinds;
mod provenance;
mod reduce;
mod render;
mod repository;
mod search;
mod secrets;
mod shell;
mod shipped;
mod source;
mod tool;
mod trace;
mod warnings;

pub use approval::Approval;
pub use audit::{AuditSettings, CheckpointDestination, KeyLocation, WitnessDestination};
pub use classes::{PathClasses, TooManyClasses};
pub use commands::{
    CommandRefusal, CommandRules, InvalidCommandRule, Operator, UncoveredCommand, UnreadableCommand,
};
pub use denial::{Denial, DenialCode};
pub use diff::{Direction, EffectChange, PolicyDiff};
pub use digest::PolicyDigest;
pub use error::{PolicyError, PolicyFault};
pub use evaluate::{CallRequest, RequestedSubject};
pub use expect::{
    Day, Expectations, ExpectedHosts, ExpectedSource, ExpectedSubject, ExpectedTools, ExpectedVerdict,
    ForbiddenFlow, InvalidDay, MAX_EXPECTATIONS, MAX_EXPECTATIONS_BYTES, PinnedDigest,
};
pub use flow::{FlowLabel, InvalidFlowLabel, MatchedFlowRule, RunContext, WITHHELD_KIND_RULE, is_flow_rule};
pub use gateway::{gateway_names, gateway_tool_origin, gateway_tools};
pub use grant::{Grant, GrantLimits, GrantedMount};
pub use hidden::{HiddenNames, InvalidHiddenName};
pub use known::KnownTools;
pub use layer::{AuditSync, RequiredLayer};
pub use limits::{DEFAULT_MAX_OUTPUT_BYTES, FileBytes, Limits, MemoryBytes, OutputBytes};
pub use lint::{LintCode, LintFinding, LintLevel, LintReport};
pub use mount::{MountSpec, project_of};
pub use name::{InvalidName, MountName, ProfileName, SecretName};
pub use network::{
    Authority, EgressSettings, HostName, HostRule, HttpMethod, InvalidHost, InvalidHostRule,
    InvalidPrivateEndpoint, InvalidProxy, InvalidTunnelRule, InvalidUrl, JudgedAddress, JudgedRequest,
    MAX_URL_BYTES, NetworkGrant, PrivateEndpoint, ProxyAddress, ResponseBytes, Robots, Scheme, ShellNetwork,
    TunnelRule, UrlHost, parse_request_url,
};
pub use notify::{
    InvalidMailName, InvalidMailServer, InvalidNotifyUrl, MailAddress, MailServer, MailSettings, MailUser,
    NotifySettings, NotifyUrl,
};
pub use operation::Operation;
pub use path_rules::{InvalidPathPattern, PathPattern};
pub use policy::{SandboxSection, WorkspaceSecurityPolicy};
pub use policy_locations::{MAX_POLICY_FILE_BYTES, OVERLAY_FILE, SHIPPED_POLICY_NAME, default_policy_paths};
pub use protect::{InvalidPattern, ProtectedPaths};
pub use protected_kinds::ProtectedKinds;
pub use provenance::{PolicyProvenance, PolicyValue, SourceLocation, ValueSource};
pub use repository::RepositoryMarks;
pub use search::{InvalidSearchUrl, SearchProvider, SearchSettings, SearchUrl};
pub use secrets::{
    GrantedSecret, InvalidSecretHeader, InvalidSecretSource, SecretHeader, SecretRule, SecretSource,
};
pub use shell::{
    HostPath, InvalidHostPath, InvalidVariable, ShellAbsence, ShellGrant, ShellPolicy, Toolchain,
    VariableName,
};
pub use shipped::{shipped_names, shipped_tools};
pub use source::{DEFAULT_POLICY, LoadOptions, PolicySource};
pub use tool::{PinStatus, ToolAssignment, ToolDescriptor, ToolOrigin};
pub use trace::{NoTrace, Trace, TraceSink, TracedRule};
