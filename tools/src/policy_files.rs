//! [`PolicyFiles`]: finds and reads the files of the policy.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use portcullis_confine::trusted::{self, TrustError};
use portcullis_policy::{
    DEFAULT_POLICY, LoadOptions, PolicySource, SecretName, WorkspaceSecurityPolicy, project_of,
};
use portcullis_types::{RunnerBootstrapEnvelope, SandboxTier};

use crate::{
    error::BootstrapError,
    modules::modules_path,
    web::{SecretError, SecretLocation, TakenVariables},
};

/// The overlay file in a workspace, which can only restrict the operator's policy.
pub const OVERLAY_FILE: &str = "portcullis.toml";

/// The largest policy file: 1 MiB.
const MAX_READ_BYTES: u64 = 1 << 20;

/// The texts of the policy, and their sources.
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
    /// [`BootstrapError::PolicyFile`] for a file that exists but cannot be read; [`BootstrapError::UntrustedPolicy`]
    /// for an operator's file that another user could change.
    pub fn find(envelope: &RunnerBootstrapEnvelope) -> Result<Self, BootstrapError> {
        let operator = match &envelope.policy {
            Some(path) => PolicyText::read_trusted(path)?,
            None => PolicyText::read_operator_policy()?,
        };
        let project = project_of(&operator.text).map(PathBuf::from);
        // The overlay is not checked for trust: it comes with the workspace, and can only restrict the policy.
        let folder = project.as_ref().unwrap_or(&envelope.workspace);
        let overlay = match PolicyText::read_if_exists(&folder.join(OVERLAY_FILE)) {
            // The workspace is a file. The error is reported later, when the workspace is opened.
            Err(BootstrapError::PolicyFile { source, .. })
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                None
            }
            overlay => overlay?,
        };
        Ok(Self { operator, overlay, taken_variables: TakenVariables::default() })
    }

    /// The operator's policy alone, found in the usual places, else the shipped default. For a registry without a
    /// workspace.
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] for a file that exists and cannot be read.
    pub fn without_workspace() -> Result<Self, BootstrapError> {
        Ok(Self::without_overlay(PolicyText::read_operator_policy()?))
    }

    /// One file as the operator's policy, without an overlay and without the check for trust. The policy is only shown,
    /// not enforced. See [`Self::untrusted`].
    ///
    /// # Errors
    /// [`BootstrapError::PolicyFile`] if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, BootstrapError> {
        Ok(Self::without_overlay(PolicyText::read(path)?))
    }

    /// The shipped policy alone.
    #[must_use]
    pub fn shipped() -> Self {
        Self::without_overlay(PolicyText::shipped())
    }

    fn without_overlay(operator: PolicyText) -> Self {
        Self { operator, overlay: None, taken_variables: TakenVariables::default() }
    }

    /// The same files, with the secret values that [`TakenVariables::take`] removed from the environment.
    #[must_use]
    pub fn with_taken(mut self, taken_variables: TakenVariables) -> Self {
        self.taken_variables = taken_variables;
        self
    }

    /// The secrets of a policy that was loaded from these files, sorted by name, each with the reason why its value
    /// cannot be used. The values are read and dropped.
    #[must_use]
    pub fn examine_secrets(
        &self,
        policy: &WorkspaceSecurityPolicy,
    ) -> Vec<(SecretName, Option<SecretError>)> {
        let examine = |location: SecretLocation| (location.name().clone(), location.read().err());
        self.secrets(policy).into_iter().map(examine).collect()
    }

    /// Why a start would refuse the operator's file, although it can be read: another user could change it.
    #[must_use]
    pub fn untrusted(&self) -> Option<TrustError> {
        trusted::open_file(self.operator.path.as_deref()?).err()
    }

    /// Loads the policy from the texts.
    ///
    /// # Errors
    /// [`BootstrapError::Policy`] with all faults.
    pub fn load(&self, sandbox_tier: SandboxTier) -> Result<WorkspaceSecurityPolicy, BootstrapError> {
        Ok(WorkspaceSecurityPolicy::load(&self.options(sandbox_tier))?)
    }

    /// The texts, for functions that load a policy.
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

    /// Where the operator's policy comes from, in a form for people.
    #[must_use]
    pub fn operator_name(&self) -> &str {
        &self.operator.name
    }

    /// The text of the operator's policy.
    #[must_use]
    pub fn operator_text(&self) -> &str {
        &self.operator.text
    }

    /// The same files with another text for the operator's policy. The file on disk is not changed.
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

    /// The same files with this overlay. No file on disk is changed.
    #[must_use]
    pub fn with_overlay_text(mut self, text: String) -> Self {
        match &mut self.overlay {
            Some(overlay) => overlay.text = text,
            None => self.overlay = Some(PolicyText { name: OVERLAY_FILE.to_owned(), path: None, text }),
        }
        self
    }

    /// Where the overlay comes from, in a form for people.
    #[must_use]
    pub fn overlay_name(&self) -> Option<&str> {
        self.overlay.as_ref().map(|overlay| overlay.name.as_str())
    }

    /// The folder that holds the policy's foreign modules. The policy names it as an absolute path, or relative to the
    /// operator's file.
    pub(crate) fn modules_folder(
        &self,
        policy: &WorkspaceSecurityPolicy,
    ) -> Result<Option<PathBuf>, BootstrapError> {
        let dir = policy.modules_dir().map(|dir| modules_path(dir, self.operator.path.as_deref()));
        Ok(dir.transpose()?)
    }

    /// Where the values of the policy's secrets come from.
    pub(crate) fn secrets(&self, policy: &WorkspaceSecurityPolicy) -> Vec<SecretLocation> {
        let file = self.operator.path.as_deref();
        policy.secrets().map(|secret| SecretLocation::new(secret, file, &self.taken_variables)).collect()
    }

    /// The file with additional trusted certificates.
    pub(crate) fn ca(&self, policy: &WorkspaceSecurityPolicy) -> Result<Option<PathBuf>, BootstrapError> {
        let ca = policy.egress().ca.as_deref().map(|ca| modules_path(ca, self.operator.path.as_deref()));
        Ok(ca.transpose()?)
    }
}

