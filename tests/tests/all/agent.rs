//! A model that uses the tools: the demonstration, and `portcullis agent` against a fake model server.

mod capabilities;
mod command_line;
mod conversation;
mod demo;
mod durable;
pub(crate) mod external;
mod gateway;
pub(crate) mod model;
mod postgres;
mod programs;
mod refused;
mod terminal;
