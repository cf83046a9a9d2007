//! The built-in tools of the gateway as a policy needs them: their names, origins and declared tiers. A
//! process without a gateway does not register them, and other tools may use their names there.

use portcullis_types::{SafetyTier, ToolName};

use crate::{ToolDescriptor, ToolOrigin};

use SafetyTier::{ReadOnly, SideEffecting};
use ToolOrigin::{ShippedGateway, ShippedNative};

/// All built-in tools of the gateway, sorted by name. `enter_space` counts as side-effecting, because it decides where
/// later calls are shown.
const ALL: &[(&str, ToolOrigin, SafetyTier)] = &[
    ("delete_goals", ShippedNative, SideEffecting),
    ("delete_memories", ShippedNative, SideEffecting),
    ("delete_plans", ShippedNative, SideEffecting),
    ("enter_space", ShippedGateway, SideEffecting),
    ("get_plans", ShippedNative, ReadOnly),
    ("leave_space", ShippedNative, SideEffecting),
    ("read_messages", ShippedGateway, ReadOnly),
    ("send_message", ShippedGateway, SideEffecting),
    ("set_goals", ShippedNative, SideEffecting),
    ("set_memories", ShippedNative, SideEffecting),
    ("set_plans", ShippedNative, SideEffecting),
    ("skip", ShippedNative, ReadOnly),
];

/// Returns the names of the gateway's built-in tools, sorted.
pub fn gateway_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, ..)| *name)
}

/// Returns the origin of a built-in tool of the gateway, or `None` for any other name.
#[must_use]
pub fn gateway_tool_origin(name: &str) -> Option<ToolOrigin> {
    ALL.iter().find(|(known, ..)| *known == name).map(|(_, origin, _)| *origin)
}

/// Returns the descriptors of the gateway's built-in tools, sorted by name.
///
/// # Panics
/// Never: the names are valid.
pub fn gateway_tools() -> impl Iterator<Item = ToolDescriptor> {
    ALL.iter().map(|&(name, origin, tier)| ToolDescriptor {
        declared_tier: Some(tier),
        ..ToolDescriptor::undeclared(ToolName::parse(name).expect("the built-in names are valid"), origin)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped_names;

    #[test]
    fn the_names_are_sorted_and_no_other_shipped_tool_has_one() {
        assert!(gateway_names().is_sorted());
        assert!(gateway_names().all(|name| shipped_names().all(|shipped| shipped != name)));
        assert_eq!(gateway_tools().count(), 12);
    }
}
