//! Invalid bounds of floating-point numbers.

use portcullis_sdk::tool;

#[tool]
async fn floats(
    #[arg(min = 0)] whole: f64,
    #[arg(min = 1.0, max = 0.5)] swapped: f32,
    #[arg(default = 2.0, max = 1.0)] outside: f64,
    #[arg(min = "0.5")] text: f64,
) -> String {
    format!("{whole} {swapped} {outside} {text}")
}

fn main() {}
