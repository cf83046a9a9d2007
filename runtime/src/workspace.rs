//! Prepares a workspace at its first use: creates the folders, and a text that explains them.

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::Path};

use portcullis_tools::policy::MountSpec;
use portcullis_types::RunnerBootstrapEnvelope;

use crate::{atomic_dir, error::CliError, project, setup};

/// The mount whose folder gets the text.
const SHARED: &str = "shared";

/// The text that explains the folder.
const README: &str = "\
# This folder is shared with your agents

Portcullis created this folder. Tools see it as `/shared`: they can read your files there, and you find
their files here. The folder `tmp` beside it is for temporary files, and `vault` is for secrets: tools can
read it only if the policy allows it, and can never write it. Tools see nothing else of this machine.

Try:

    portcullis call file_list
    portcullis call file_write '{\"path\": \"/shared/hello.txt\", \"content\": \"Hello!\\n\"}'
    portcullis tools
    portcullis audit log
";

/// Creates the folder of the mount `shared` with its text, unless it exists. An existing folder is left
/// unchanged, with or without the text.
pub(crate) fn prepare(envelope: &RunnerBootstrapEnvelope) -> Result<(), CliError> {
    let workspace = &envelope.workspace;
    // Fast path: the folder exists, so the policy need not be read here. A project has no such folder.
    if workspace.join(SHARED).symlink_metadata().is_ok() || project::is_project_workspace(workspace) {
        return Ok(());
    }
    // A policy may map the mount to another folder, or lack it. Load it first, so that an unusable policy
    // leaves nothing behind.
    let policy = setup::policy_files(envelope)?.load(envelope.sandbox_tier)?;
    let Some(mount) = policy.mounts().iter().find(|mount| mount.name.as_str() == SHARED) else {
        return Ok(());
    };
    create_other_mounts(workspace, policy.mounts());
    create_with_text(&workspace.join(&mount.folder))
        .map_err(|source| CliError::Workspace { path: workspace.clone(), source })
}

/// Also creates the folders of the other mounts, because the registry reports each folder that it has to
/// create. Errors are ignored: the registry creates or reports the rest.
fn create_other_mounts(workspace: &Path, mounts: &[MountSpec]) {
    let top_level_mounts =
        mounts.iter().filter(|mount| mount.name.as_str() != SHARED && !mount.folder.contains('/'));
    if fs::create_dir_all(workspace).is_ok() {
        for mount in top_level_mounts {
            let _ = fs::DirBuilder::new().mode(0o750).create(workspace.join(&mount.folder));
        }
    }
}

/// Creates the folder atomically: if two processes start concurrently, neither sees it without the text.
fn create_with_text(folder: &Path) -> io::Result<()> {
    if folder.symlink_metadata().is_ok() {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return Ok(()) };
    fs::create_dir_all(parent)?;
    let result = atomic_dir::create_folder(folder, 0o750, |unfinished| {
        fs::write(unfinished.join("README.md"), README)
    });
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(root: &Path) -> RunnerBootstrapEnvelope {
        let mut envelope = RunnerBootstrapEnvelope::new(root.join("w"), root.join("s"));
        let policy = root.join("policy.toml");
        if !policy.exists() {
            fs::write(&policy, portcullis_tools::policy::DEFAULT_POLICY).expect("writable");
        }
        envelope.policy = Some(policy);
        envelope
    }

    #[test]
    fn the_text_is_written_once_and_never_again() {
        let root = tempfile::tempdir().expect("a folder");
        let envelope = envelope(root.path());
        let readme = root.path().join("w/shared/README.md");
        prepare(&envelope).expect("the folder can be prepared");
        assert_eq!(fs::read_to_string(&readme).expect("the file is readable"), README);
        fs::write(&readme, "mine").expect("writable");
        prepare(&envelope).expect("left alone");
        assert_eq!(fs::read_to_string(&readme).expect("the file is readable"), "mine");
        fs::remove_file(&readme).expect("removed");
        prepare(&envelope).expect("left alone");
        assert!(!readme.exists());
        assert_eq!(fs::read_dir(root.path().join("w")).expect("readable").count(), 3);
    }

    #[test]
    fn the_text_goes_to_the_mount_and_a_bad_policy_leaves_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let envelope = envelope(root.path());
        let policy = root.path().join("policy.toml");
        fs::write(&policy, "version = 1\nmount = 3\n").expect("writable");
        prepare(&envelope).expect_err("a policy with faults");
        assert!(!root.path().join("w").exists());
        let elsewhere = portcullis_tools::policy::DEFAULT_POLICY.replace("\"shared\"", "\"data/in\"");
        fs::write(&policy, elsewhere).expect("writable");
        prepare(&envelope).expect("the folder can be prepared");
        assert!(root.path().join("w/data/in/README.md").exists());
        assert!(!root.path().join("w/shared").exists());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let envelope = envelope(root.path());
        fs::create_dir(root.path().join("w")).expect("the folder can be made");
        std::os::unix::fs::symlink(root.path().join("gone"), root.path().join("w/shared")).expect("links");
        prepare(&envelope).expect("left to the registry to refuse");
        assert!(!root.path().join("gone").exists());
    }
}
