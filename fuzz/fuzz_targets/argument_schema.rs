//! Fuzzes the reader of argument schemas, as a foreign module declares them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_testing::oracles::arguments as oracle;

fuzz_target!(|input: &[u8]| oracle::check_schema(input));
