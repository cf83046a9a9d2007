//! Tests of bundles and their limits. `tests/tests/all/audit/bundled.rs` tests them through the program.

use super::*;
use crate::{
    BundleError, BundleRequest, SEGMENTS_DIR, SignedCheckpoint, VerifierKey, check_bundle, write_bundle,
};

/// Creates a log with two sealed segments, and the request for a bundle of all its rows.
fn request(dir: &Path, log: &Path, check: impl FnOnce(BundleRequest<'_>)) {
    let writer = open(dir);
    for id in ["a", "b"] {
        writer.append(&end(id)).expect("appends");
        writer.seal().expect("seals");
    }
    let checkpoint = writer.checkpoint().expect("a checkpoint");
    let key = VerifierKey::of_state(dir).expect("reads").expect("a key");
    let anchors = Vec::new();
    check(BundleRequest { log, checkpoint, key, anchors, is_disclosed: &|_| true, files: Vec::new() });
}

fn write(request: &BundleRequest<'_>) -> Result<Vec<u8>, BundleError> {
    let mut bundle = Vec::new();
    write_bundle(&mut bundle, request).map(|_| bundle)
}

/// Returns the names of the checkpoints in a bundle.
fn checkpoints(bundle: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(bundle);
    let entries = archive.entries().expect("an archive").map(|entry| {
        let entry = entry.expect("an entry");
        entry.path().expect("a path").to_string_lossy().into_owned()
    });
    entries.filter(|name| name.starts_with("notes/")).collect()
}

#[test]
fn a_bundle_has_as_many_new_checkpoints_as_its_check_accepts() {
    let dir = tempfile::tempdir().expect("a folder");
    request(dir.path(), &log_path(dir.path()), |request| {
        let bundle = write(&request).expect("writes");
        assert_eq!(checkpoints(&bundle), ["notes/4.note", "notes/1.note", "notes/3.note"]);
        let report = check_bundle(&*bundle, None, &[]).expect("a bundle");
        assert_eq!((report.faults, report.checkpoints), (Vec::<String>::new(), 3));

        // A log with a great many segments, of which only the newest are included.
        let folder = dir.path().join(SEGMENTS_DIR);
        let note = fs::read(folder.join("000001-1-1.note")).expect("reads");
        for number in 0..10_000 {
            fs::write(folder.join(format!("{:06}-1-1.note", 100 + number)), &note).expect("writes");
        }
        let names = checkpoints(&write(&request).expect("writes"));
        assert_eq!((names.len(), names[0].as_str()), (10_000, "notes/4.note"));
        assert_eq!(names.iter().filter(|name| *name == "notes/3.note").count(), 0);
    });
}

#[test]
fn more_given_checkpoints_than_a_bundle_has_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    request(dir.path(), &log_path(dir.path()), |mut request| {
        let given: Vec<SignedCheckpoint> = vec![request.checkpoint.clone(); 10_000];
        request.anchors = given[..9_999].to_vec();
        assert_eq!(checkpoints(&write(&request).expect("writes")).len(), 10_000);
        request.anchors = given;
        let error = write(&request).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "at most 9999 checkpoints can be given; give fewer, such as the newest one"
        );
    });
}
