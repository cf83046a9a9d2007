//! Schemas of arguments, as a stranger's module brings them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/oracles/arguments.rs"]
mod oracle;

fuzz_target!(|input: &[u8]| oracle::schema(input));
