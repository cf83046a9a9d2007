//! The providers: models behind HTTP, and a script for tests and the demonstration.
//!
//! | file | what it is |
//! |---|---|
//! | `settings.rs` | model, address, and limits of a response |
//! | `key.rs` | a key that is never printed |
//! | `remote.rs` | [`RemoteProvider`]: one request, its retries, the response as it arrives |
//! | `connection.rs` | the HTTP client: trusted certificates, no redirects, proxies |
//! | `connector.rs` | opens a connection: directly, or through a proxy |
//! | `failure.rs` | turns failures and error statuses into errors |
//! | `retry.rs` | when a request is sent again |
//! | `response.rs` | turns an HTTP response into the pieces of the model's response |
//! | `decoder.rs` | decodes bytes into the pieces of a response, within limits |
//! | `event_splitter.rs` | splits bytes into events: server-sent events, or JSON lines |
//! | `wire/` | the protocol of each provider |
//! | `scripted.rs` | [`ScriptedProvider`]: a model that follows a script |

mod connection;
mod connector;
mod decoder;
mod event_splitter;
mod failure;
mod key;
mod remote;
mod response;
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
