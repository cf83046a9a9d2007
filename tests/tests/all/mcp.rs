//! The MCP server, tested with raw messages: the real program on its standard streams and over HTTP, and the
//! library with tools that the program does not have.

mod approvals;
mod arguments;
mod client;
mod external;
mod guests;
mod hostile;
mod http;
mod lifecycle;
mod reports;
mod shells;
mod stopping;
mod streams;
