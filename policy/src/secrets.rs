//! The secrets of a policy: the source of each value, and the requests and tools that carry it. The value itself never
//! enters this crate.
//!
//! - `source`: the source of a value; `header`: the header that carries the value.
//! - `rule`: one `[secrets.NAME]`, resolved; `conflict`: conflicts between secrets.
//! - `reduce`, `render`: reduce secrets, and write them as text.
//! - `grant`: the secrets of a grant, and those that a request carries.

mod conflict;
mod grant;
mod header;
mod reduce;
mod render;
mod rule;
mod source;

pub use grant::GrantedSecret;
pub use header::{InvalidSecretHeader, SecretHeader};
pub use rule::SecretRule;
pub use source::{InvalidSecretSource, SecretSource};

pub(crate) use conflict::{check_environment, check_headers};
pub(crate) use reduce::reduce_secrets;
pub(crate) use render::{write_secrets, write_secrets_summary};
pub(crate) use rule::resolve_secrets;
