//! The folders that a call is lent, and what a policy would say of a call that has no more.

use std::collections::BTreeMap;

use portcullis_types::{Access, GuestPath, RoleKind, ToolError};
use serde_json::Value;

use crate::{DefaultValue, ParamSpec, Presence, ToolSpec};

/// Mounts by name, with what may be done with them.
#[derive(Debug, Clone, Default)]
pub(super) struct Lent(BTreeMap<String, Access>);

impl Lent {
    pub(super) fn lend(&mut self, mount: &str, access: Access) {
        self.0.insert(mount.to_owned(), access);
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// As the `mounts` of a profile.
    pub(super) fn as_toml(&self) -> String {
        let mounts: Vec<String> =
            self.0.iter().map(|(name, access)| format!("{name} = \"{access}\"")).collect();
        format!("{{ {} }}", mounts.join(", "))
    }

    /// Holds what the arguments name by their roles against what is lent. Arguments that are none are the
    /// tool's to refuse.
    pub(super) fn judge(&self, tool: &ToolSpec, arguments: &Value) -> Result<(), ToolError> {
        for param in tool.params {
            let (Some(role), Some(text)) = (param.role, named(param, arguments)) else { continue };
            match role {
                RoleKind::Path(access) => {
                    if let Ok(path) = GuestPath::parse(&text) {
                        self.check(&path, access)?;
                    }
                }
                RoleKind::Url | RoleKind::Command => {
                    return Err(ToolError::denied(format!("`{text}` is not granted")));
                }
            }
        }
        Ok(())
    }

    fn check(&self, path: &GuestPath, wanted: Access) -> Result<(), ToolError> {
        let lent = path.mount().filter(|_| !path.climbs_out()).and_then(|mount| self.0.get(mount));
        match lent {
            Some(access) if *access >= wanted => Ok(()),
            Some(_) => Err(ToolError::denied(format!("`{path}` is read-only for this tool"))),
            None => Err(ToolError::denied(format!("`{path}` is in no folder that this tool was lent"))),
        }
    }
}

/// What an argument says; its default where it is left out.
fn named(param: &ParamSpec, arguments: &Value) -> Option<String> {
    match arguments.get(param.name) {
        Some(Value::String(text)) => Some(text.clone()),
        None | Some(Value::Null) => match &param.presence {
            Presence::Default(DefaultValue::String(text)) => Some((*text).to_owned()),
            _ => None,
        },
        Some(_) => None,
    }
}
