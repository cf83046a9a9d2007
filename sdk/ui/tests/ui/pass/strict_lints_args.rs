//! An `#[args]` type in a crate with the strictest lints.

#![deny(missing_docs, missing_debug_implementations)]
#![deny(unreachable_pub, unnameable_types, unused, warnings, nonstandard_style, future_incompatible)]
#![deny(elided_lifetimes_in_paths, unused_lifetimes, unused_qualifications, let_underscore)]
#![forbid(unsafe_code)]

use portcullis_sdk::{Json, args, tool};

/// A filter.
#[args(deny_unknown)]
#[derive(Debug)]
pub struct Filter {
    /// A pattern.
    pub glob: String,
    /// A bound.
    #[serde(default)]
    pub bound: u8,
    /// How.
    pub order: Option<Order>,
}

/// An order.
#[args]
#[derive(Debug, Clone, Copy, Default)]
pub enum Order {
    /// Up.
    #[default]
    Up,
    /// So far.
    Until {
        /// How far.
        #[serde(default)]
        bound: u8,
    },
}

/// Public.
#[tool(tier = ReadOnly)]
pub async fn open(
    /// Documented.
    filter: Filter,
    /// Documented.
    #[arg(default)]
    order: Order,
) -> Result<Json<Filter>, portcullis_sdk::ToolError> {
    let _order = order;
    Ok(Json(filter))
}

fn main() {
    let _tool = open_tool();
}
