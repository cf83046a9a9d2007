//! What `#[tool]` and `export_tools!` accept, and what they say where they do not.
//!
//! `ui/fail` holds one mistake per file, named after it, with the compiler's whole output beside it.
//! `TRYBUILD=overwrite cargo test -p portcullis-sdk --test ui` writes that output anew; read the difference.

/// In one, so that what they depend on is compiled once: mistakes alone would be checked only, and programs built.
#[test]
fn mistakes_are_reported_in_place_and_what_is_right_runs() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
