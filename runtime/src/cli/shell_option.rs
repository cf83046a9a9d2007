//! The value of `--shell`: where the commands of `shell_exec` run.

use std::{fmt, path::PathBuf, str::FromStr};

/// The value of `--shell`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShellOption {
    /// A private sidecar of this program.
    Own,
    /// A private sidecar of this program that confines nothing.
    Host,
    /// No shell.
    Off,
    /// A running sidecar, at this socket.
    Socket(PathBuf),
}

impl FromStr for ShellOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("unix:")) {
            ("own", _) => Ok(Self::Own),
            ("host", _) => Ok(Self::Host),
            ("off", _) => Ok(Self::Off),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Socket(path.into())),
            _ => Err("expected `own`, `host`, `off` or `unix:PATH`".to_owned()),
        }
    }
}

impl fmt::Display for ShellOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::Host => f.write_str("host"),
            Self::Off => f.write_str("off"),
            // Make the path absolute, because the started server may have another working directory.
            Self::Socket(path) => {
                write!(f, "unix:{}", std::path::absolute(path).as_ref().unwrap_or(path).display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_is_named_in_one_of_four_ways() {
        assert_eq!("own".parse(), Ok(ShellOption::Own));
        assert_eq!("unix:/run/s.sock".parse(), Ok(ShellOption::Socket("/run/s.sock".into())));
        for wrong in ["", "unix:", "tcp:1", "OWN"] {
            wrong.parse::<ShellOption>().expect_err(wrong);
        }
    }
}
