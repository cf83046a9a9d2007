//! `portcullis policy lint`: faults, warnings and likely mistakes, each with a stable code.
//!
//! A check that needs the file system is in the crate that reads the files. It creates its findings with
//! [`LintFinding::new`].

mod checks;

use serde::{Deserialize, Serialize};

use crate::{
    KnownTools, LoadOptions, PolicyError, PolicyFault, PolicyProvenance, SourceLocation,
    WorkspaceSecurityPolicy,
};

portcullis_types::word_enum! {
    /// The code of a finding. Codes are stable; a new check gets a new code.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum LintCode {
        /// The policy cannot be used.
        Fault = "P00",
        /// An entry or a secret names a tool that does not exist.
        NoTool = "P01",
        /// A shipped protected name or kind is excepted.
        ShippedNameDropped = "P02",
        /// Commands get a variable whose name looks like that of a secret.
        SecretVariable = "P03",
        /// Nothing uses this profile or mount.
        Unused = "P04",
        /// Two names differ in case only.
        DiffersInCase = "P05",
        /// A rule of `allow` is covered by `deny`.
        Shadowed = "P06",
        /// A tool that declares to only read may write a mount.
        ReadToolWrites = "P07",
        /// Another user can change the policy.
        WritableByOthers = "P08",
        /// The folder of a mount does not exist.
        FolderMissing = "P09",
        /// Files of a mount have names elsewhere.
        HardLinks = "P10",
        /// A tool asks for approval, but there is no approver.
        NoApprover = "P11",
        /// A tool reads the vault without a question.
        VaultUnasked = "P12",
        /// A limit exceeds another limit that caps it.
        LimitWithoutEffect = "P13",
        /// An entry gives permissions to a module's tool that is not approved.
        NotPinned = "P14",
        /// A line of a reduction takes nothing away.
        OverlayWithoutEffect = "P15",
        /// Another rule of the list covers this one.
        Covered = "P16",
        /// A line about the network grants nothing.
        IdleNetwork = "P17",
        /// Every search is denied.
        IdleSearch = "P18",
        /// `unasked` exempts calls that need no approval anyway.
        UnaskedWithoutAsk = "P19",
        /// A kernel layer is waived.
        LayerWaived = "P20",
        /// Requests that change something may go to every host.
        ChangesEverywhere = "P21",
        /// Relative paths start at a mount that does not exist.
        HomeMissing = "P22",
    }
}

portcullis_types::word_enum! {
    /// The severity of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum LintLevel as "level" {
        /// Worth knowing; often intended.
        Note = "note",
        /// Probably a mistake.
        Warning = "warning",
        /// A start refuses the policy.
        Error = "error",
    }
}

impl LintCode {
    /// Returns whether a start refuses a policy with such a finding.
    #[must_use]
    pub const fn refuses_start(self) -> bool {
        matches!(self.level(), LintLevel::Error)
    }

    /// Returns the severity of findings with this code.
    #[must_use]
    pub const fn level(self) -> LintLevel {
        match self {
            Self::Fault | Self::NoTool | Self::DiffersInCase | Self::WritableByOthers => LintLevel::Error,
            Self::VaultUnasked | Self::FolderMissing => LintLevel::Note,
            Self::ShippedNameDropped
            | Self::SecretVariable
            | Self::Unused
            | Self::Shadowed
            | Self::ReadToolWrites
            | Self::HardLinks
            | Self::NoApprover
            | Self::LimitWithoutEffect
            | Self::NotPinned
            | Self::OverlayWithoutEffect
            | Self::Covered
            | Self::IdleNetwork
            | Self::IdleSearch
            | Self::UnaskedWithoutAsk
            | Self::LayerWaived
            | Self::ChangesEverywhere
            | Self::HomeMissing => LintLevel::Warning,
        }
    }

