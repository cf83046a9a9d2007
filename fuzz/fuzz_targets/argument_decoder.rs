//! Fuzzes the argument decoder with text as a model could write it. The first byte selects a schema, the rest
//! is the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_testing::oracles::arguments as oracle;

fuzz_target!(|input: &[u8]| oracle::check_arguments(input));
