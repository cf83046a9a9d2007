//! Whether the specifications were found when this crate was built.

/// Why their examples could not be read, if the specifications were found.
const PROBLEM: Option<&str> = option_env!("PORTCULLIS_SPECIFICATIONS_PROBLEM");

#[test]
fn missing_specifications_are_reported_as_skipped() {
    if let Some(problem) = PROBLEM {
        panic!("the specifications' examples cannot be read: {problem}");
    }
    if cfg!(specifications) {
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/specs");
    assert!(!folder.is_dir(), "they came after the build: `touch tests/specifications/build.rs`");
    println!("skipped: there is no `../shared/specs` beside the repository; the fixtures are tested alone");
}
