//! The mount in which relative paths are resolved, if the policy names a mount other than `shared`.
//!
//! Shipped tools and the SDK know only `/shared`. Under another home, the declarations of shipped tools name
//! that home, and the host makes relative paths absolute before the policy judges them. A guest therefore
//! opens exactly the path that was judged, whichever home its module was compiled with.

use portcullis_policy::{MountName, ToolOrigin};
use portcullis_types::{FunctionDecl, JsonSchema, RoleKind, ToolArgs};
use serde_json::Value;

use crate::registered::RegisteredTool;

/// A home other than `shared`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NonDefaultHome(MountName);

impl NonDefaultHome {
    /// `None` for the home `shared`, which needs no changes.
    pub(crate) fn new(home: &MountName) -> Option<Self> {
        (home.as_str() != MountName::SHARED).then(|| Self(home.clone()))
    }

    /// Replaces `/shared` in a declaration by this home. A tool that is not shipped keeps its declaration.
    pub(crate) fn declare(&self, decl: FunctionDecl, origin: ToolOrigin) -> FunctionDecl {
        match origin {
            ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedNative
            | ToolOrigin::ShippedGateway
            | ToolOrigin::ShippedShell => FunctionDecl {
                description: decl.description.map(|text| self.rename(&text)),
                parameters: JsonSchema::new(self.rename_all(decl.parameters.as_value().clone())),
                ..decl
            },
            ToolOrigin::ForeignModule
            | ToolOrigin::Native
            | ToolOrigin::External
            | ToolOrigin::Http
            | ToolOrigin::Mcp
            | ToolOrigin::Internal => decl,
        }
    }

    /// Makes the paths in the arguments absolute. An absent path gets its default here, because the guest
    /// would resolve the default against its own home.
    pub(crate) fn absolute_paths(&self, args: ToolArgs, tool: &RegisteredTool) -> ToolArgs {
        let roles = tool.descriptor().roles.iter();
        let paths = roles.filter(|role| matches!(role.role, RoleKind::Path(_) | RoleKind::Entry));
        let mut changes = Vec::new();
        for role in paths {
            let path = match args.value().get(&role.argument) {
                Some(Value::String(text)) => text.as_str(),
                None | Some(Value::Null) => match tool.default_of(&role.argument) {
                    Some(default) => {
                        changes.push((role.argument.clone(), self.absolute(default)));
                        continue;
                    }
                    None => continue,
                },
                Some(_) => continue,
            };
            if !path.is_empty() && !path.starts_with('/') {
                changes.push((role.argument.clone(), self.absolute(path)));
            }
        }
        let mut value = if changes.is_empty() { return args } else { args.value().clone() };
        for (argument, path) in changes {
            value[argument] = Value::String(path);
        }
        ToolArgs::from_decoded(value.to_string(), value)
    }

    /// Makes a path absolute, relative to this home.
    pub(crate) fn absolute(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("/{}/{path}", self.0) }
    }

    /// Replaces each `/shared` in the text, and its environment variable, by this home.
    fn rename(&self, text: &str) -> String {
        let shared = format!("/{}", MountName::SHARED);
        let mut renamed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(offset) = rest.find(&shared) {
            let (before, after) = (&rest[..offset], &rest[offset + shared.len()..]);
            let is_whole = !after
                .starts_with(|character: char| character.is_ascii_alphanumeric() || "_-".contains(character));
            renamed.push_str(before);
            if is_whole {
                renamed.push_str(&format!("/{}", self.0));
            } else {
                renamed.push_str(&shared);
            }
            rest = after;
        }
        renamed.push_str(rest);
        let variable = |mount: &str| format!("PORTCULLIS_{}", mount.to_ascii_uppercase().replace('-', "_"));
        renamed.replace(&variable(MountName::SHARED), &variable(self.0.as_str()))
    }

    fn rename_all(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.rename(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.rename_all(item)).collect(),
            Value::Object(map) => map.into_iter().map(|(key, value)| (key, self.rename_all(value))).collect(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> NonDefaultHome {
        NonDefaultHome::new(&MountName::parse("my-code").expect("a name")).expect("another home")
    }

    #[test]
    fn only_whole_names_are_renamed() {
        for (text, renamed) in [
            ("`/shared` and `/shared/a.md`", "`/my-code` and `/my-code/a.md`"),
            ("/shared-2 /shared2 /shared_x", "/shared-2 /shared2 /shared_x"),
            ("$PORTCULLIS_SHARED", "$PORTCULLIS_MY_CODE"),
            ("shared files in /shared", "shared files in /my-code"),
            ("", ""),
        ] {
            assert_eq!(home().rename(text), renamed);
        }
        assert_eq!(NonDefaultHome::new(&MountName::shared()), None);
    }

    #[test]
    fn a_schema_keeps_its_shape() {
        let schema =
            serde_json::json!({"path": {"default": "/shared", "enum": ["/shared", 1]}, "/shared": true});
        let renamed =
            serde_json::json!({"path": {"default": "/my-code", "enum": ["/my-code", 1]}, "/shared": true});
        assert_eq!(home().rename_all(schema), renamed);
    }
}
