//! Assembles registries from the common options.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use portcullis_tools::{
    PolicyFiles, RegistryBuilder, TakenVariables, ToolRegistry, builder_for_listing, confine::user_folders,
    record_refused_start, runtime_builder_with, shell::ShellSource, write_checkpoint_to_stderr,
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolName};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::{
    cli::{CommonOptions, ModuleOptions, MountOption, ShellOption},
    error::CliError,
    output::stream,
    policy_edit,
    project::{self, Project},
    rule_writer::PolicyRuleWriter,
    sidecar::OWN_PROGRAM,
    tool_file, workspace,
};

/// The delay before the terminal shows why a start is slow.
const SLOW_START: Duration = Duration::from_millis(400);

/// The values of secrets that were removed from the environment. They are process-wide, like the environment.
static TAKEN_VARIABLES: OnceLock<TakenVariables> = OnceLock::new();

/// The workspace if the options name none and the current folder is in no project.
pub(crate) const DEFAULT_WORKSPACE: &str = "./workspace";

/// The mounts of the command line. They are process-wide, like the command line: a program reads its policy
/// in several places, and each must see them.
static MOUNT_OPTIONS: OnceLock<Vec<MountOption>> = OnceLock::new();

/// The length of the workspace's hash in the name of its state folder, in hexadecimal digits.
const WORKSPACE_HASH_CHARS: usize = 16;

/// Builds the envelope for the options. Creates no files.
pub(crate) fn envelope(common: &CommonOptions) -> Result<RunnerBootstrapEnvelope, CliError> {
    if matches!(common.shell, ShellOption::Socket(_)) && common.shell_token_file.is_none() {
        return Err(CliError::ShellToken);
    }
    let project = project(common)?;
    let workspace_option = common.workspace.as_deref().unwrap_or(Path::new(DEFAULT_WORKSPACE));
    let failed = |source| CliError::Workspace { path: workspace_option.to_owned(), source };
    let workspace = match &project {
        Some(project) => project.folder.clone(),
        None => real_path(workspace_option).map_err(failed)?,
    };
    // Check this here: otherwise the error would name the first file that is read in the workspace.
    if workspace.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        let reason = "it is a file, and a workspace is a folder";
        return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, reason)));
    }
    let state = match &common.state {
        Some(state) => std::path::absolute(state)
            .map_err(|source| CliError::Workspace { path: state.clone(), source })?,
        None => {
            let base = user_folders::state().ok_or(CliError::NoState)?;
            base.join("portcullis").join(workspace_hash(&workspace))
        }
    };
    let mut envelope = match &project {
        // The project's folder is itself a mount, so the other mounts and the rest of the state lie
        // elsewhere.
        Some(_) => {
            RunnerBootstrapEnvelope::new(state.join(project::MOUNTS_PART), state.join(project::STATE_PART))
        }
        None => RunnerBootstrapEnvelope::new(workspace, state),
    };
    envelope.sandbox_tier = common.sandbox_tier;
    // A state folder that the user named contains everything, so that it can be deleted as a whole.
    if common.state.is_none() {
        envelope.cache = user_folders::cache().map(|folder| folder.join("portcullis"));
    }
    envelope.policy = common.policy.clone().or_else(|| project.map(|project| project.file));
    envelope.compiler = Some(PathBuf::from(OWN_PROGRAM));
    if !common.mounts.is_empty() {
        // All envelopes of a process have the options of one command line, so a later value is the same.
        let _ = MOUNT_OPTIONS.get_or_init(|| common.mounts.clone());
    }
    tool_file::read(&common.tool_files)?;
    take_variables(&envelope);
    Ok(envelope)
}

