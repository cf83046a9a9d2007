//! Checks the fuzz targets' properties for their seeds and for past findings of fuzzers, under `cargo test`.

use std::{fs, path::Path};

use portcullis_testing::oracles::{arguments, frames};

#[test]
fn seeds_of_argument_decoder_hold() {
    replay("argument_decoder", arguments::check_arguments);
}

#[test]
fn seeds_of_argument_schema_hold() {
    replay("argument_schema", arguments::check_schema);
}

#[test]
fn seeds_of_guest_frames_hold() {
    replay("guest_frames", frames::check_round_trip);
}

#[track_caller]
fn replay(target: &str, oracle: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut seeds = 0;
    for entry in fs::read_dir(&folder).expect("seeds") {
        let path = entry.expect("readable").path();
        let seed = fs::read(&path).expect("readable");
        let result = std::panic::catch_unwind(|| oracle(&seed));
        assert!(result.is_ok(), "{} does not hold", path.display());
        seeds += 1;
    }
    assert!(seeds >= 5, "{target} has {seeds} seeds");
}
