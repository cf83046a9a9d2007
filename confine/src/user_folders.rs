//! The folders of the user who runs the program, as the XDG Base Directory Specification names them.

use std::{env, ffi::OsString, path::PathBuf};

/// Returns the value of an environment variable, if it is an absolute path. A relative path would depend on
/// the current folder, which an agent may have written. The specification requires ignoring it.
#[must_use]
pub fn absolute_variable(name: &str) -> Option<PathBuf> {
    absolute(env::var_os(name))
}

/// Returns the configuration folder: `$XDG_CONFIG_HOME`, else `$HOME/.config`. `None` if neither variable is
/// an absolute path.
#[must_use]
pub fn config() -> Option<PathBuf> {
    folder(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"), ".config")
}

/// Returns the state folder: `$XDG_STATE_HOME`, else `$HOME/.local/state`. `None` if neither variable is an
/// absolute path.
#[must_use]
pub fn state() -> Option<PathBuf> {
    folder(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"), ".local/state")
}

/// Returns the cache folder: `$XDG_CACHE_HOME`, else `$HOME/.cache`. `None` if neither variable is an
/// absolute path.
#[must_use]
pub fn cache() -> Option<PathBuf> {
    folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"), ".cache")
}

fn folder(own: Option<OsString>, home: Option<OsString>, below_home: &str) -> Option<PathBuf> {
    absolute(own).or_else(|| Some(absolute(home)?.join(below_home)))
}

fn absolute(path: Option<OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lies_where_an_absolute_variable_says() {
        let text = |text: &str| Some(OsString::from(text));
        for (own, home, expected) in [
            (text("/x"), text("/h"), Some("/x")),
            (text(""), text("/h"), Some("/h/.local/state")),
            (text("relative"), text("/h"), Some("/h/.local/state")),
            (None, text("/h"), Some("/h/.local/state")),
            (None, text(""), None),
            (None, text("relative"), None),
            (text("relative"), text("./h"), None),
            (None, None, None),
        ] {
            assert_eq!(folder(own, home, ".local/state"), expected.map(PathBuf::from));
        }
    }
}
