//! The folders granted to a call, and the decision of a policy that grants exactly them.

use std::collections::BTreeMap;

use portcullis_types::{Access, GuestPath, ToolError};
use serde_json::Value;

use crate::{DefaultValue, LiteralValue, ParamSpec, Requiredness, ToolSpec};

/// The granted mounts by name, with their access.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantedMounts(BTreeMap<String, Access>);

impl GrantedMounts {
    pub(super) fn grant(&mut self, mount: &str, access: Access) {
        self.0.insert(mount.to_owned(), access);
    }

    /// The names of the mounts.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The mounts in the notation of a profile's `mounts`.
    pub(super) fn as_toml(&self) -> String {
        let mounts: Vec<String> =
            self.0.iter().map(|(name, access)| format!("{name} = \"{access}\"")).collect();
        format!("{{ {} }}", mounts.join(", "))
    }

    /// Checks the paths of arguments with roles against the granted folders. Missing arguments and arguments of
    /// another type are left to the tool.
    pub(super) fn check_call(&self, tool: &ToolSpec, arguments: &Value) -> Result<(), ToolError> {
        for param in tool.params {
            let (Some(role), Some(text)) = (param.role, path_argument(param, arguments)) else { continue };
            let Some(access) = role.path_access() else {
                return Err(ToolError::denied(format!("`{text}` is not granted")));
            };
            if let Ok(path) = GuestPath::parse(&text) {
                self.check(&path, access)?;
            }
        }
        Ok(())
    }

    fn check(&self, path: &GuestPath, needed: Access) -> Result<(), ToolError> {
        let granted = path.mount().filter(|_| !path.climbs_out()).and_then(|mount| self.0.get(mount));
        match granted {
            Some(access) if *access >= needed => Ok(()),
            Some(_) => Err(ToolError::denied(format!("`{path}` is read-only for this tool"))),
            None => Err(ToolError::denied(format!("`{path}` is in no directory that this tool was granted"))),
        }
    }
}

/// The text of an argument, or its default.
fn path_argument(param: &ParamSpec, arguments: &Value) -> Option<String> {
    match arguments.get(param.name) {
        Some(Value::String(text)) => Some(text.clone()),
        None | Some(Value::Null) => match &param.requiredness {
            Requiredness::Default(DefaultValue::Literal(LiteralValue::String(text))) => {
                Some((*text).to_owned())
            }
            _ => None,
        },
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;
    use serde_json::json;

    use super::*;
    use crate::{DeclaredTool as _, tool};

    /// Copies.
    #[tool]
    async fn copy(
        #[arg(path = "read")] from: &str,
        #[arg(path = "write", default = "/tmp/copy")] to: &str,
    ) -> String {
        format!("{from} {to}")
    }

    #[track_caller]
    fn check(from: &str, to: Option<&str>, is_granted: bool) {
        let mut granted = GrantedMounts::default();
        granted.grant("shared", Access::Read);
        granted.grant("tmp", Access::Write);
        let result = granted.check_call(copy_tool().spec(), &json!({"from": from, "to": to}));
        assert_eq!(result.err().map(|error| error.kind()), (!is_granted).then_some(ToolErrorKind::Denied));
    }

    #[test]
    fn path_arguments_are_checked_against_granted_mounts() {
        check("a.txt", None, true);
        check("/shared/a.txt", Some("/tmp/b"), true);
        check("/tmp/a.txt", Some("/tmp/b"), true);
        check("/shared/a.txt", Some("/shared/b"), false);
        check("/vault/a.txt", None, false);
        check("/etc/passwd", None, false);
        check("/shared/../../etc/passwd", None, false);
        check("/", None, false);
    }

    #[test]
    fn a_default_path_is_checked_against_mounts_too() {
        let granted = {
            let mut granted = GrantedMounts::default();
            granted.grant("shared", Access::Read);
            granted
        };
        let result = granted.check_call(copy_tool().spec(), &json!({"from": "a"}));
        assert_eq!(
            result.expect_err("tmp is not granted").to_string(),
            "`/tmp/copy` is in no directory that this tool was granted"
        );
        assert_eq!(granted.as_toml(), "{ shared = \"read\" }");
    }
}
