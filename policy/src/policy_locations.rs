//! The names and locations of policy files. This crate names the locations, but does not access them.

use std::path::{Path, PathBuf};

/// The overlay file in a workspace, which can only restrict the operator's policy.
pub const OVERLAY_FILE: &str = "portcullis.toml";

/// The name of [`DEFAULT_POLICY`](crate::DEFAULT_POLICY) in messages.
pub const SHIPPED_POLICY_NAME: &str = "shipped default";

/// The maximum size of a policy file, in bytes: 1 MiB.
pub const MAX_POLICY_FILE_BYTES: u64 = 1 << 20;

/// Returns the default locations of the operator's policy: `/etc/portcullis/portcullis.toml`, then the same
/// file below the user's configuration folder. The first existing file is the policy.
#[must_use]
pub fn default_policy_paths(user_config: Option<PathBuf>) -> Vec<PathBuf> {
    let folders = [Some(Path::new("/etc").to_owned()), user_config];
    folders.into_iter().flatten().map(|folder| folder.join("portcullis/portcullis.toml")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_policy_comes_before_the_users() {
        let machine = Path::new("/etc/portcullis/portcullis.toml");
        assert_eq!(default_policy_paths(None), [machine]);
        let user = Path::new("/home/me/.config/portcullis/portcullis.toml");
        assert_eq!(default_policy_paths(Some("/home/me/.config".into())), [machine, user]);
    }
}
