//! Tests of the numbers.
