//! Serves HTTP connections, with limits on their number, their requests and their time. A server makes its own
//! responses: tokens, hosts and bodies are its part.
//!
//! [`bind`] opens the listener, [`Connections::accept`] serves clients until a server must stop, and
//! [`Connections::close`] ends what is left.

mod bind;
mod connections;

pub use bind::{BindError, bind};
pub use connections::{Connections, HttpLimits};
