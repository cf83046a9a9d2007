//! Hostile guest: makes cheap host calls forever, so its own code is rarely interrupted.

use std::time::Instant;

use portcullis_sdk::tool;

/// Asks for the time forever.
#[tool]
async fn loop_in_host_calls() -> String {
    loop {
        std::hint::black_box(Instant::now());
    }
}

portcullis_sdk::export_tools![loop_in_host_calls];
