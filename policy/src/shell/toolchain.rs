//! The operator's toolchain in a shell: folders of the host that commands read, caches, folders of programs, and
//! variables.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use portcullis_types::is_deceptive;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use crate::VariableName;

/// The parts of the host that commands see besides the mounts and the system. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// Files and folders that commands read and run, at the same path as on the host, and never write.
    pub read: BTreeSet<HostPath>,
    /// Folders whose content commands find at the same path as on the host, in a copy that they may write.
    /// None of them equals, contains or is in an element of [`Self::read`] or another element of this set.
    #[serde(default)]
    pub caches: BTreeSet<HostPath>,
    /// Folders that are searched for programs before the system's folders, in this order. Each is an element
    /// of [`Self::read`] or is in one.
    pub path: Vec<HostPath>,
    /// Variables of every command, such as `RUSTUP_HOME`. A value that is a [`HostPath`] with `~/` is resolved.
    pub variables: BTreeMap<VariableName, String>,
}

/// A path of the host: absolute, or below the home of the user who runs Portcullis (`~/…`). It has no `.`, `..`,
/// doubled or trailing slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(String);

/// A text that is not a valid host path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidHostPath {
    /// The text is neither absolute nor begins with `~/`.
    #[error("`{}` is not a host path: write an absolute one, or one below the home such as `~/.cargo/bin`", .0.escape_default())]
    Relative(String),
    /// The text names a folder that contains too much.
    #[error("`{0}` contains the whole file system or home; list only the folders that programs need")]
    TooWide(String),
    /// The text has `..`, or characters that no path in a policy has.
    #[error("`{}` is not a plain path: `..`, line ends, NUL and invisible characters are refused", .0.escape_default())]
    NotPlain(String),
    /// The text is too long.
    #[error("a path has at most 4096 bytes")]
    TooLong,
}

/// The reason why a text is not the value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum InvalidVariableValue {
    /// The text has a NUL character, which no environment can hold.
    #[error("a variable cannot have a NUL character in its value")]
    Nul,
    /// The text is too long.
    #[error("the variable's value is longer than {MAX_PATH_BYTES} bytes")]
    TooLong,
}

impl HostPath {
    /// Returns the path on a host whose user has this home. `None` for a path below the home if there is no
    /// home.
    #[must_use]
    pub fn resolve(&self, home: Option<&Path>) -> Option<PathBuf> {
        match self.0.strip_prefix("~/") {
            Some(below) => home.map(|home| home.join(below)),
            None => Some(PathBuf::from(&self.0)),
        }
    }

    /// Returns whether the other path equals this path or lies below it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPath {
    type Err = InvalidHostPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_PATH_BYTES {
            return Err(InvalidHostPath::TooLong);
        }
        let (root, below) = match (text.strip_prefix('/'), text.strip_prefix("~/")) {
            (Some(below), _) => ("", below),
            (None, Some(below)) => ("~", below),
            (None, None) if text == "~" => return Err(InvalidHostPath::TooWide(text.to_owned())),
            (None, None) => return Err(InvalidHostPath::Relative(text.to_owned())),
        };
        let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") || text.chars().any(|sign| sign.is_control() || is_deceptive(sign)) {
            return Err(InvalidHostPath::NotPlain(text.to_owned()));
        }
        if parts.is_empty() {
            return Err(InvalidHostPath::TooWide(text.to_owned()));
        }
        Ok(Self(format!("{root}/{}", parts.join("/"))))
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Toolchain {
    /// Returns whether commands see only the mounts and the system.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.caches.is_empty() && self.path.is_empty() && self.variables.is_empty()
    }

    /// Returns whether commands can read a path, because [`Self::read`] covers it.
    #[must_use]
    pub fn reads(&self, path: &HostPath) -> bool {
        self.read.iter().any(|read| read.covers(path))
    }

    /// Returns the variables on a host whose user has this home. Without a home, values that start with `~/`
    /// are left out.
    pub fn resolved_variables(&self, home: Option<&Path>) -> impl Iterator<Item = (String, String)> {
        self.variables.iter().filter_map(move |(name, value)| {
            let value = match value.strip_prefix("~/") {
                Some(below) => home?.join(below).to_str()?.to_owned(),
                None => value.clone(),
            };
            Some((name.to_string(), value))
        })
    }
}

/// Checks the value of a variable.
///
/// # Errors
/// [`InvalidVariableValue`] if the value has a NUL character, or more than 4,096 bytes.
pub(crate) fn parse_value(text: &str) -> Result<String, InvalidVariableValue> {
    if text.contains('\0') {
        return Err(InvalidVariableValue::Nul);
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(InvalidVariableValue::TooLong);
    }
    Ok(text.to_owned())
}

/// The maximum length of a path, and of a variable's value, in bytes: Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_or_below_the_home() {
        for (text, path) in [
            ("/opt/node", "/opt/node"),
            ("//opt/./node//", "/opt/node"),
            ("~/.cargo/bin/", "~/.cargo/bin"),
            ("/a b/..c", "/a b/..c"),
        ] {
            assert_eq!(text.parse::<HostPath>().expect(text).as_str(), path);
        }
        let long = format!("/{}", "a".repeat(5000));
        for invalid in
            ["", "~", "~/", "/", "/.", "opt", "./opt", "~root/x", "/a/../b", "~/..", "/a\nb", "/a\0", &long]
        {
            assert!(invalid.parse::<HostPath>().is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn a_home_resolves_paths_and_values() {
        let path: HostPath = "~/.cargo/bin".parse().expect("a path");
        assert_eq!(path.resolve(Some(Path::new("/home/a"))), Some("/home/a/.cargo/bin".into()));
        assert_eq!(path.resolve(None), None);
        let absolute: HostPath = "/opt".parse().expect("a path");
        assert_eq!(absolute.resolve(None), Some("/opt".into()));
        assert!(absolute.covers(&"/opt/x".parse().expect("a path")));
        assert!(!absolute.covers(&"/opt2".parse().expect("a path")));
        let variables = ["A", "B"].map(|name| VariableName::parse(name).expect("a name"));
        let values = ["~/.cargo".to_owned(), "~".to_owned()];
        let toolchain =
            Toolchain { variables: variables.into_iter().zip(values).collect(), ..Toolchain::default() };
        let resolve = |home: Option<&Path>| toolchain.resolved_variables(home).collect::<Vec<_>>();
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(resolve(Some(Path::new("/h"))), [text("A", "/h/.cargo"), text("B", "~")]);
        assert_eq!(resolve(None), [text("B", "~")]);
    }
}
