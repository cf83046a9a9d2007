//! [`PolicyFiles`]: finds and reads the files of the policy.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use portcullis_confine::{
    bounded::{self, FinalSymlink},
    trusted::{self, TrustError},
    user_folders,
};
use portcullis_policy::{
    DEFAULT_POLICY, LoadOptions, MAX_POLICY_FILE_BYTES, OVERLAY_FILE, PolicySource, SHIPPED_POLICY_NAME,
    SecretName, WorkspaceSecurityPolicy, default_policy_paths, project_of,
};
use portcullis_types::{RunnerBootstrapEnvelope, SandboxTier};

use crate::{
    error::BootstrapError,
    modules::modules_path,
    web::{SecretError, SecretLocation, TakenVariables},
};

/// The policy texts, and where they come from.
#[derive(Debug, Clone)]
pub struct PolicyFiles {
    pub(crate) operator: PolicyText,
    pub(crate) overlay: Option<PolicyText>,
    taken_variables: TakenVariables,
}

#[derive(Debug, Clone)]
pub(crate) struct PolicyText {
    pub(crate) name: String,
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: String,
}

impl PolicyFiles {
    /// Finds the operator's policy (the envelope's, else `/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the shipped default) and the overlay: in the folder of the
    /// policy's `[project]`, or else in the workspace.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if a file exists but cannot be read;
    /// [`BootstrapError::UntrustedPolicy`] if another user could change the operator's file.
    pub fn find(envelope: &RunnerBootstrapEnvelope) -> Result<Self, BootstrapError> {
        let operator = match &envelope.policy {
            Some(path) => PolicyText::read_trusted(path)?,
            None => PolicyText::read_operator_policy()?,
        };
        let project = project_of(&operator.text).map(PathBuf::from);
        // The overlay's owner is not checked: the overlay comes with the workspace, and can only
        // restrict the policy.
        let folder = project.as_ref().unwrap_or(&envelope.workspace);
        let overlay = match PolicyText::read_if_exists(&folder.join(OVERLAY_FILE)) {
            // The workspace is a file. Opening the workspace reports this error later.
            Err(BootstrapError::PolicyFile { source, .. })
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                None
            }
            overlay => overlay?,
        };
        Ok(Self { operator, overlay, taken_variables: TakenVariables::default() })
    }

    /// Reads only the operator's policy, from its usual locations, else the shipped default. For a registry
    /// without a workspace.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if a file exists but cannot be read.
    pub fn without_workspace() -> Result<Self, BootstrapError> {
        Ok(Self::without_overlay(PolicyText::read_operator_policy()?))
    }

    /// Reads one file as the operator's policy, without an overlay and without the trust check. The policy is
    /// only shown, not enforced. See [`Self::untrusted`].
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, BootstrapError> {
        Ok(Self::without_overlay(PolicyText::read(path)?))
    }

    /// Returns only the shipped policy.
    #[must_use]
    pub fn shipped() -> Self {
        Self::without_overlay(PolicyText::shipped())
    }

    fn without_overlay(operator: PolicyText) -> Self {
        Self { operator, overlay: None, taken_variables: TakenVariables::default() }
    }

    /// Adds the secret values that [`TakenVariables::take`] removed from the environment.
    #[must_use]
    pub fn with_taken(mut self, taken_variables: TakenVariables) -> Self {
        self.taken_variables = taken_variables;
        self
    }

    /// Lists the secrets of a policy that was loaded from these files, sorted by name, each with the reason
    /// if its value cannot be used. The values are read and discarded.
    #[must_use]
    pub fn examine_secrets(
        &self,
        policy: &WorkspaceSecurityPolicy,
    ) -> Vec<(SecretName, Option<SecretError>)> {
        let examine = |location: SecretLocation| (location.name().clone(), location.read().err());
        self.secrets(policy).into_iter().map(examine).collect()
    }

    /// Why a start would refuse the operator's file although it is readable: another user could change it.
    #[must_use]
    pub fn untrusted(&self) -> Option<TrustError> {
        trusted::open_file(self.operator.path.as_deref()?).err()
    }

    /// Loads the policy from the texts.
    ///
    /// # Errors
    /// [`BootstrapError::Policy`] with all mistakes.
    pub fn load(&self, sandbox_tier: SandboxTier) -> Result<WorkspaceSecurityPolicy, BootstrapError> {
        Ok(WorkspaceSecurityPolicy::load(&self.options(sandbox_tier))?)
    }

    /// Returns the texts in the form that functions which load a policy take.
    #[must_use]
    pub fn options(&self, sandbox_tier: SandboxTier) -> LoadOptions<'_> {
        LoadOptions {
            operator: PolicySource { name: &self.operator.name, text: &self.operator.text },
            overlay: self
                .overlay
                .as_ref()
                .map(|overlay| PolicySource { name: &overlay.name, text: &overlay.text }),
            sandbox_tier,
        }
    }

    /// The source of the operator's policy, for people.
    #[must_use]
    pub fn operator_name(&self) -> &str {
        &self.operator.name
    }

    /// The text of the operator's policy.
    #[must_use]
    pub fn operator_text(&self) -> &str {
        &self.operator.text
    }

    /// Replaces the text of the operator's policy. The file on disk is not changed.
    #[must_use]
    pub fn with_operator_text(mut self, text: String) -> Self {
        self.operator.text = text;
        self
    }

    /// The path of the operator's policy, if it is a file.
    #[must_use]
    pub fn operator_path(&self) -> Option<&Path> {
        self.operator.path.as_deref()
    }

    /// The text of the overlay.
    #[must_use]
    pub fn overlay_text(&self) -> Option<&str> {
        self.overlay.as_ref().map(|overlay| overlay.text.as_str())
    }

    /// Replaces the text of the overlay. No file on disk is changed.
    #[must_use]
    pub fn with_overlay_text(mut self, text: String) -> Self {
        match &mut self.overlay {
            Some(overlay) => overlay.text = text,
            None => self.overlay = Some(PolicyText { name: OVERLAY_FILE.to_owned(), path: None, text }),
        }
        self
    }

    /// The source of the overlay, for people.
    #[must_use]
    pub fn overlay_name(&self) -> Option<&str> {
        self.overlay.as_ref().map(|overlay| overlay.name.as_str())
    }

    /// Returns the folder of the policy's foreign modules. The policy gives it as an absolute path, or
    /// relative to the operator's file.
    pub(crate) fn modules_folder(
        &self,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<Option<PathBuf>, BootstrapError> {
        let dir = policy.modules_dir().map(|dir| modules_path(dir, self.operator.path.as_deref()));
        Ok(dir.transpose()?)
    }

    /// Returns the sources of the policy's secret values.
    pub(crate) fn secrets(&self, policy: &WorkspaceSecurityPolicy) -> Vec<SecretLocation> {
        let file = self.operator.path.as_deref();
        policy.secrets().map(|secret| SecretLocation::new(secret, file, &self.taken_variables)).collect()
    }

    /// Returns the file with additional trusted certificates.
    pub(crate) fn ca(&self, policy: &WorkspaceSecurityPolicy) -> Result<Option<PathBuf>, BootstrapError> {
        let ca = policy.egress().ca.as_deref().map(|ca| modules_path(ca, self.operator.path.as_deref()));
        Ok(ca.transpose()?)
    }
}

