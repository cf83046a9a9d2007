//! The specifications' own examples: the build script reads them out of `../shared/specs` beside the
//! repository, which has none of that text, and they are compiled here as they stand, against what a program
//! imports that was written for one of those interfaces. Then they run through the pipeline.
//!
//! Where the specifications are not there, nothing of this is compiled and one test says so; on CI it fails.
//! There is nothing here but tests. A crate of its own, because the examples are of an older edition.
#![forbid(unsafe_code)]

#[cfg(all(test, specifications))]
mod alone;
#[cfg(test)]
mod extract;
#[cfg(all(test, specifications))]
mod messages_api;
#[cfg(test)]
mod presence;
#[cfg(all(test, specifications))]
mod spec_000;
#[cfg(all(test, specifications))]
mod spec_002;
#[cfg(all(test, specifications))]
mod spec_002_agent;
#[cfg(all(test, specifications))]
mod spec_004;
#[cfg(all(test, specifications))]
mod support;