impl PolicyText {
    fn read_operator_policy() -> Result<Self, BootstrapError> {
        for path in default_policy_paths() {
            match Self::read_trusted(&path) {
                Ok(policy) => return Ok(policy),
                Err(BootstrapError::PolicyFile { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::shipped())
    }

    fn shipped() -> Self {
        Self { name: "shipped default".to_owned(), path: None, text: DEFAULT_POLICY.to_owned() }
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

    /// Reads a file that will be enforced. The text comes from the descriptor that passed the trust check, so the file
    /// cannot be exchanged between check and read.
    pub(crate) fn read_trusted(path: &Path) -> Result<Self, BootstrapError> {
        let unreadable = |source| BootstrapError::PolicyFile { path: path.to_owned(), source };
        let file = match trusted::open_file(path) {
            Ok(file) => file,
            Err(TrustError::Unusable { source, .. }) => return Err(unreadable(source)),
            Err(TrustError::Missing { doubt, .. }) => {
                tracing::warn!(
                    file = %path.display(), cause = &*doubt as &dyn std::error::Error,
                    "there is no policy file, but another user could create one here (it would be refused) or may have removed one"
                );
                return Err(unreadable(io::ErrorKind::NotFound.into()));
            }
            Err(TrustError::Kind { .. }) => {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
                return Err(unreadable(source));
            }
            Err(source) => {
                return Err(BootstrapError::UntrustedPolicy { path: path.to_owned(), source });
            }
        };
        let text = read_bounded(file).map_err(unreadable)?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }

    pub(crate) fn read(path: &Path) -> Result<Self, BootstrapError> {
        let text =
            read_text(path).map_err(|source| BootstrapError::PolicyFile { path: path.to_owned(), source })?;
        Ok(Self { name: path.display().to_string(), path: Some(path.to_owned()), text })
    }
}

/// Reads a text file of bounded size. The open is non-blocking, so that a FIFO at this path cannot block the start.
fn read_text(path: &Path) -> io::Result<String> {
    let non_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(non_blocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_bounded(file)
}

fn read_bounded(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    let is_utf16 =
        bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || bytes.get(1) == Some(&0);
    String::from_utf8(bytes).map_err(|error| {
        let problem = match is_utf16 {
            true => "it is UTF-16; save it as UTF-8".to_owned(),
            false => format!("it is not UTF-8: {}", error.utf8_error()),
        };
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

/// The folder of an XDG variable, or else this folder of the user's home.
pub(crate) fn xdg_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    // The XDG Base Directory Specification requires that relative paths are ignored.
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home)))
}

fn default_policy_paths() -> Vec<PathBuf> {
    let user_policy =
        xdg_folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("portcullis/portcullis.toml"));
    [Some(PathBuf::from("/etc/portcullis/portcullis.toml")), user_policy].into_iter().flatten().collect()
}
