//! A client of the gateway of Portcullis, for programs that answer the calls of its agents.
//!
//! An agent of a gateway can have external tools. The gateway runs no code for a call of such a tool.
//! Instead, a program with a token of the agent submits the result. [`Worker`] is the loop of such a program.
//! It listens, calls a function for each call, and submits the function's return value:
//!
//! ```no_run
//! use std::io;
//!
//! use portcullis_client::{Gateway, Worker};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Query {
//!     query: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Found {
//!     results: Vec<String>,
//! }
//!
//! # async fn answer(token: &str) -> Result<(), portcullis_client::ClientError> {
//! let gateway = Gateway::new("http://127.0.0.1:8810", token)?;
//! let worker = Worker::new(gateway)
//!     .tool("fetchExternalData", async |args: Query| Ok::<_, io::Error>(Found { results: vec![args.query] }));
//! // The second argument ends the loop; this one never does.
//! worker.run("agt_1", std::future::pending()).await
//! # }
//! ```
//!
//! [`Gateway`] has the individual requests, for programs with their own loop:
//!
//! ```no_run
//! use futures_util::TryStreamExt as _;
//! use portcullis_client::{ClientError, Gateway, Submission};
//! use serde_json::json;
//!
//! # async fn answer_open(gateway: &Gateway) -> Result<(), ClientError> {
//! let mut calls = gateway.open_calls("agt_1");
//! while let Some(call) = calls.try_next().await? {
//!     match gateway.submit(&call.run_id, &call.call_id, &json!({ "ok": true })).await? {
//!         Submission::Delivered(delivery) => println!("{}: {delivery:?}", call.call_id),
//!         other => println!("{}: {other:?}", call.call_id),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The crate depends on no other crate of Portcullis. It uses no proxy, and follows no redirect, because a
//! redirect could take the token to another host. It logs through `tracing`. No log message contains the
//! token.
//!
//! | file | what it is |
//! |---|---|
//! | `gateway.rs` | the requests |
//! | `worker.rs`, `worker/` | the loop: connections, calls in flight, submissions |
//! | `tool.rs` | a typed function as the worker calls it |
//! | `call.rs`, `submission.rs`, `events.rs` | what the gateway sends |
//! | `address.rs`, `secret.rs` | the gateway's address, and the token |
//! | `transport.rs` | HTTP over TLS |
//! | `backoff.rs` | growing backoff between attempts |
//! | `error.rs` | why something failed |
#![forbid(unsafe_code)]

mod address;
mod backoff;
mod call;
mod error;
mod events;
mod gateway;
mod secret;
mod submission;
#[cfg(test)]
mod testing;
mod tool;
mod transport;
mod worker;

pub use crate::{
    call::{Call, CallStatus},
    error::{AddressFault, ClientError},
    events::{Event, EventStream},
    gateway::{CallStream, Gateway},
    submission::{Delivery, Submission},
    worker::{DEFAULT_CONCURRENCY, SHUTDOWN_GRACE, Worker},
};
