//! Assembles registries from the common options.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use portcullis_tools::{
    PolicyFiles, TakenVariables, ToolRegistry, describing_builder, runtime_builder_with, shell::ShellSource,
};
use portcullis_types::RunnerBootstrapEnvelope;
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::{
    cli::{CommonOptions, Modules, ShellOption},
    error::CliError,
    output::stream,
    sidecar::OWN_PROGRAM,
    workspace,
};

/// How long a start may take before the terminal shows the reason.
const SLOW_START: Duration = Duration::from_millis(400);

/// The values of secrets that were removed from the environment. Process-wide, like the environment that the
/// values came from.
static TAKEN: OnceLock<TakenVariables> = OnceLock::new();

/// The length of the workspace's hash in the name of its state folder.
const WORKSPACE_HASH_CHARS: usize = 16;

/// The envelope for the options. It makes no files.
pub(crate) fn envelope(common: &CommonOptions) -> Result<RunnerBootstrapEnvelope, CliError> {
    if matches!(common.shell, ShellOption::Socket(_)) && common.shell_token_file.is_none() {
        return Err(CliError::ShellToken);
    }
    let failed = |source| CliError::Workspace { path: common.workspace.clone(), source };
    let workspace = real_path(&common.workspace).map_err(failed)?;
    // Check here: otherwise the first file that is read in it would be blamed.
    if workspace.metadata().is_ok_and(|found| !found.is_dir()) {
        let what = "it is a file, and a workspace is a folder";
        return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, what)));
    }
    let state = match &common.state {
        Some(state) => std::path::absolute(state)
            .map_err(|source| CliError::Workspace { path: state.clone(), source })?,
        None => {
            let base = state_base(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
            base.ok_or(CliError::NoState)?.join("portcullis").join(workspace_hash(&workspace))
        }
    };
    let mut envelope = RunnerBootstrapEnvelope::new(workspace, state);
    envelope.sandbox_tier = common.sandbox_tier;
    envelope.policy.clone_from(&common.policy);
    envelope.compiler = Some(PathBuf::from(OWN_PROGRAM));
    take_variables(&envelope);
    Ok(envelope)
}

/// Takes the policy's secrets out of the environment. Every command begins with its envelope, on the only thread.
/// This load is silent: the load that takes effect reports warnings and faults.
fn take_variables(envelope: &RunnerBootstrapEnvelope) {
    let quiet = tracing::subscriber::NoSubscriber::default();
    let policy = tracing::subscriber::with_default(quiet, || {
        let files = PolicyFiles::find(envelope).ok()?;
        // Most policies have none, and are not read twice.
        files.operator_text().contains("env:").then(|| files.load(envelope.sandbox_tier).ok())?
    });
    if let Some(policy) = policy {
        let _ = TAKEN.get_or_init(|| TakenVariables::take(&policy));
    }
}

/// The policy files of an envelope.
pub(crate) fn policy_files(envelope: &RunnerBootstrapEnvelope) -> Result<PolicyFiles, CliError> {
    Ok(with_secrets(PolicyFiles::find(envelope)?))
}

/// The files with the values that are no longer in the environment.
fn with_secrets(files: PolicyFiles) -> PolicyFiles {
    files.with_taken(TAKEN.get().cloned().unwrap_or_default())
}

/// As [`envelope`], with foreign modules.
pub(crate) fn envelope_with(
    common: &CommonOptions,
    modules: Modules,
) -> Result<RunnerBootstrapEnvelope, CliError> {
    let mut envelope = envelope(common)?;
    envelope.modules = modules.files;
    Ok(envelope)
}

/// The single-threaded runtime of a command. Guests have their own threads; native tools run on blocking
/// threads.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::Start { source })
}

/// The registry of an envelope, with a prepared workspace. Commands run at `shell`.
///
/// # Cancellation
/// Dropping the future stops what it started.
pub(crate) async fn registry(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    workspace::prepare(envelope)?;
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    Ok(runtime_builder_with(envelope, &policy_files(envelope)?).await?.shell(shell).build()?)
}

/// A registry that is only described, under a policy, without the workspace's folders.
///
/// # Cancellation
/// As [`registry`].
pub(crate) async fn describing_registry(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<ToolRegistry, CliError> {
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    Ok(describing_builder(envelope, &with_secrets(files.clone())).await?.build()?)
}

/// As [`registry`], with policy texts that were read before.
///
/// # Cancellation
/// As for [`registry`].
pub(crate) async fn registry_under(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    workspace::prepare(envelope)?;
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    Ok(runtime_builder_with(envelope, &with_secrets(files.clone())).await?.shell(shell).build()?)
}

/// Tells a waiting person the reason of a slow start, unless it is dropped in time.
struct SlowStartNotice {
    /// Dropping it tells the thread that the start is done.
    _done: mpsc::Sender<()>,
}

impl SlowStartNotice {
    fn start() -> Self {
        let (done, waiting) = mpsc::channel::<()>();
        // Without the thread the notice is missing; the start goes on.
        let _ = std::thread::Builder::new().name("portcullis-notice".to_owned()).spawn(move || {
            if waiting.recv_timeout(SLOW_START) == Err(RecvTimeoutError::Timeout) {
                stream::write_stderr("compiling tools; this happens once for each module\n");
            }
        });
        Self { _done: done }
    }
}

/// The base of state folders: `$XDG_STATE_HOME` if it is absolute, else `$HOME/.local/state`.
fn state_base(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    xdg.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".local/state")))
}

/// A short hash of a workspace's path.
fn workspace_hash(workspace: &Path) -> String {
    let mut name = hex::encode(Sha256::digest(workspace.as_os_str().as_encoded_bytes()));
    name.truncate(WORKSPACE_HASH_CHARS);
    name
}

/// The real path of a folder that need not exist: links in its existing part are resolved.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "it names the state folder and stands in messages; the registry opens the workspace once and goes by the handle"
        )]
        match std::fs::canonicalize(existing) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(real);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match (existing.parent(), existing.file_name()) {
                    (Some(parent), Some(name)) => {
                        missing.push(name);
                        existing = parent;
                    }
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_lies_where_the_environment_says() {
        let text = |text: &str| Some(OsString::from(text));
        for (xdg, home, expected) in [
            (text("/x"), text("/h"), Some("/x")),
            (text(""), text("/h"), Some("/h/.local/state")),
            (text("relative"), text("/h"), Some("/h/.local/state")),
            (None, text("/h"), Some("/h/.local/state")),
            (None, text(""), None),
            (None, None, None),
        ] {
            assert_eq!(state_base(xdg, home), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn a_workspace_has_one_name_whichever_way_it_is_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let real = real_path(dir.path()).expect("there");
        let link = real.join("link");
        std::os::unix::fs::symlink(&real, &link).expect("links");
        assert_eq!(real_path(&link.join("not/there")).expect("resolves"), real.join("not/there"));
        assert_eq!(real_path(&real.join("./not/there/")).expect("resolves"), real.join("not/there"));
        assert_eq!(workspace_hash(&real), workspace_hash(&real_path(&link).expect("resolves")));
        assert_eq!(workspace_hash(Path::new("/work")).len(), 16);
    }
}
