//! Writes the rules of standing approvals into the operator's policy.

use std::{fs, io, io::Write as _, path::Path};

use portcullis_tools::{
    ExpectationTexts, PolicyFiles,
    approval::{RuleWriteError, RuleWriter},
};
use portcullis_types::SandboxTier;

use crate::policy_edit;

/// Writes to the operator's policy file with which the program started.
#[derive(Debug)]
pub(crate) struct PolicyRuleWriter {
    files: PolicyFiles,
    sandbox_tier: SandboxTier,
}

impl PolicyRuleWriter {
    /// Creates the writer for a policy. Returns `None` for the shipped policy, which has no file.
    pub(crate) fn new(files: &PolicyFiles, sandbox_tier: SandboxTier) -> Option<Self> {
        files.operator_path()?;
        Some(Self { files: files.clone(), sandbox_tier })
    }

    /// Returns the text of the file with the rules added. The text must load, and the rules must be in force,
    /// because an overlay can remove them.
    fn edited(&self, file: &Path, rules: &[String]) -> Result<String, RuleWriteError> {
        let text = fs::read_to_string(file)?;
        let edited = policy_edit::with_unasked(&text, rules).ok_or(RuleWriteError::NoSection)?;
        let files = self.files.clone().with_operator_text(edited.clone());
        let policy = files.load(self.sandbox_tier)?;
        let shell = policy.shell().ok_or(RuleWriteError::NoShell)?;
        let effective: Vec<String> = shell.commands.allowed_commands().collect();
        if !rules.iter().all(|rule| effective.contains(rule)) {
            return Err(RuleWriteError::TakenAway);
        }
        // A rule that the operator's expectations forbid would make the next start fail.
        ExpectationTexts::check_edited(&files, self.sandbox_tier)?;
        Ok(edited)
    }
}

impl RuleWriter for PolicyRuleWriter {
    fn file_for(&self, rules: &[String]) -> Option<String> {
        let file = self.files.operator_path()?;
        self.edited(file, rules).ok()?;
        Some(file.display().to_string())
    }

    fn write(&self, rules: &[String]) -> Result<(), RuleWriteError> {
        let file = self.files.operator_path().ok_or(RuleWriteError::Shipped)?;
        let edited = self.edited(file, rules)?;
        Ok(replace(file, &edited)?)
    }
}

/// Replaces the content of a file atomically. A symlink is followed, and the file keeps its permissions.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = file.canonicalize()?;
    let folder = file.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut unfinished = tempfile::NamedTempFile::new_in(folder)?;
    unfinished.write_all(text.as_bytes())?;
    unfinished.as_file().set_permissions(fs::metadata(&file)?.permissions())?;
    // Sync before the rename: after a crash, the name must not lead to an empty policy.
    unfinished.as_file().sync_all()?;
    unfinished.persist(&file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::DEFAULT_POLICY;

    use super::*;

    #[test]
    fn rules_are_added_to_the_file_and_hold() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.toml");
        fs::write(&file, DEFAULT_POLICY).expect("written");
        let files = PolicyFiles::read(&file).expect("reads");
        let writer = PolicyRuleWriter::new(&files, SandboxTier::Process).expect("a file");
        // In the order of the command, which differs from the order in the policy.
        let rules = ["ls".to_owned(), "cargo test -p x".to_owned()];
        assert_eq!(writer.file_for(&rules), Some(file.display().to_string()));
        assert_eq!(fs::read_to_string(&file).expect("readable"), DEFAULT_POLICY);
        writer.write(&rules).expect("written");
        writer.write(&rules[..1]).expect("written again");
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.contains("unasked = [\"ls\", \"cargo test -p x\"]"), "{text}");
        let policy = PolicyFiles::read(&file).expect("reads").load(SandboxTier::Process).expect("loads");
        assert!(policy.shell().expect("a shell").commands.unasked_rules("ls && cargo test -p x").is_ok());
        // The rest of the file is unchanged.
        assert_eq!(text.lines().count(), DEFAULT_POLICY.lines().count() + 1);
    }

    #[test]
    fn a_rule_that_the_expectations_forbid_is_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.toml");
        fs::write(&file, DEFAULT_POLICY).expect("written");
        let files = PolicyFiles::read(&file).expect("reads");
        let writer = PolicyRuleWriter::new(&files, SandboxTier::Process).expect("a file");
        let expected = "[[expect]]\ntool = \"shell_exec\"\ncommand = \"git push\"\nverdict = \"ask\"\n";
        fs::write(folder.path().join("policy.expect.toml"), expected).expect("written");
        assert_eq!(writer.file_for(&["git push".to_owned()]), None);
        let error = writer.write(&["git push".to_owned()]).expect_err("refused");
        let problem = portcullis_types::error_chain(&error);
        assert!(problem.contains("does not meet its expectations"), "{problem}");
        assert_eq!(fs::read_to_string(&file).expect("readable"), DEFAULT_POLICY);
        writer.write(&["ls".to_owned()]).expect("written");
    }

    #[test]
    fn a_policy_without_a_shell_takes_no_rule() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("policy.toml");
        let text = "version = 1\n[mounts]\nshared = \"shared\"\n";
        fs::write(&file, text).expect("written");
        let files = PolicyFiles::read(&file).expect("reads");
        let writer = PolicyRuleWriter::new(&files, SandboxTier::Process).expect("a file");
        assert_eq!(writer.file_for(&["ls".to_owned()]), None);
        assert!(writer.write(&["ls".to_owned()]).is_err());
        assert_eq!(fs::read_to_string(&file).expect("readable"), text);
    }
}
