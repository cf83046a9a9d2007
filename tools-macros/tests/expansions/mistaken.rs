#[tool(tier = Readonly)]
fn mistaken(path: PathBuf) -> String {
    String::new()
}
