//! Tests of the accumulator.
