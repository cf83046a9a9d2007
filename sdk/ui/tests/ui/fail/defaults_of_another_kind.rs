//! Defaults and bounds whose kind or suffix does not fit the parameter.

use portcullis_sdk::tool;

#[tool]
async fn defaults_of_another_kind(
    #[arg(default = 5)] text: String,
    #[arg(default = true)] lent: &str,
    #[arg(default = 1)] flag: bool,
    #[arg(default = "yes")] other: bool,
    #[arg(default = 1u16)] narrow: u8,
    #[arg(min = -1i64)] signed: i32,
    #[arg(default = 1.0f64)] ratio: f32,
    #[arg(max = 0.5f32)] exact: f64,
) {
    let _ = (text, lent, flag, other, narrow, signed, ratio, exact);
}

fn main() {}
