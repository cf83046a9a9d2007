//! Reads the secrets of a policy from files, variables or systemd credentials. Their values enter the process
//! only here, and leave it only through the HTTP client.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    path::{Path, PathBuf},
};

use portcullis_confine::{
    SingleThreaded, take_variable,
    trusted::{self, GroupReaders, TrustError},
};
use portcullis_egress::{Credential, HeaderAffixes, InvalidCredential, InvalidSecret, SecretValue};
use portcullis_policy::{
    HostRule, SecretHeader, SecretName, SecretRule, SecretSource, WorkspaceSecurityPolicy,
};

/// The variable that names systemd's folder of credentials (`systemd.exec(5)`).
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";

/// Why a secret's value cannot be used, for the operator. The error names files and variables, but never a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set.
    #[error("the variable `{0}` is not set")]
    NoVariable(String),
    /// There is no folder of systemd credentials.
    #[error(
        "`{CREDENTIALS_VARIABLE}` names no folder, so there are no credentials: start Portcullis as a service of systemd with `LoadCredential=`, or name a file as `file:…`"
    )]
    NoCredentials,
    /// The path is relative, but the policy is not a file.
    #[error("`{}` is relative, and there is no policy file that it could be relative to; write an absolute path", .0.display())]
    NoBase(PathBuf),
    /// The file cannot be opened, or other users can read or change it.
    #[error("the file of the secret is refused")]
    Untrusted(#[source] TrustError),
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The host path of the secret's file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The value cannot be part of a header.
    #[error("the value cannot be used")]
    Invalid(#[from] InvalidSecret),
    /// The header cannot carry the value.
    #[error(transparent)]
    Header(#[from] InvalidCredential),
}

/// The values of variables that were removed from this process's environment at startup.
#[derive(Debug, Clone, Default)]
pub struct TakenVariables(BTreeMap<String, Result<SecretValue, InvalidSecret>>);

impl TakenVariables {
    /// Removes the variables that hold the policy's secrets from the environment. If this process has another
    /// thread, which could read the environment concurrently, the variables stay and are read on first use.
    #[must_use]
    pub fn take(policy: &WorkspaceSecurityPolicy) -> Self {
        let Ok(one_thread) = SingleThreaded::check() else { return Self::default() };
        let names = policy.secrets().filter_map(|(_, rule)| match &rule.source {
            SecretSource::Environment(name) => Some(name.clone()),
            SecretSource::File(_) | SecretSource::Credential(_) => None,
        });
        let variables = names.filter_map(|name| {
            let value = take_variable(&name, &one_thread)?;
            Some((name, SecretValue::new(value)))
        });
        Self(variables.collect())
    }
}

/// A secret of the policy, and where its value is stored.
#[derive(Debug, Clone)]
pub(crate) struct SecretLocation {
    name: SecretName,
    source: SecretSource,
    header: SecretHeader,
    hosts: BTreeSet<HostRule>,
    /// The folder of the policy file, for relative paths.
    base: Option<PathBuf>,
    /// The value, if it was removed from the environment.
    taken_value: Option<Result<SecretValue, InvalidSecret>>,
}

impl SecretLocation {
    /// Locates a secret. `policy_file` is the operator's policy; relative paths are resolved in its folder.
    pub(crate) fn new(
        (name, rule): (&SecretName, &SecretRule),
        policy_file: Option<&Path>,
        taken_variables: &TakenVariables,
    ) -> Self {
        Self {
            name: name.clone(),
            source: rule.source.clone(),
            header: rule.header.clone(),
            hosts: rule.hosts.clone(),
            base: policy_file.map(|file| file.parent().unwrap_or(Path::new("")).to_owned()),
            taken_value: match &rule.source {
                SecretSource::Environment(variable) => taken_variables.0.get(variable).cloned(),
                SecretSource::File(_) | SecretSource::Credential(_) => None,
            },
        }
    }

    pub(crate) fn name(&self) -> &SecretName {
        &self.name
    }

    /// The hosts that the secret may be sent to.
    pub(super) fn hosts(&self) -> &BTreeSet<HostRule> {
        &self.hosts
    }

    /// The file that holds the value, if there is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match &self.source {
            SecretSource::File(path) => self.absolute(path).ok(),
            SecretSource::Credential(name) => credential(name).ok(),
            SecretSource::Environment(_) => None,
        }
    }

    /// Reads the value. Blocks, because the file can lie on a slow file system.
    pub(crate) fn read(&self) -> Result<Credential, SecretError> {
        let value = match (&self.source, &self.taken_value) {
            (_, Some(value)) => value.clone()?,
            (SecretSource::Environment(name), None) => {
                let value = std::env::var_os(name).ok_or_else(|| SecretError::NoVariable(name.clone()))?;
                SecretValue::new(value.into_vec())?
            }
            (SecretSource::File(path), None) => read_file(&self.absolute(path)?, GroupReaders::Refused)?,
            (SecretSource::Credential(name), None) => read_file(&credential(name)?, GroupReaders::Ignored)?,
        };
        let header = &self.header;
        Ok(Credential::new(
            self.name.as_str(),
            &value,
            header.name(),
            HeaderAffixes { prefix: header.value_prefix(), suffix: header.value_suffix() },
        )?)
    }

    fn absolute(&self, path: &str) -> Result<PathBuf, SecretError> {
        match (Path::new(path).is_absolute(), &self.base) {
            (true, _) => Ok(path.into()),
            (false, Some(base)) => Ok(base.join(path)),
            (false, None) => Err(SecretError::NoBase(path.into())),
        }
    }
}

