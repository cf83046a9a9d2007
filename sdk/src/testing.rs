//! Tests of a tool: [`Case`] makes one call natively, and also in the sandbox if `portcullis tool test` runs
//! the tests. [`call`] and [`with_root`] run a tool only natively.
//!
//! ```
//! use portcullis_sdk::{ToolError, ToolErrorKind, fs, serde_json::json, testing::Case, tool};
//!
//! /// Counts the bytes of a file.
//! #[tool(tier = ReadOnly)]
//! async fn size(#[arg(path = "read")] path: &str) -> Result<String, ToolError> {
//!     let path = fs::parse(path)?;
//!     let bytes = std::fs::read(fs::locate(&path)?).map_err(|error| fs::tool_error(error, "read", &path))?;
//!     Ok(bytes.len().to_string())
//! }
//!
//! # fn main() {
//! let tool = size_tool();
//! let case = |path: &str| Case::new(&tool, json!({"path": path})).reads("shared").file("/shared/a", "four");
//! case("/shared/a").expect_text("4");
//! case("/shared/b").expect_error(ToolErrorKind::NotFound);
//! case("/vault/a").expect_error(ToolErrorKind::Denied);
//! # }
//! ```
//!
//! Only natively:
//!
//! ```
//! use portcullis_sdk::{testing, tool, ToolError, GuestPath};
//!
//! /// Counts the bytes of a file.
//! #[tool(tier = ReadOnly)]
//! async fn count(#[arg(path = "read")] path: String) -> Result<String, ToolError> {
//!     let path = GuestPath::parse(&path).map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
//!     let bytes = std::fs::read(portcullis_sdk::fs::locate(&path)?)?;
//!     Ok(bytes.len().to_string())
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let folder = std::env::temp_dir().join(format!("portcullis-doc-{}", std::process::id()));
//! std::fs::create_dir_all(folder.join("shared"))?;
//! std::fs::write(folder.join("shared/a.txt"), "four")?;
//! let output = testing::with_root(&folder, || testing::call(&count_tool(), r#"{"path":"a.txt"}"#));
//! assert_eq!(output.expect("counts").joined_text(), "4");
//! # std::fs::remove_dir_all(folder)
//! # }
//! ```

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use portcullis_types::{ToolContext, ToolError, ToolOutput};

use crate::DeclaredTool;

pub use crate::http::fake::{FakeResponse, with_http};

mod case;
mod folder;
mod grants;
mod sandbox;

pub use case::{Case, RunMode};

thread_local! {
    static ROOT: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Runs `body` with guest paths mapped to the host: `/shared` is the folder `shared` below `root`, and so on.
///
/// The mapping applies to this thread until `body` returns or panics, so tests on other threads are not affected.
pub fn with_root<T>(root: impl AsRef<Path>, body: impl FnOnce() -> T) -> T {
    struct Restore(Option<PathBuf>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ROOT.with_borrow_mut(|root| *root = self.0.take());
        }
    }
    let earlier_root = ROOT.with_borrow_mut(|current| current.replace(root.as_ref().to_owned()));
    // Restores the earlier root even if `body` panics.
    let _restore = Restore(earlier_root);
    body()
}

/// Runs a tool on the JSON text of its arguments and waits for its result.
///
/// # Errors
/// The tool's error.
pub fn call(tool: &dyn DeclaredTool, arguments: &str) -> Result<ToolOutput, ToolError> {
    call_in(&ToolContext::detached(tool.spec().name), tool, arguments)
}

/// Like [`call`], in a context that the test provides.
///
/// # Errors
/// The tool's error.
pub fn call_in(ctx: &ToolContext, tool: &dyn DeclaredTool, arguments: &str) -> Result<ToolOutput, ToolError> {
    pollster::block_on(tool.run(ctx, arguments))
}

/// Returns the folder that tools see as `/`, if a test has set one.
pub(crate) fn root() -> Option<PathBuf> {
    ROOT.with_borrow(Clone::clone)
}
