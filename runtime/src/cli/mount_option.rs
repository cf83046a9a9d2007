//! The value of `--mount`: a further folder that tools see.

use std::{fmt, path::PathBuf, str::FromStr};

use portcullis_tools::policy::MountName;

/// The value of `--mount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountOption {
    /// The mount's name. Tools see the folder as `/NAME`.
    pub(crate) name: MountName,
    /// The folder, as it was written.
    pub(crate) folder: PathBuf,
    /// Whether no tool may write the folder.
    pub(crate) is_read_only: bool,
}

impl FromStr for MountOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let usage = || "expected NAME=PATH or NAME=PATH:ro".to_owned();
        let (name, folder) = text.split_once('=').ok_or_else(usage)?;
        let (folder, is_read_only) = match folder.strip_suffix(":ro") {
            Some(folder) => (folder, true),
            None => (folder, false),
        };
        if folder.is_empty() {
            return Err(usage());
        }
        let name = MountName::parse(name).map_err(|error| error.to_string())?;
        if name.is_vault() {
            return Err("the vault is a mount of its own, and is granted only to its readers".to_owned());
        }
        Ok(Self { name, folder: folder.into(), is_read_only })
    }
}

impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Make the path absolute, because a started server may have another working directory.
        let folder = std::path::absolute(&self.folder);
        let end = if self.is_read_only { ":ro" } else { "" };
        write!(f, "{}={}{end}", self.name, folder.as_ref().unwrap_or(&self.folder).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_name_and_a_path() {
        for (text, folder, is_read_only) in [
            ("data=/srv/data", "/srv/data", false),
            ("data=a:ro", "a", true),
            ("data=/a=b:rw", "/a=b:rw", false),
        ] {
            let mount: MountOption = text.parse().expect(text);
            assert_eq!((mount.name.as_str(), &*mount.folder.to_string_lossy()), ("data", folder));
            assert_eq!(mount.is_read_only, is_read_only);
        }
        for wrong in ["", "data", "data=", "data=:ro", "=a", "Data=a", "a/b=c", "vault=/a"] {
            wrong.parse::<MountOption>().expect_err(wrong);
        }
    }
}
