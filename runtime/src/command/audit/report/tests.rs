//! Tests of a report.
