//! The providers: models behind HTTP, and a script for tests and the demonstration.
//!
//! | file | what it is |
//! |---|---|
//! | `settings.rs` | which model, where, and what an answer may cost |
//! | `key.rs` | a key, which nothing prints |
//! | `remote.rs` | [`RemoteProvider`]: one request, its retries, the answer as it comes |
//! | `connection.rs` | the HTTP client: whom it trusts, and that it follows nobody elsewhere |
//! | `connector.rs` | how a connection is made: directly, or by a proxy |
//! | `refusal.rs` | what a status that is no answer means |
//! | `retry.rs` | when to ask again |
//! | `answer.rs` | the pieces of an answer out of a response |
//! | `decoder.rs` | the pieces of an answer out of bytes, within bounds |
//! | `frames.rs` | events out of bytes: server-sent events, or a line each |
//! | `wire/` | what each provider speaks |
//! | `scripted.rs` | [`ScriptedProvider`]: a model that says what is written down |

mod answer;
mod connection;
mod connector;
mod decoder;
mod frames;
mod key;
mod refusal;
mod remote;
mod retry;
mod scripted;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

pub use key::ApiKey;
pub use remote::RemoteProvider;
pub use scripted::{ScriptError, ScriptedProvider};
pub use settings::{ProviderKind, ProviderLimits, ProviderSettings, StrictTools};
