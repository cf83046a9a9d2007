//! Tests of the stream of events.
