//! The workspace of the demonstration.

use std::{fs, io, path::Path};

use portcullis_tools::policy::DEFAULT_POLICY;
use tempfile::TempDir;

use crate::cli::CommonOptions;

/// The size of the long file, in bytes.
const LONG_FILE_BYTES: usize = 142_857;

/// A workspace under the shipped policy, with files to work on.
pub(super) struct DemoWorkspace {
    folder: TempDir,
    /// The options for a command in this workspace.
    pub(super) common: CommonOptions,
}

impl DemoWorkspace {
    /// Creates the folder and its files. Sandbox tier and shell are taken from `options`. Everything else
    /// belongs to the workspace.
    pub(super) fn set_up(options: &CommonOptions) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("portcullis-demo-").tempdir()?;
        let root = folder.path();
        let workspace = root.join("workspace");
        for (path, text) in [
            (
                "shared/notes/todo.md",
                "# To do\n\n- [ ] call Ada\n- [x] write to Grace\n- [ ] TODO: pay the gas\n",
            ),
            ("shared/notes/ideas.md", "# Ideas\n\nA gate that opens for whoever may pass.\n"),
            ("vault/letter.md", "Dear NAME,\n\nthank you for your letter.\n"),
        ] {
            write_file(&workspace.join(path), text)?;
        }
        write_file(&workspace.join("shared/log.txt"), &long_text())?;
        fs::create_dir_all(workspace.join("tmp"))?;
        let policy = root.join("policy.toml");
        fs::write(&policy, DEFAULT_POLICY)?;
        let common = CommonOptions {
            workspace: Some(workspace),
            mounts: Vec::new(),
            policy: Some(policy),
            state: Some(root.join("state")),
            sandbox_tier: options.sandbox_tier,
            shell: options.shell.clone(),
            shell_token_file: options.shell_token_file.clone(),
            tool_files: Vec::new(),
        };
        Ok(Self { folder, common })
    }

    /// Returns the first text that a person reads.
    pub(super) fn introduction(&self) -> String {
        format!(
            "A scripted model works in {}. The tools, the policy, the sandbox and the audit log are real.",
            self.folder.path().display()
        )
    }

    /// Removes the folder, or keeps it and returns a text with its path.
    pub(super) fn close(self, keep: bool) -> String {
        if keep {
            let kept_folder = self.folder.keep();
            return format!(
                "\nkept: {0}\n  portcullis audit log --workspace {0}/workspace --state {0}/state --policy \
                 {0}/policy.toml\n",
                kept_folder.display()
            );
        }
        String::new()
    }
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

/// Returns numbered lines, truncated to [`LONG_FILE_BYTES`].
fn long_text() -> String {
    let mut text: String = (1..).map(|number| format!("line {number} of a long log\n")).take(8000).collect();
    text.truncate(LONG_FILE_BYTES);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_file_has_exactly_its_size() {
        assert_eq!(long_text().len(), LONG_FILE_BYTES);
    }
}
