//! Edits a tool's entry in the text of a policy.
//!
//! The text is edited line by line, and the policy's own loader reads the result. A wrong edit therefore
//! gives a text that does not load, never a policy with another meaning.

use portcullis_tools::PolicyFiles;
use portcullis_types::ToolName;

use crate::error::AuthorError;

/// A key of an entry, and its value as TOML.
pub(super) type EntryKey = (&'static str, String);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct EditedPolicy {
    pub(super) text: String,
    /// Whether the text already had the entry.
    pub(super) section_exists: bool,
}

/// Returns the policy with an entry that gives a profile to a tool.
pub(super) fn with_grant(files: PolicyFiles, tool: &str, profile: &str) -> Result<PolicyFiles, AuthorError> {
    let tool = ToolName::parse(tool)?;
    let edited = set_keys(files.operator_text(), &tool, &[("profile", toml_string(profile))]);
    Ok(files.with_operator_text(edited.text))
}

/// Sets keys in a tool's entry and replaces existing ones. If there is no entry, it is appended.
pub(super) fn set_keys(text: &str, tool: &ToolName, keys: &[EntryKey]) -> EditedPolicy {
    set_table_keys(text, ("tools", tool.as_str()), keys)
}

/// Sets keys in the table `[table.name]` and replaces existing ones. If there is no such table, it is appended.
pub(super) fn set_table_keys(text: &str, (table, name): (&str, &str), keys: &[EntryKey]) -> EditedPolicy {
    let headers = [format!("[{table}.{name}]"), format!("[{table}.\"{name}\"]")];
    let is_header = |line: &str| headers.iter().any(|header| without_comment(line) == *header);
    let lines: Vec<&str> = text.lines().collect();
    let Some(start) = lines.iter().position(|line| is_header(line)) else {
        return EditedPolicy {
            text: format!("{}\n\n{}", text.trim_end(), section((table, name), keys)),
            section_exists: false,
        };
    };
    // The table's own lines end before the next header.
    let own_count = lines[start + 1..].iter().take_while(|line| !line.trim_start().starts_with('[')).count();
    let (head, rest) = lines.split_at(start + 1);
    let (own_lines, following_lines) = rest.split_at(own_count);
    let is_replaced = |line: &&&str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        line.contains('=') && keys.iter().any(|(name, _)| *name == key)
    };
    let kept_lines = own_lines.iter().filter(|line| !is_replaced(line)).map(|line| (*line).to_owned());
    let mut edited_lines: Vec<String> = head.iter().map(|line| (*line).to_owned()).collect();
    edited_lines.extend(keys.iter().map(|(name, value)| format!("{name} = {value}")));
    edited_lines.extend(kept_lines);
    edited_lines.extend(following_lines.iter().map(|line| (*line).to_owned()));
    edited_lines.push(String::new());
    EditedPolicy { text: edited_lines.join("\n"), section_exists: true }
}

/// Formats a new table with these keys.
pub(super) fn section((table, name): (&str, &str), keys: &[EntryKey]) -> String {
    let mut section = format!("[{table}.{name}]\n");
    for (name, value) in keys {
        section.push_str(&format!("{name} = {value}\n"));
    }
    section
}

/// Formats a text as a TOML string in JSON's notation. JSON's escapes are a subset of TOML's.
pub(super) fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> ToolName {
        ToolName::parse("words").expect("a name")
    }

    #[track_caller]
    fn check(text: &str, expected: &str, section_exists: bool) {
        let edited = set_keys(text, &name(), &[("profile", toml_string("P"))]);
        assert_eq!((edited.text.as_str(), edited.section_exists), (expected, section_exists));
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
        assert_eq!(toml_string("a\"\n[x]"), r#""a\"\n[x]""#);
    }
}
