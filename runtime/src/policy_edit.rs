//! Edits of an operator's policy that keep its comments.

use portcullis_tools::policy::MountName;
use toml_edit::{DocumentMut, InlineTable, Item, Value, value};

use crate::{
    cli::MountOption,
    error::{Cause, CliError},
    setup::real_path,
};

/// Returns the policy with further mounts. They are granted to each profile that has the home mount, and to
/// the shell if it has that mount, with the same access or less.
///
/// # Errors
/// [`CliError::Mount`] if a name is taken or a path is not text. A text that is not TOML is returned unchanged,
/// because loading it reports the fault.
pub(crate) fn with_mounts(text: &str, mounts: &[MountOption]) -> Result<String, CliError> {
    let Ok(mut policy) = text.parse::<DocumentMut>() else { return Ok(text.to_owned()) };
    let home = policy.get("home").and_then(Item::as_str).unwrap_or(MountName::SHARED).to_owned();
    for mount in mounts {
        let failed = |source: Cause| CliError::Mount { mount: mount.to_string(), source };
        let refuse = |problem: &str| failed(problem.into());
        // A missing folder is refused when it is opened.
        let folder = real_path(&mount.folder).map_err(|error| failed(error.into()))?;
        let folder = folder.to_str().ok_or_else(|| refuse("its path is not UTF-8"))?;
        let folders = policy.entry("mounts").or_insert(toml_edit::table()).as_table_like_mut();
        let Some(folders) = folders else { return Ok(text.to_owned()) };
        if folders.contains_key(mount.name.as_str()) {
            return Err(refuse("the policy has a mount of this name"));
        }
        folders.insert(mount.name.as_str(), value(folder));
        let profiles = policy.get_mut("profiles").and_then(Item::as_table_like_mut);
        let profiles =
            profiles.into_iter().flat_map(|profiles| profiles.iter_mut().map(|(_, profile)| profile));
        for profile in profiles {
            grant(profile, &home, mount);
        }
        if let Some(shell) = policy.get_mut("shell") {
            grant(shell, &home, mount);
        }
    }
    Ok(policy.to_string())
}

/// Returns the policy with further commands that need no approval. `None` if the text is not TOML or has no
/// section `[shell]`.
pub(crate) fn with_unasked(text: &str, rules: &[String]) -> Option<String> {
    let mut policy: DocumentMut = text.parse().ok()?;
    let shell = policy.get_mut("shell")?.as_table_like_mut()?;
    let list = shell.entry("unasked").or_insert(value(toml_edit::Array::new())).as_array_mut()?;
    for rule in rules {
        if !list.iter().any(|other| other.as_str() == Some(rule)) {
            list.push(rule);
        }
    }
    Some(policy.to_string())
}

/// Grants a mount where the home mount is granted.
fn grant(section: &mut Item, home: &str, mount: &MountOption) {
    let Some(grants) = section.get_mut("mounts") else { return };
    let Some(access) = grants.get(home).and_then(Item::as_str).map(str::to_owned) else { return };
    let access = if mount.is_read_only { "read".to_owned() } else { access };
    match grants {
        Item::Value(Value::InlineTable(grants)) => insert(grants, mount, access),
        other => {
            if let Some(grants) = other.as_table_like_mut() {
                grants.insert(mount.name.as_str(), value(access));
            }
        }
    }
}

fn insert(grants: &mut InlineTable, mount: &MountOption, access: String) {
    grants.insert(mount.name.as_str(), access.into());
    grants.fmt();
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use portcullis_types::{SandboxTier, error_chain};

    use super::*;

    fn load(text: &str) -> WorkspaceSecurityPolicy {
        let operator = PolicySource { name: "p", text };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        WorkspaceSecurityPolicy::load(&options).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    fn with(text: &str, mounts: &[&str]) -> Result<String, CliError> {
        let mounts: Vec<MountOption> = mounts.iter().map(|mount| mount.parse().expect("a mount")).collect();
        with_mounts(text, &mounts)
    }

    #[test]
    fn a_mount_is_granted_as_the_home_is() {
        let policy = load(&with(DEFAULT_POLICY, &["data=/srv/data", "docs=/srv/docs:ro"]).expect("edited"));
        let granted = |profile: &str| {
            let (_, mounts) =
                policy.profiles().find(|(name, _)| name.as_str() == profile).expect("a profile");
            mounts
                .iter()
                .map(|mount| format!("{} {}", mount.name, mount.access))
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(granted("FileReadOnly"), "data read, docs read, shared read, tmp read, vault read");
        assert_eq!(granted("FileReadWrite"), "data write, docs read, shared write, tmp write");
        assert_eq!(granted("VaultRead"), "vault read");
        assert_eq!(granted("Nothing"), "");
        let shell = policy.shell().expect("a shell");
        let shell: Vec<_> =
            shell.mounts.iter().map(|mount| format!("{} {}", mount.name, mount.access)).collect();
        assert_eq!(shell, ["data write", "docs read", "shared write", "tmp write"]);
    }

    #[test]
    fn a_path_that_cannot_be_resolved_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&link, &link).expect("linked");
        let error = with(DEFAULT_POLICY, &[&format!("d={}", link.display())]).expect_err("a cycle of links");
        let source = std::fs::metadata(&link).expect_err("a cycle of links");
        assert!(error_chain(&error).contains(&source.to_string()), "{}", error_chain(&error));
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_other_shapes_are_kept() {
        let error = with(DEFAULT_POLICY, &["tmp=/srv"]).expect_err("taken");
        assert!(error_chain(&error).contains("the policy has a mount of this name"), "{error}");
        let error = with(DEFAULT_POLICY, &["a=/a", "a=/b"]).expect_err("taken");
        assert!(error_chain(&error).contains("the policy has a mount of this name"), "{error}");
        let own_line =
            "version = 1\nhome = \"h\"\nmounts.h = \"h\"\n[profiles.P.mounts]\nh = \"write\"\n[profiles.Q]\n";
        let edited = with(own_line, &["d=/d:ro"]).expect("edited");
        assert_eq!(load(&edited).mounts().len(), 2, "{edited}");
        assert!(edited.contains("d = \"read\""), "{edited}");
        for broken in ["[[", "mounts = 3\n"] {
            assert_eq!(with(broken, &["d=/d"]).expect("left to the load"), broken);
        }
    }
}
