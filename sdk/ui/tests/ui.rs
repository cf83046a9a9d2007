//! The code that `#[tool]` and `export_tools!` accept, and their messages for other code.
//!
//! `ui/fail` holds one mistake per file, named after it, with the compiler's whole output beside it.
//! `TRYBUILD=overwrite cargo test -p portcullis-sdk-ui --test ui` rewrites that output; review the difference.

/// Separate from the passing cases: one run of cargo checks all mistakes together, but builds programs one by
/// one.
#[test]
fn mistakes_are_reported_once_and_in_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}

#[test]
fn valid_tools_compile_and_run() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
