//! The file with the sizes of records. It has one line per record: its id and its size in bytes. The size of
//! a record without a line is measured when it is needed, so a lost line only costs time.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// The maximum number of bytes that are read from the file: 1 MiB. A line has about 30 bytes.
const MAX_BYTES: u64 = 1 << 20;

const SIZES: &str = "sizes";

/// Returns the sizes in a store's folder by record id. Ignores malformed lines.
pub(crate) fn read(folder: &Path) -> BTreeMap<String, u64> {
    let mut text = String::new();
    if let Ok(file) = File::open(folder.join(SIZES)) {
        // Lines that were read before an error still count.
        let _ = file.take(MAX_BYTES).read_to_string(&mut text);
    }
    let entry = |line: &str| {
        let (id, bytes) = line.split_once(' ')?;
        Some((id.to_owned(), bytes.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// Appends a line. Several processes can do so concurrently.
pub(crate) fn add(folder: &Path, id: &str, bytes: u64) {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(SIZES));
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{id} {bytes}\n").as_bytes())) {
        tracing::warn!(%error, "the size of a record of changes was not written");
    }
}

/// Replaces all lines. A line that another process appends meanwhile is lost.
pub(crate) fn rewrite(folder: &Path, sizes: &BTreeMap<String, u64>) {
    let lines: String = sizes.iter().map(|(id, bytes)| format!("{id} {bytes}\n")).collect();
    let temporary = folder.join(format!("{SIZES}.{}", std::process::id()));
    let written = fs::write(&temporary, lines).and_then(|()| fs::rename(&temporary, folder.join(SIZES)));
    if let Err(error) = written {
        tracing::warn!(%error, "the sizes of records of changes were not written");
    }
}
