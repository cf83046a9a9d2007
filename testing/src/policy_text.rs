//! Changes a policy's text by key, so that tests do not depend on its white space and comments.

use toml_edit::{DocumentMut, Item, Value};

/// Returns the policy with a key set, or added at the end of its section. `key` is for example `shell.deny`,
/// and `value` is TOML, for example `["sudo"]`. All other lines are unchanged.
///
/// # Panics
/// If the policy or the value is not TOML, or the policy has no such section.
#[must_use]
pub fn with_policy_key(policy: &str, key: &str, value: &str) -> String {
    let mut document: DocumentMut = policy.parse().unwrap_or_else(|error| panic!("{error}\n{policy}"));
    let value: Value = value.parse().unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
    let mut names = key.split('.');
    let key = names.next_back().unwrap_or_default();
    let mut table = document.as_table_mut();
    for name in names {
        let section = table.get_mut(name).and_then(Item::as_table_mut);
        table = section.unwrap_or_else(|| panic!("the policy has no section `{name}`:\n{policy}"));
    }
    // `insert` would also replace the key itself, and with it the comment lines above it.
    match table.get_mut(key) {
        Some(item) => *item = Item::Value(value),
        None => drop(table.insert(key, Item::Value(value))),
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_in_place_or_added_to_its_section() {
        let policy = "version = 1\n[shell]\n# read = []\ndeny        = []  # programs\n# allow\n\n[limits]\nconcurrency = 10\n";
        let set = with_policy_key(policy, "shell.deny", "[\"sudo\"]");
        assert_eq!(set, policy.replace("[]  # programs", "[\"sudo\"]"));
        let added = with_policy_key(policy, "shell.unasked", "[\"ls\"]");
        assert_eq!(added, policy.replace("# programs\n", "# programs\nunasked = [\"ls\"]\n"));
        assert_eq!(with_policy_key(policy, "version", "2"), policy.replace("version = 1", "version = 2"));
    }
}
