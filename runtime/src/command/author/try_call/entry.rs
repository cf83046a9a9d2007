//! Edits a tool's entry in the text of a policy.
//!
//! The text is edited by lines, and the policy's own loader reads the result. A wrong edit gives a text that
//! does not load, never a policy with another meaning.

use portcullis_tools::PolicyFiles;
use portcullis_types::ToolName;

use crate::error::AuthorError;

/// A key of an entry, and its value as TOML.
pub(super) type EntryKey = (&'static str, String);

/// An edited policy text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EditedPolicy {
    pub(super) text: String,
    /// Whether the text had the entry before.
    pub(super) is_there: bool,
}

/// The policy with an entry that gives a profile to a tool.
pub(super) fn granting(files: PolicyFiles, tool: &str, profile: &str) -> Result<PolicyFiles, AuthorError> {
    let tool = ToolName::parse(tool)?;
    let edited = put(files.operator_text(), &tool, &[("profile", quoted(profile))]);
    Ok(files.with_operator_text(edited.text))
}

/// Sets keys in a tool's entry, replacing existing ones, or appends an entry.
pub(super) fn put(text: &str, tool: &ToolName, keys: &[EntryKey]) -> EditedPolicy {
    put_into(text, ("tools", tool.as_str()), keys)
}

/// Sets keys in the table of this name below this one, replacing existing ones, or appends the table.
pub(super) fn put_into(text: &str, (table, name): (&str, &str), keys: &[EntryKey]) -> EditedPolicy {
    let headers = [format!("[{table}.{name}]"), format!("[{table}.\"{name}\"]")];
    let is_header = |line: &str| headers.iter().any(|header| bare(line) == *header);
    let lines: Vec<&str> = text.lines().collect();
    let Some(start) = lines.iter().position(|line| is_header(line)) else {
        return EditedPolicy {
            text: format!("{}\n\n{}", text.trim_end(), section((table, name), keys)),
            is_there: false,
        };
    };
    let own = lines[start + 1..].iter().take_while(|line| !line.trim_start().starts_with('[')).count();
    let (head, rest) = lines.split_at(start + 1);
    let (own, tail) = rest.split_at(own);
    let is_replaced = |line: &&&str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        line.contains('=') && keys.iter().any(|(name, _)| *name == key)
    };
    let kept = own.iter().filter(|line| !is_replaced(line)).map(|line| (*line).to_owned());
    let mut all: Vec<String> = head.iter().map(|line| (*line).to_owned()).collect();
    all.extend(keys.iter().map(|(name, value)| format!("{name} = {value}")));
    all.extend(kept);
    all.extend(tail.iter().map(|line| (*line).to_owned()));
    all.push(String::new());
    EditedPolicy { text: all.join("\n"), is_there: true }
}

/// A new table with these keys.
pub(super) fn section((table, name): (&str, &str), keys: &[EntryKey]) -> String {
    let mut section = format!("[{table}.{name}]\n");
    for (name, value) in keys {
        section.push_str(&format!("{name} = {value}\n"));
    }
    section
}

/// A text as a TOML string. JSON's escapes are a subset of TOML's.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A line without its comment.
fn bare(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ToolName {
        ToolName::parse("words").expect("a name")
    }

    #[track_caller]
    fn check(text: &str, expected: &str, is_there: bool) {
        let edited = put(text, &name(), &[("profile", quoted("P"))]);
        assert_eq!((edited.text.as_str(), edited.is_there), (expected, is_there));
    }

    #[test]
    fn an_entry_is_appended_or_gets_the_key() {
        check("version = 1\n", "version = 1\n\n[tools.words]\nprofile = \"P\"\n", false);
        check(
            "[tools.words] # mine\napproval = \"ask\"\nprofile = \"Q\"\n[limits]\nprofile = \"x\"\n",
            "[tools.words] # mine\nprofile = \"P\"\napproval = \"ask\"\n[limits]\nprofile = \"x\"\n",
            true,
        );
        check("[tools.\"words\"]", "[tools.\"words\"]\nprofile = \"P\"\n", true);
        check("[tools.words2]\n", "[tools.words2]\n\n[tools.words]\nprofile = \"P\"\n", false);
    }

    #[test]
    fn quoted_text_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"\n[x]"), r#""a\"\n[x]""#);
    }
}