    /// Returns the meaning of the code in one sentence, for lists of rules.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Fault => "The policy cannot be used.",
            Self::NoTool => "An entry or a secret names a tool that does not exist.",
            Self::ShippedNameDropped => "A shipped protected name or kind is taken away.",
            Self::SecretVariable => "Commands get a variable whose name looks like that of a secret.",
            Self::Unused => "Nothing uses this profile or mount.",
            Self::DiffersInCase => "Two names differ in case only.",
            Self::Shadowed => "A rule of `allow` is covered by `deny`.",
            Self::ReadToolWrites => "A tool that declares to only read may write a mount.",
            Self::WritableByOthers => "Another user can change the policy.",
            Self::FolderMissing => "The folder of a mount does not exist.",
            Self::HardLinks => "Files of a mount have names elsewhere.",
            Self::NoApprover => "A tool asks, and there is no approver.",
            Self::VaultUnasked => "A tool reads the vault without a question.",
            Self::LimitWithoutEffect => "A limit is above another one that caps it.",
            Self::NotPinned => "An entry gives power to a module's tool that is not approved.",
            Self::OverlayWithoutEffect => "A line of a reduction takes nothing away.",
            Self::Covered => "Another rule of the list covers this one.",
            Self::IdleNetwork => "A line about the network grants nothing.",
            Self::IdleSearch => "Every search is denied.",
            Self::UnaskedWithoutAsk => "`unasked` spares questions that are not asked.",
            Self::LayerWaived => "A kernel layer is waived.",
            Self::ChangesEverywhere => "Requests that change something may go to every host.",
            Self::HomeMissing => "Relative paths lead nowhere.",
        }
    }

    /// Returns the correct line, for people.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Fault => {
                "write the line as the message says; `portcullis policy default` prints a policy that loads"
            }
            Self::NoTool => "write the tool's own name, as `portcullis tools` lists it",
            Self::ShippedNameDropped => "remove the name from `except`, unless tools must write such files",
            Self::SecretVariable => {
                "remove the name from `environment`, and give the value as `[secrets.NAME]` to the tools that need it"
            }
            Self::Unused => "remove the line, or use the name where you meant it",
            Self::DiffersInCase => "use one name, or names that differ in letters",
            Self::Shadowed => "remove the rule from `allow`, or write a narrower rule in `deny`",
            Self::ReadToolWrites => {
                "give the tool a profile with `read`, such as `mounts = { shared = \"read\" }`"
            }
            Self::WritableByOthers => "change the owner or the mode as the message says",
            Self::FolderMissing => "make the folder, or correct its path in `[mounts]`",
            Self::HardLinks => "`find MOUNT -links +1` lists such files; replace each by a copy",
            Self::NoApprover => {
                "write `approval = \"allow\"` or `\"deny\"`, or `unasked` rules for the calls that are meant"
            }
            Self::VaultUnasked => "write `approval = \"ask\"` in the entry of the tool",
            Self::LimitWithoutEffect => "lower the value, or raise the limit that caps it",
            Self::NotPinned => "approve the module first: `portcullis tool approve NAME`",
            Self::OverlayWithoutEffect => "remove the line, or write a stricter value",
            Self::Covered => "remove the rule, or the wider one",
            Self::IdleNetwork => "remove the line, or complete it as the message says",
            Self::IdleSearch => "give the profile of `web_search_request` the provider's host and method",
            Self::UnaskedWithoutAsk => "write `approval = \"ask\"` beside it, or remove `unasked`",
            Self::LayerWaived => "write `require = [\"landlock\", \"seccomp\"]`",
            Self::ChangesEverywhere => "name the hosts, or write `methods = [\"GET\", \"HEAD\"]`",
            Self::HomeMissing => "write `home = \"NAME\"` with the name of a mount",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    /// The stable code.
    pub code: LintCode,
    /// The severity, which follows from the code.
    pub level: LintLevel,
    /// The location in a policy text.
    #[serde(rename = "place")]
    pub location: SourceLocation,
    /// The key's path. Empty for the whole text.
    pub key: String,
    /// The mistake in words, without a full stop.
    pub message: String,
    /// The line or the change that fixes the mistake.
    pub hint: String,
}

impl LintFinding {
    /// Creates a finding at a position.
    #[must_use]
    pub fn new(
        code: LintCode,
        location: SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            level: code.level(),
            location,
            key: key.into(),
            message: message.into(),
            hint: code.hint().to_owned(),
        }
    }

    /// Returns the mistake, prefixed with its key.
    #[must_use]
    pub fn keyed_message(&self) -> String {
        if self.key.is_empty() { self.message.clone() } else { format!("{}: {}", self.key, self.message) }
    }
}

impl From<PolicyFault> for LintFinding {
    fn from(fault: PolicyFault) -> Self {
        let PolicyFault { file, line, column, key, message, code } = fault;
        Self::new(code, SourceLocation { file, line, column }, key, message)
    }
}

/// All findings about a policy's texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LintReport {
    /// The findings, sorted by location.
    pub findings: Vec<LintFinding>,
}

impl LintReport {
    /// Builds the report on texts that do not load.
    #[must_use]
    pub fn of_faults(error: PolicyError) -> Self {
        let mut report = Self::default();
        report.add(error.faults.into_iter().map(LintFinding::from));
        report
    }

    /// Lints a policy that was loaded from these texts. `known` are the tools that entries may name, and
    /// `has_approver` is whether a person can answer questions.
    #[must_use]
    pub fn of_policy(
        options: &LoadOptions<'_>,
        policy: &WorkspaceSecurityPolicy,
        provenance: &PolicyProvenance,
        known: &KnownTools,
        has_approver: bool,
    ) -> Self {
        // The tools of optional entries may be missing, which is not a finding.
        let mut report = policy.check_tools(known).err().map(Self::of_faults).unwrap_or_default();
        report.add(policy.warnings().iter().cloned().map(LintFinding::from));
        report.add(checks::run(options, policy, provenance, has_approver));
        report
    }

    /// Adds findings of another crate.
    pub fn add(&mut self, findings: impl IntoIterator<Item = LintFinding>) {
        self.findings.extend(findings);
        self.findings.sort_by(|one, other| (&one.location, one.code).cmp(&(&other.location, other.code)));
    }

    /// Returns the severity of the most severe finding, or `None` without findings.
    #[must_use]
    pub fn heaviest(&self) -> Option<LintLevel> {
        self.findings.iter().map(|finding| finding.level).max()
    }
}
