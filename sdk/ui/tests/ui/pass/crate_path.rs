//! The facade re-exported by another crate, and a context under another name.

mod reexport {
    pub mod tools {
        pub use portcullis_sdk::*;
    }
}

use reexport::tools::{ToolContext as Call, args, testing::call, tool};

#[args(crate = "crate::reexport::tools")]
struct Filter {
    glob: String,
}

/// Searches.
#[tool(crate = "crate::reexport::tools")]
async fn search(#[ctx] call: &Call, filter: Filter) -> String {
    format!("{} {}", call.tool_name, filter.glob)
}

fn main() {
    assert_eq!(call(&search_tool(), r#"{"filter":{"glob":"*"}}"#).unwrap().joined_text(), "search *");
}
