//! The secrets of a policy: where the host finds each, and which requests of which tools carry it. A value never
//! comes here.
//!
//! - `source`: the place of a value; `header`: the header that carries it.
//! - `rule`: one `[secrets.NAME]`, resolved; `conflict`: what no two of them may say.
//! - `reduce`, `render`: take away from them, write them as text.
//! - `grant`: the secrets of a grant, and which of them a request carries.

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
