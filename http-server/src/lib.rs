//! Serves HTTP connections, with limits on their number, their requests and their duration. The server that
//! uses this crate makes the responses, and checks tokens, hosts and bodies itself.
//!
//! [`bind`] opens the listener, [`Connections::accept`] serves clients until the server must stop, and
//! [`Connections::close`] closes the remaining connections.

mod bind;
mod connections;

pub use bind::{BindError, Reach, bind};
pub use connections::{Connections, HttpLimits};
