//! The operations `web_fetch`, `web_search` and `send_notification`, and requests through the host's HTTP client.
//!
//! One step of an operation makes a request and has no mount. The other steps convert the bytes to text, in
//! guests that have neither mounts nor a network.
//!
//! - `fetch_tool` and `search_tool` are the tools for models, and `request_step` is their first step.
//! - `fetch` and `search` make the calls of the steps with the help of `operation_steps`, each through the whole pipeline.
//! - `robots` reads the `robots.txt` of an origin before a page of it is requested.
//! - `query` parses the arguments of a search, and `provider` builds the request in the
//!   format of each provider.
//! - `http_client` starts the host's HTTP client on first use, and `judge` answers the client's questions
//!   from the grant of the call. `request` makes one request with both, and adds the secrets that `secrets`
//!   reads and `known_secrets` remembers.
//! - `tool_response` converts a response to the result of an HTTP tool's call.
//! - `notification` sends messages, through the request step or to a mail server.
//! - `declared_hosts` holds the hosts that a module's tool declares. Its requests take the same path.

mod declared_hosts;
mod fetch;
mod fetch_tool;
mod grant_judge;
mod http_client;
mod known_secrets;
mod notification;
mod operation_steps;
mod provider;
mod query;
mod request;
mod request_step;
mod robots;
mod search;
mod search_tool;
mod secrets;
mod tool_response;

pub(crate) use declared_hosts::DeclaredHosts;
pub(crate) use fetch_tool::{PAGE, WebFetchBackend, tool};
pub(crate) use grant_judge::{GrantJudge, Redirect};
pub(crate) use http_client::{HttpClientConfig, HttpClientHandle};
pub(crate) use notification::{
    MailFailure, MailStep, NOTIFICATION_REQUEST, PreparedMail, SendNotificationBackend, mail_step,
    send_notification,
};
pub(crate) use operation_steps::{
    RedirectRefusal, RequestOptions, RequestOutcome, SharedRequestOutcome, refused_by_status,
    refused_with_body,
};
pub(crate) use request::{RequestError, USER_AGENT, request_error, secrets_for, send, stream};
pub(crate) use request_step::{BODY, Redirects, RequestStep, URL, request_step};
pub(crate) use robots::{RobotsFiles, RobotsRefusal};
pub(crate) use search_tool::{WebSearchBackend, search_request, search_web, web_search};
pub(crate) use secrets::SecretLocation;
pub use secrets::{SecretError, TakenVariables};
pub(crate) use tool_response::output_of_response;
