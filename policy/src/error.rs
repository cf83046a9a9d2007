//! The error of a policy that cannot be used: all faults of one load, each with its position, for the
//! operator.

use std::fmt;

use thiserror::Error;

use crate::LintCode;

/// One fault of a policy text.
///
/// [`Display`](fmt::Display) is `file:line:column: key: message` on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFault {
    /// The name under which the text was loaded.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key's path, such as `tools.file_read.profile`. Empty if the text is not valid TOML.
    pub key: String,
    /// The mistake, and the correct line.
    pub message: String,
    /// The code under which `portcullis policy lint` lists it.
    pub code: LintCode,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, key, message, code: _ } = self;
        if key.is_empty() {
            write!(f, "{file}:{line}:{column}: {message}")
        } else {
            write!(f, "{file}:{line}:{column}: {key}: {message}")
        }
    }
}

/// A policy that was rejected as a whole. No other policy replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", lines(faults, *omitted))]
pub struct PolicyError {
    /// The faults, in the order of the texts. Never empty.
    pub faults: Vec<PolicyFault>,
    /// The number of further faults that were left out.
    pub omitted: usize,
}

fn lines(faults: &[PolicyFault], omitted: usize) -> String {
    let mut lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    if omitted > 0 {
        lines.push(format!("and {omitted} more faults"));
    }
    lines.join("\n")
}
