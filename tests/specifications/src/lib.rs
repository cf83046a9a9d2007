//! Programs that were written for the interfaces of the specifications, compiled against what a program imports that
//! was written for one of them, and run through the pipeline.
//!
//! The programs are our own, in `fixtures/`. Where the specifications lie beside the repository, in
//! `../shared/specs`, the build script reads their own examples out of them, and the same tests run on these, as they
//! stand, as well, in the module `documents`. The repository has none of that text.
//!
//! There is nothing here but tests. A crate of its own, because the examples are of an older edition.
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

/// The tests on programs of our own.
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
