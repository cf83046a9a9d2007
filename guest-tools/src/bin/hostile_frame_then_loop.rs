//! Hostile guest: sends its result and then does not exit.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers, then computes forever.
#[tool]
async fn frame_then_loop() -> Result<String, ToolError> {
    let mut stdout = std::io::stdout();
    stdout.write_all(b"{\"ok\":\"answered\"}\n")?;
    stdout.flush()?;
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number.wrapping_add(1));
    }
}

portcullis_sdk::export_tools![frame_then_loop];
