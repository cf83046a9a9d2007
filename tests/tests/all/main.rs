//! All cross-crate tests, in one binary: linking the engine once is enough.

mod adapters;
mod agent;
mod approval;
mod audit;
mod authoring;
mod core_tools;
mod embedding;
mod files;
mod flow;
mod hints;
mod hostile;
mod json_schema_suite;
mod languages;
mod mcp;
mod modules;
mod natives;
mod ordinary;
mod person;
mod pipeline;
mod policy;
mod seeds;
mod serving;
mod shell;
mod support;
mod terminal;
mod vault;
