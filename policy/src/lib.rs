//! The policy file and the decisions made from it.
//!
//! Callers pass the text of an operator's file and optionally the text of a workspace's overlay. They receive
//! a [`WorkspaceSecurityPolicy`], or a [`PolicyError`] that lists the faults with their positions. Each
//! decision is a [`Grant`], or a [`Denial`] that names the refused subject, the rule, and a hint.
//!
//! This crate opens no file, follows no symlink, reads no clock and asks no person, so that equal inputs give
//! equal decisions. It decides about parsed guest paths. The directory handles of the mounts enforce the
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
#![forbid(unsafe_code)]
#![warn(clippy::wildcard_enum_match_arm)]

mod source;

mod approval;
mod commands;
mod flow;
mod hidden;
mod kinds;
mod layer;
mod limits;
mod mount;
mod name;
mod network;
mod notify;
mod operation;
mod protect;
mod provenance;
mod repository;
mod search;
mod secrets;
mod shell;

mod file;

mod effective;
mod invariants;
mod overlay;
mod path_rules;
mod policy_files;

mod policy;
mod tool;

mod assign;
mod audit;
mod classes;
mod evaluate;
mod expect;
mod gateway;
mod known;
mod shipped;
mod warnings;

mod lint;
mod trace;

mod denial;
mod diff;
mod digest;
mod error;
mod grant;
mod render;

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
pub use kinds::ProtectedKinds;
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
pub use policy::WorkspaceSecurityPolicy;
pub use policy_files::{MAX_POLICY_FILE_BYTES, OVERLAY_FILE, SHIPPED_POLICY_NAME, default_policy_paths};
pub use protect::{InvalidPattern, ProtectedPaths};
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
