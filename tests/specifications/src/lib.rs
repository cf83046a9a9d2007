//! Tests of programs for the interfaces of the specifications: the programs compile against the names that
//! the specifications import, and run through the pipeline.
//!
//! The programs in `fixtures/` are ours. If the specifications are beside the repository, in
//! `../shared/specs`, the build script extracts their examples, and the module `documents` runs the same
//! tests on the unchanged examples. The repository has none of that text.
//!
//! This crate has only tests. It is a separate crate because the examples use an older edition.
#![forbid(unsafe_code)]

#[cfg(test)]
mod alone;
#[cfg(test)]
mod extract;
#[cfg(test)]
mod messages_api;
#[cfg(test)]
mod presence;
#[cfg(test)]
mod support;

/// The tests on our programs.
#[cfg(test)]
#[path = "."]
mod fixtures {
    macro_rules! example {
        ($name:literal) => {
            include!(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/", $name));
        };
    }
    macro_rules! example_text {
        ($name:literal) => {
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/", $name))
        };
    }

    mod spec_000;
    mod spec_002;
    mod spec_002_agent;
    mod spec_004;
}

/// The same tests on the documents' own examples.
#[cfg(test)]
#[cfg(specifications)]
#[expect(clippy::duplicate_mod, reason = "the same tests, on other programs")]
#[path = "."]
mod documents {
    macro_rules! example {
        ($name:literal) => {
            include!(concat!(env!("OUT_DIR"), "/", $name));
        };
    }
    macro_rules! example_text {
        ($name:literal) => {
            include_str!(concat!(env!("OUT_DIR"), "/", $name))
        };
    }

    mod spec_000;
    mod spec_002;
    mod spec_002_agent;
    mod spec_004;
}
