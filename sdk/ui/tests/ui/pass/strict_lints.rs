//! A tool in a crate with the strictest lints.

#![deny(missing_docs, missing_debug_implementations, missing_copy_implementations)]
#![deny(unreachable_pub, unnameable_types, unused, warnings, nonstandard_style, future_incompatible)]
#![deny(elided_lifetimes_in_paths, unused_lifetimes, unused_qualifications, single_use_lifetimes, let_underscore)]
#![forbid(unsafe_code)]

use portcullis_sdk::tool;

/// Public.
#[tool(tier = ReadOnly)]
pub async fn open(
    /// Documented.
    path: &str,
) -> Result<String, portcullis_sdk::ToolError> {
    Ok(path.to_owned())
}

/// No list exports it.
#[tool]
async fn unused_tool_is_no_dead_code() {}

mod inner {
    //! Inner.

    /// For the crate.
    #[portcullis_sdk::tool]
    pub(crate) async fn internal(number: u8) -> String {
        number.to_string()
    }

    /// Only elsewhere.
    #[portcullis_sdk::tool]
    #[cfg(any())]
    pub(crate) async fn elsewhere(number: ThisTypeDoesNotExist) {}
}

fn main() {
    let _ = inner::internal_tool();
}
