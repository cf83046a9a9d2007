/// Reads the contents of a file at the given path.
#[tool(tier = ReadOnly, timeout = "10s", deny_unknown)]
pub async fn file_read(
    ctx: &ToolContext,
    /// Where it is.
    #[arg(path = "read")]
    path: &str,
    #[arg(default = 1, min = 1)] offset: u64,
    limit: Option<u64>,
) -> Result<String, ToolError> {
    read(ctx, path, offset, limit)
}
