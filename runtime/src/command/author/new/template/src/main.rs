//! The tool `TEMPLATE_TOOL`, and the module that it is called in.

use portcullis_sdk::{ToolError, export_tools, fs, tool};

/// Counts the lines of a text file.
///
/// Say here what the tool does: a model decides by this text when to call it.
#[tool(name = "TEMPLATE_TOOL", tier = ReadOnly, timeout = "5s", deny_unknown)]
async fn TEMPLATE_FUNCTION(
    /// The file, such as `/shared/notes.md`.
    #[arg(path = "read")]
    path: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    let text = std::fs::read_to_string(fs::locate(&path)?).map_err(|error| fs::tool_error(error, "read", &path))?;
    Ok(format!("{} lines", text.lines().count()))
}

export_tools![TEMPLATE_FUNCTION];

#[cfg(test)]
mod tests {
    use portcullis_sdk::{ToolErrorKind, serde_json::json, testing::Case};

    use super::TEMPLATE_FUNCTION_tool;

    /// Each case makes its call natively, and under `portcullis tool test` in the sandbox too.
    #[test]
    fn lent_files_alone_are_counted() {
        let tool = TEMPLATE_FUNCTION_tool();
        let case = |path: &str| {
            Case::new(&tool, json!({"path": path})).reads("shared").file("/shared/notes.md", "one\ntwo\n")
        };
        case("/shared/notes.md").expect_text("2 lines");
        case("/shared/other.md").expect_error(ToolErrorKind::NotFound);
        // A path in a folder that was not granted is refused before the tool runs.
        case("/etc/passwd").expect_error(ToolErrorKind::Denied);
        case("/vault/secret").expect_error(ToolErrorKind::Denied);
    }
}
