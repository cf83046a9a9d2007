//! If warnings are errors, each tool without documentation is one error.
#![deny(warnings)]

use portcullis_sdk::{export_tools, tool};

#[tool]
async fn nothing_said() {}

/// Documentation of something else.
mod inner {
    #[portcullis_sdk::tool(name = "blank", hidden, tier = ReadOnly)]
    ///
    #[doc(hidden)]
    pub(crate) async fn nothing_readable(
        /// A parameter's documentation says nothing of the tool.
        text: String,
    ) -> String {
        text
    }
}

macro_rules! make {
    ($name:ident) => {
        #[tool]
        async fn $name() {}
    };
}

make!(made);

export_tools![nothing_said, inner::nothing_readable, made];
