//! Lint levels silence the warning about a tool without documentation.
#![deny(warnings)]

use portcullis_sdk::tool;

/// Has documentation.
#[tool]
async fn documented() {}

#[tool]
#[allow(deprecated)]
async fn allowed() {}

#[expect(deprecated, reason = "nobody reads it")]
#[tool]
async fn expected() {}

#[allow(deprecated)]
mod around {
    #[portcullis_sdk::tool]
    pub(crate) async fn inside() {}
}

#[tool]
#[cfg(any())]
async fn elsewhere() {}

fn main() {
    assert_eq!(__tool_function_decl_documented().description.as_deref(), Some("Has documentation."));
    for decl in [
        __tool_function_decl_allowed(),
        __tool_function_decl_expected(),
        around::__tool_function_decl_inside(),
    ] {
        assert_eq!(decl.description, None, "{}", decl.name);
    }
}