fn credential(name: &str) -> Result<PathBuf, SecretError> {
    let folder = std::env::var_os(CREDENTIALS_VARIABLE).map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute()).ok_or(SecretError::NoCredentials)?;
    Ok(folder.join(name))
}

/// Reads the file through the descriptor that passed the checks.
fn read_file(path: &Path, group: GroupReaders) -> Result<SecretValue, SecretError> {
    let file = trusted::open_file(path).map_err(SecretError::Untrusted)?;
    trusted::judge_readers(file.as_fd(), path, group).map_err(SecretError::Untrusted)?;
    // Read once, into a buffer with room for the longest value, a line break and one more byte. A growing
    // buffer would leave copies of the value in freed memory.
    let mut bytes = Vec::with_capacity(MAX_FILE_BYTES + 1);
    let read_bounded =
        |file: File, bytes: &mut Vec<u8>| file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(bytes);
    match read_bounded(file, &mut bytes) {
        Ok(_length) => Ok(SecretValue::new(bytes)?),
        Err(source) => Err(SecretError::Unreadable { path: path.to_owned(), source }),
    }
}

/// The maximum size of a value, including a line break.
const MAX_FILE_BYTES: usize = SecretValue::MAX_BYTES + 2;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use portcullis_policy::{LoadOptions, PolicySource};
    use portcullis_types::{SandboxTier, error_chain};

    use super::*;

    /// Creates the location of a secret with this source. Relative paths are resolved in `base`.
    fn location(source: &str, base: Option<&Path>) -> SecretLocation {
        let text = format!(
            "version = 1\n[profiles.N]\nhosts = ['https://*']\n[secrets.s]\nfrom = '{source}'\n\
             hosts = ['https://a.example']\nheader = 'Authorization: Bearer {{secret}}'\ntools = ['web_fetch']"
        );
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "p", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        });
        let policy = policy.expect("loads");
        let file = base.map(|base| base.join("policy.toml"));
        let secret = policy.secrets().next().expect("one secret");
        SecretLocation::new(secret, file.as_deref(), &TakenVariables::default())
    }

    #[track_caller]
    fn check(location: &SecretLocation, fault: Option<&str>) {
        let result = location.read();
        match (result.as_ref().map_err(|error| error_chain(error)), fault) {
            (Ok(credential), None) => assert_eq!(credential.name(), "s"),
            (Err(error), Some(fault)) => {
                assert!(error.contains(fault), "{error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
            (unexpected, _) => panic!("{unexpected:?}"),
        }
    }

    #[test]
    fn a_file_is_read_that_its_owner_alone_reads() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("token");
        let file_location = location("file:token", Some(dir.path()));
        assert_eq!(file_location.file().as_deref(), Some(&*file));
        check(&file_location, Some("cannot open"));
        let put = |text: &str, mode: u32| {
            fs::write(&file, text).expect("writable");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("the permissions can be set");
        };
        put("hunter2-hunter2\n", 0o600);
        check(&file_location, None);
        put("hunter2-hunter2\n", 0o644);
        check(&file_location, Some("can be read by everybody (mode 0644)"));
        put("hunter2-hunter2\n", 0o602);
        check(&file_location, Some("can be written by everybody"));
        for (text, fault) in [
            ("", "it is empty"),
            ("hunter2", "fewer than 8 bytes"),
            ("hunter2\nhunter2\n", "control character"),
            (&*"hunter2-".repeat(513), "more than 4096 bytes"),
            (&*"hunter2-".repeat(100_000), "more than 4096 bytes"),
        ] {
            put(text, 0o600);
            check(&file_location, Some(fault));
        }
        check(&location("file:.", Some(dir.path())), Some("is not a regular file"));
        check(&location("file:token", None), Some("write an absolute path"));
    }

    #[test]
    fn a_missing_variable_or_credential_is_named() {
        check(&location("env:PORTCULLIS_TEST_UNSET", None), Some("`PORTCULLIS_TEST_UNSET` is not set"));
        check(&location("credential:s", None), Some("LoadCredential="));
        let mut secret = location("env:PORTCULLIS_TEST_UNSET", None);
        secret.taken_value = Some(SecretValue::new(b"hunter2-hunter2".to_vec()));
        check(&secret, None);
        assert!(!format!("{secret:?}").contains("hunter2"));
        secret.taken_value = Some(SecretValue::new(b"hunter2".to_vec()));
        check(&secret, Some("fewer than 8 bytes"));
    }

    #[test]
    fn every_header_that_the_policy_takes_carries_a_secret() {
        // The policy must refuse every header that the HTTP client would refuse.
        let value = SecretValue::new(b"hunter2-hunter2".to_vec()).expect("a value");
        for name in [
            "authorization",
            "x-api-key",
            "host",
            "connection",
            "te",
            "cookie",
            "proxy-authorization",
            "expect",
            "accept-encoding",
            "upgrade",
            "trailer",
        ] {
            let by_policy = name.parse::<SecretHeader>().is_ok();
            let by_client = Credential::new("s", &value, name, HeaderAffixes::default()).is_ok();
            assert!(by_client || !by_policy, "{name}");
        }
    }
}
