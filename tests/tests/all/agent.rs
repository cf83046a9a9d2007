//! A model at work with the tools: the demonstration, and `portcullis agent` against a server that plays a
//! model.

mod command_line;
mod demo;
mod model;
mod programs;
mod refused;
mod terminal;
