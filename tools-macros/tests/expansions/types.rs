/// Which files.
#[args(deny_unknown)]
struct Filter {
    glob: String,
    #[serde(default = "ten")]
    max_hits: u8,
}

#[args]
#[serde(rename_all = "snake_case")]
enum Order {
    /// A to Z.
    ByName,
    BySize,
}
