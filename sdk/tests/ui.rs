//! What `#[tool]` and `export_tools!` accept, and what they say where they do not.
//!
//! `ui/fail` holds one mistake per file, named after it, with the compiler's whole output beside it.
//! `TRYBUILD=overwrite cargo test -p portcullis-sdk --test ui` writes that output anew; read the difference.

/// Apart from what is right: mistakes alone are all checked by one run of cargo, and programs are built one by one.
#[test]
fn mistakes_are_reported_once_and_in_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}

#[test]
fn what_is_right_compiles_and_runs() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