/// Returns the project of the policy that the options name, or else of the current folder. `None` if the
/// options name a workspace.
///
/// # Errors
/// [`CliError::Project`] if the project files have a fault, [`CliError::Workspace`] if the current folder is gone.
pub(crate) fn project(common: &CommonOptions) -> Result<Option<Project>, CliError> {
    match (&common.workspace, &common.policy) {
        (Some(_), _) => Ok(None),
        (None, Some(policy)) => Ok(Project::from_file(policy)),
        (None, None) => {
            let current_folder = real_path(Path::new("."))
                .map_err(|source| CliError::Workspace { path: PathBuf::from("."), source })?;
            Project::find(&current_folder)
        }
    }
}

/// Removes the policy's secrets from the environment. This must happen while the process has one thread, so
/// every command first builds its envelope. This load of the policy is silent, because the later load reports
/// warnings and faults.
fn take_variables(envelope: &RunnerBootstrapEnvelope) {
    let no_subscriber = tracing::subscriber::NoSubscriber::default();
    let policy = tracing::subscriber::with_default(no_subscriber, || {
        let files = PolicyFiles::find(envelope).ok()?;
        // Most policies take no secret from the environment and need no load here.
        files.operator_text().contains("env:").then(|| files.load(envelope.sandbox_tier).ok())?
    });
    if let Some(policy) = policy {
        let _ = TAKEN_VARIABLES.get_or_init(|| TakenVariables::take(&policy));
    }
}

/// Finds the policy files of an envelope, with the mounts of the command line.
pub(crate) fn policy_files(envelope: &RunnerBootstrapEnvelope) -> Result<PolicyFiles, CliError> {
    let files = with_taken_variables(PolicyFiles::find(envelope)?);
    match MOUNT_OPTIONS.get().map(Vec::as_slice).unwrap_or_default() {
        [] => Ok(files),
        mounts => {
            let text = policy_edit::with_mounts(files.operator_text(), mounts)?;
            Ok(files.with_operator_text(text))
        }
    }
}

/// Adds the secret values that were removed from the environment.
fn with_taken_variables(files: PolicyFiles) -> PolicyFiles {
    files.with_taken(TAKEN_VARIABLES.get().cloned().unwrap_or_default())
}

/// Like [`envelope`], with foreign modules.
pub(crate) fn envelope_with(
    common: &CommonOptions,
    modules: ModuleOptions,
) -> Result<RunnerBootstrapEnvelope, CliError> {
    let mut envelope = envelope(common)?;
    envelope.modules = modules.files;
    Ok(envelope)
}

/// Builds the single-threaded runtime of a command. Guests have their own threads, and native tools run on
/// blocking threads.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::Start { source })
}

/// Builds the runtime of a command that waits for a person between its calls. Its worker thread serves the
/// connections, such as that of the shell's sidecar, while the command blocks on the terminal.
pub(crate) fn waiting_runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|source| CliError::Start { source })
}

/// Builds the registry of an envelope, with a prepared workspace. Commands run at `shell`.
///
/// # Cancellation
/// Dropping the future stops everything that it started.
pub(crate) async fn registry(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    workspace::prepare(envelope)?;
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    Ok(builder(envelope, &policy_files(envelope)?, shell).await?.build()?)
}

/// Builds the registry of a command that makes calls. Like [`registry`], but also records a refused policy in
/// the audit log.
///
/// # Cancellation
/// As in [`registry`].
pub(crate) async fn calling_registry(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    recording_refusals(envelope, registry(envelope, shell).await)
}

/// Builds the registry of a server. Like [`registry`], but the checkpoints of the audit log go to standard
/// error unless the policy names another destination. A server's standard error is collected, so the
/// checkpoints leave the machine.
///
/// # Cancellation
/// As in [`registry`].
pub(crate) async fn serving_registry(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    serving_registry_awaiting(envelope, shell, Vec::new()).await
}

/// Like [`serving_registry`], for a server that adds tools with these names later.
///
/// # Cancellation
/// As in [`registry`].
pub(crate) async fn serving_registry_awaiting(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
    names: Vec<ToolName>,
) -> Result<ToolRegistry, CliError> {
    workspace::prepare(envelope)?;
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    let builder = builder(envelope, &policy_files(envelope)?, shell).await?.declare_late_tools(names);
    Ok(builder.checkpoint_sink(Arc::new(write_checkpoint_to_stderr)).build()?)
}

