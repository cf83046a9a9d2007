//! Values of the wrong kind for their keys.

use portcullis_sdk::tool;

#[tool(
    name = 5,
    label = Echo,
    timeout = 20,
    output_cap = 4096,
    deny_unknown = true,
    hidden(yes),
    aliases(),
    crate = portcullis_sdk
)]
async fn values(
    #[arg(path = read)] file: String,
    #[arg(url = "get")] address: String,
    #[arg(one_of())] unit: String,
    #[arg(one_of = "metres")] other: String,
) {
    let _ = (file, address, unit, other);
}

#[tool(label = " ", aliases("before", 5))]
async fn texts(#[arg(one_of("metres", "feet", "metres"))] unit: String) {
    let _ = unit;
}

#[tool(label = "", aliases = "before")]
async fn more_texts(#[arg(one_of("metres", 3))] unit: String) {
    let _ = unit;
}

fn main() {}
