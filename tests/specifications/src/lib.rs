//! Programs for the interfaces of the specifications, compiled against the names that such a program imports,
//! and run through the pipeline.
//!
//! The programs are ours, in `fixtures/`. Where the specifications are beside the repository, in
//! `../shared/specs`, the build script extracts their examples, and the same tests run on these, unchanged,
//! in the module `documents`. The repository has none of that text.
//!
//! This crate has only tests. It is a separate crate because the examples are of an older edition.
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