impl PolicyText {
    fn read_operator_policy() -> Result<Self, BootstrapError> {
        match trusted::open_first(default_policy_paths(user_folders::config()), warn_of_absence) {
            Ok(Some((path, file))) => Self::read_opened(&path, file),
            Ok(None) => Ok(Self::shipped()),
            Err((path, refusal)) => Err(trust_error(&path, refusal)),
        }
    }

    fn shipped() -> Self {
        Self { name: SHIPPED_POLICY_NAME.to_owned(), path: None, text: DEFAULT_POLICY.to_owned() }
    }

    fn read_if_exists(path: &Path) -> Result<Option<Self>, BootstrapError> {
        match Self::read(path) {
            Ok(source) => Ok(Some(source)),
            Err(BootstrapError::PolicyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a file that will be enforced. The text is read from the descriptor that passed the trust check,
    /// so the file cannot be swapped between check and read.
    pub(crate) fn read_trusted(path: &Path) -> Result<Self, BootstrapError> {
        let file = trusted::open_file(path).map_err(|refusal| trust_error(path, refusal))?;
        Self::read_opened(path, file)
    }

    pub(crate) fn read(path: &Path) -> Result<Self, BootstrapError> {
        let file =
            bounded::open_regular(path, FinalSymlink::Follow).map_err(|source| unreadable(path, source))?;
        Self::read_opened(path, file)
    }

    fn read_opened(path: &Path, file: File) -> Result<Self, BootstrapError> {
        let text =
            bounded::read_text(file, MAX_POLICY_FILE_BYTES).map_err(|source| unreadable(path, source))?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }
}

fn trust_error(path: &Path, refusal: TrustError) -> BootstrapError {
    match refusal {
        TrustError::Unusable { source, .. } => unreadable(path, source),
        TrustError::Missing { cause: doubt, .. } => {
            warn_of_absence(path, &doubt);
            unreadable(path, io::ErrorKind::NotFound.into())
        }
        TrustError::Kind { .. } => {
            unreadable(path, io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
        }
        source => BootstrapError::UntrustedPolicy { path: path.to_owned(), source },
    }
}

fn unreadable(path: &Path, source: io::Error) -> BootstrapError {
    BootstrapError::PolicyFile { path: path.to_owned(), source }
}

fn warn_of_absence(path: &Path, doubt: &TrustError) {
    tracing::warn!(
        file = %path.display(), cause = doubt as &dyn std::error::Error,
        "there is no policy file, but another user could create one here (it would be refused) or may have removed one"
    );
}
