//! Hostile guest: computes forever without a host call.

use portcullis_sdk::tool;

/// Computes forever.
#[tool]
async fn loop_forever() -> String {
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number.wrapping_add(1));
    }
}

portcullis_sdk::export_tools![loop_forever];
