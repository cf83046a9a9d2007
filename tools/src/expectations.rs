//! [`ExpectationTexts`]: finds, reads and evaluates the files with the operator's expectations of a policy.

use std::path::{Path, PathBuf};

use portcullis_confine::trusted::{self, TrustError};
use portcullis_policy::{
    Day, Expectations, KnownTools, PolicyError, PolicyProvenance, PolicySource, WorkspaceSecurityPolicy,
};
use portcullis_types::SandboxTier;

use crate::{
    error::BootstrapError,
    pipeline::{ExpectationReport, ExplainedTool, Explainer, FailedExpectations},
    policy_files::{PolicyFiles, PolicyText},
    tool_table::ToolTable,
};

/// The file of expectations beside the operator's policy. It applies to every policy in that folder.
pub const EXPECTATIONS_FILE: &str = "portcullis.expect.toml";

/// The expectations of one policy, as text.
#[derive(Debug, Clone, Default)]
pub struct ExpectationTexts(Vec<PolicyText>);

impl ExpectationTexts {
    /// Reads the files beside the operator's policy: [`EXPECTATIONS_FILE`], and for a policy `NAME.toml` also
    /// `NAME.expect.toml`. Empty if there are none, or if the policy is the shipped one.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if a file exists but cannot be read;
    /// [`BootstrapError::UntrustedPolicy`] if another user could change a file.
    pub fn read_beside(files: &PolicyFiles) -> Result<Self, BootstrapError> {
        let Some(policy) = files.operator_path() else { return Ok(Self::default()) };
        let mut paths = vec![policy.with_file_name(EXPECTATIONS_FILE)];
        if let Some(own) = own_file(policy).filter(|own| *own != paths[0]) {
            paths.push(own);
        }
        let texts = paths.iter().map(|path| read_if_exists(path)).filter_map(Result::transpose);
        texts.collect::<Result<_, _>>().map(Self)
    }

    /// Reads one file. Its owner is not checked, because the expectations are only shown.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, BootstrapError> {
        PolicyText::read(path).map(|text| Self(vec![text]))
    }

    /// Whether no file was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the expectations. They may name the tools in `known`; `tools` are the registered ones.
    ///
    /// # Errors
    /// [`PolicyError`] with the mistakes in the texts.
    pub fn decide(
        &self,
        explainer: &Explainer,
        known: &KnownTools,
        tools: &[ExplainedTool],
    ) -> Result<ExpectationReport, PolicyError> {
        let mut all = Expectations::default();
        let mut faulty: Option<PolicyError> = None;
        for PolicyText { name, text, .. } in &self.0 {
            match Expectations::read(PolicySource { name, text }, explainer.policy(), known) {
                Ok(Expectations { answers, never, unchanged }) => {
                    all.answers.extend(answers);
                    all.never.extend(never);
                    all.unchanged.extend(unchanged);
                }
                Err(error) => match &mut faulty {
                    Some(faulty) => {
                        faulty.faults.extend(error.faults);
                        faulty.omitted += error.omitted;
                    }
                    None => faulty = Some(error),
                },
            }
        }
        match faulty {
            Some(error) => Err(error),
            None => Ok(explainer.decide_expectations(&all, tools, today())),
        }
    }

    /// Refuses an edited policy that would fail its expectations at the next start. Modules are not queried
    /// for their tools, so an expectation that names a module's tool fails too.
    ///
    /// # Errors
    /// [`BootstrapError`], as at a start.
    pub fn check_edited(files: &PolicyFiles, sandbox_tier: SandboxTier) -> Result<(), BootstrapError> {
        let texts = Self::read_beside(files)?;
        if texts.is_empty() {
            return Ok(());
        }
        let policy = files.load(sandbox_tier)?;
        let tools: Vec<ExplainedTool> = ExplainedTool::all_shipped(&policy).collect();
        let provenance = PolicyProvenance::read(&files.options(sandbox_tier));
        texts.require(&policy, provenance, &KnownTools::shipped(), &tools)
    }

    fn require(
        &self,
        policy: &WorkspaceSecurityPolicy,
        provenance: PolicyProvenance,
        known: &KnownTools,
        tools: &[ExplainedTool],
    ) -> Result<(), BootstrapError> {
        let explainer = Explainer::by_names(policy.clone(), provenance);
        let report = self.decide(&explainer, known, tools).map_err(BootstrapError::ExpectationsFile)?;
        FailedExpectations::of(report).map_or(Ok(()), |failed| Err(BootstrapError::Expectations(failed)))
    }
}

/// The expectations that a policy must meet at startup.
#[derive(Debug)]
pub(crate) struct StartupExpectations {
    texts: ExpectationTexts,
    /// The source locations of the policy's rules.
    provenance: PolicyProvenance,
}

impl StartupExpectations {
    /// Reads the expectations beside the operator's policy; `None` if there are none.
    ///
    /// # Errors
    /// As in [`ExpectationTexts::read_beside`].
    pub(crate) fn beside(
        files: &PolicyFiles,
        sandbox_tier: SandboxTier,
    ) -> Result<Option<Self>, BootstrapError> {
        let texts = ExpectationTexts::read_beside(files)?;
        // Read the source locations only if a failure could show them.
        Ok((!texts.is_empty())
            .then(|| Self { texts, provenance: PolicyProvenance::read(&files.options(sandbox_tier)) }))
    }

    /// Refuses a policy that fails an expectation for these tools.
    ///
    /// # Errors
    /// [`BootstrapError::ExpectationsFile`] with the mistakes in the texts, and
    /// [`BootstrapError::Expectations`] with the failed expectations.
    pub(crate) fn require(
        self,
        policy: &WorkspaceSecurityPolicy,
        known: &KnownTools,
        tools: &ToolTable,
    ) -> Result<(), BootstrapError> {
        let tools: Vec<ExplainedTool> = tools.iter().map(|tool| ExplainedTool::from(&**tool)).collect();
        self.texts.require(policy, self.provenance, known, &tools)
    }
}

/// Returns `NAME.expect.toml` for a policy `NAME.toml`.
fn own_file(policy: &Path) -> Option<PathBuf> {
    let mut name = policy.file_stem()?.to_owned();
    name.push(".expect.toml");
    Some(policy.with_file_name(name))
}

fn read_if_exists(path: &Path) -> Result<Option<PolicyText>, BootstrapError> {
    match trusted::open_file(path) {
        // A missing file is fine: the trust of this folder was checked when the policy beside it was read.
        Err(error) if error.is_missing() => Ok(None),
        Err(TrustError::Unusable { source, .. }) if source.kind() == std::io::ErrorKind::NotADirectory => {
            Ok(None)
        }
        // `read_trusted` opens the file again, and reports every other error.
        _ => PolicyText::read_trusted(path).map(Some),
    }
}

/// Returns today's date in UTC.
fn today() -> Day {
    let date = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let small = |number: i8| u8::try_from(number).unwrap_or_default();
    Day { year: date.year(), month: small(date.month()), day: small(date.day()) }
}