/// Returns the result of a start. Records a refused policy in the audit log.
pub(crate) fn recording_refusals(
    envelope: &RunnerBootstrapEnvelope,
    built: Result<ToolRegistry, CliError>,
) -> Result<ToolRegistry, CliError> {
    if let Err(CliError::Bootstrap(error)) = &built {
        record_refused_start(envelope, error);
    }
    built
}

/// Builds a registry that only describes its tools under a policy, without the workspace's folders.
///
/// # Cancellation
/// As in [`registry`].
pub(crate) async fn describing_registry(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
) -> Result<ToolRegistry, CliError> {
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    let builder = builder_for_listing(envelope, &with_taken_variables(files.clone())).await?;
    Ok(tool_file::add_to(builder).build()?)
}

/// Like [`registry`], with policy texts that were read earlier.
///
/// # Cancellation
/// As in [`registry`].
pub(crate) async fn registry_under(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    shell: ShellSource,
) -> Result<ToolRegistry, CliError> {
    workspace::prepare(envelope)?;
    let _notice = stream::stderr_is_terminal().then(SlowStartNotice::start);
    Ok(builder(envelope, &with_taken_variables(files.clone()), shell).await?.build()?)
}

async fn builder(
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    shell: ShellSource,
) -> Result<RegistryBuilder, CliError> {
    let mut builder = tool_file::add_to(runtime_builder_with(envelope, files).await?).shell(shell);
    if let Some(writer) = PolicyRuleWriter::new(files, envelope.sandbox_tier) {
        builder = builder.rule_writer(writer);
    }
    Ok(builder)
}

/// Returns the folder of the operator's files: `$XDG_CONFIG_HOME/portcullis`, else
/// `$HOME/.config/portcullis`. `None` if neither variable is an absolute path.
pub(crate) fn config_folder() -> Option<PathBuf> {
    Some(user_folders::config()?.join("portcullis"))
}

/// Tells a waiting person why the start is slow, unless this is dropped in time.
struct SlowStartNotice {
    /// Dropping the sender tells the thread that the start is done.
    _done: mpsc::Sender<()>,
}

impl SlowStartNotice {
    fn start() -> Self {
        let (done, waiting) = mpsc::channel::<()>();
        // Ignore the error: without the thread only the notice is missing.
        let _ = std::thread::Builder::new().name("portcullis-notice".to_owned()).spawn(move || {
            if waiting.recv_timeout(SLOW_START) == Err(RecvTimeoutError::Timeout) {
                stream::write_stderr("compiling tools; this happens once for each module\n");
            }
        });
        Self { _done: done }
    }
}

/// Returns a short hash of a workspace's path.
fn workspace_hash(workspace: &Path) -> String {
    let mut name = hex::encode(Sha256::digest(workspace.as_os_str().as_encoded_bytes()));
    name.truncate(WORKSPACE_HASH_CHARS);
    name
}

/// Returns the real path of a folder that need not exist. Symlinks in the existing part of the path are
/// resolved.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "it names the state folder and appears in messages; the registry opens the workspace once and uses the handle"
        )]
        match std::fs::canonicalize(existing) {
            Ok(mut resolved) => {
                resolved.extend(missing.iter().rev());
                return Ok(resolved);
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
    fn a_workspace_has_one_name_whichever_way_it_is_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let real_dir = real_path(dir.path()).expect("the path exists");
        let link = real_dir.join("link");
        std::os::unix::fs::symlink(&real_dir, &link).expect("links");
        assert_eq!(real_path(&link.join("not/there")).expect("resolves"), real_dir.join("not/there"));
        assert_eq!(real_path(&real_dir.join("./not/there/")).expect("resolves"), real_dir.join("not/there"));
        assert_eq!(workspace_hash(&real_dir), workspace_hash(&real_path(&link).expect("resolves")));
        assert_eq!(workspace_hash(Path::new("/work")).len(), 16);
    }
}
