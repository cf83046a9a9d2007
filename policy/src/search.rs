//! `[search]`: the provider that `web_search` queries, and the provider's address.
//!
//! - `provider`: the known providers, and what each needs.
//! - `settings`: the section, with every default filled in.

mod provider;
mod settings;

pub use provider::SearchProvider;
pub use settings::{InvalidSearchUrl, SearchSettings, SearchUrl};

pub(crate) use settings::{idle_search, parse_engine, reduce_search, write_search};
