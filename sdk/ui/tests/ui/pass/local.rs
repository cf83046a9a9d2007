//! A tool whose future stays on its thread.

use std::rc::Rc;

use portcullis_sdk::{Tool, ToolContext, ToolError, testing::call, tool};

/// Stays on its thread.
#[tool(local)]
async fn local(ctx: &ToolContext, path: String, times: Option<u8>) -> Result<String, ToolError> {
    let shared = Rc::new(path);
    std::future::ready(()).await;
    ctx.progress("half way");
    if times == Some(0) {
        return Err(ToolError::failed("none"));
    }
    Ok(shared.repeat(usize::from(times.unwrap_or(1))))
}

fn sendable<T: Send>(value: T) -> T {
    value
}

fn main() {
    assert_eq!(call(&local_tool(), r#"{"path":"a","times":2}"#).unwrap().joined_text(), "aa");
    assert_eq!(call(&local_tool(), r#"{"path":"a","times":0}"#).unwrap_err().message(), "none");
    drop(sendable(local_tool().execute("{}")));
}
