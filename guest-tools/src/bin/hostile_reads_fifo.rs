//! Hostile guest: opens a path that can be a pipe or a device, and reads it to its end.

use std::{fs::File, io::Read};

use portcullis_sdk::tool;

/// Opens a path of any kind, and reports the number of bytes read or the system's error.
#[tool]
async fn reads_fifo(path: &str) -> String {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(count) => format!("read {count} bytes"),
        Err(error) => format!("error: {error}"),
    }
}

portcullis_sdk::export_tools![reads_fifo];
