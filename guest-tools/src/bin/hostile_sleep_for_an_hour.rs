//! Hostile guest: waits inside one host call (`poll_oneoff`).

use std::time::Duration;

use portcullis_sdk::tool;

/// Sleeps.
#[tool]
async fn sleep_for_an_hour(#[arg(default = 3600)] seconds: u64) -> String {
    std::thread::sleep(Duration::from_secs(seconds));
    format!("slept {seconds} seconds")
}

portcullis_sdk::export_tools![sleep_for_an_hour];
