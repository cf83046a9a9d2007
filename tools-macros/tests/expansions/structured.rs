#[tool(aliases("grep_files"), idempotent, output_cap = "4KiB")]
async fn search(
    filters: Vec<Filter>,
    #[arg(default)] order: Order,
    #[arg(default = vec![1])] numbers: Vec<u8>,
    tags: Option<HashMap<String, (bool, Value)>>,
) -> Json<Hits> {
    hits(filters, order, numbers, tags)
}
