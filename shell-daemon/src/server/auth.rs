//! The check before every call: first the token, then the version. No other part of a request is read before.

use std::sync::Arc;

use tonic::{Request, Status, service::Interceptor};

use super::{connection::ConnectionHandle, daemon::Daemon, refusal::RefusalCode};
use portcullis_shell_protocol::{VERSION, VERSION_KEY};

/// The interceptor of one connection; all share the same daemon.
#[derive(Clone, Debug)]
pub(super) struct AuthInterceptor(pub(super) Arc<Daemon>);

impl Interceptor for AuthInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let named = request.metadata().get("authorization");
        if !named.is_some_and(|named| self.0.token.admits(named.as_bytes())) {
            return Err(RefusalCode::Unauthenticated.because("the token is missing or wrong"));
        }
        let version = request.metadata().get(VERSION_KEY).and_then(|version| version.to_str().ok());
        if version != Some(VERSION) {
            let client_version = version.unwrap_or("no version");
            return Err(RefusalCode::Version.because(format!(
                "this daemon is of version {VERSION}, the client of {client_version}: start both from one build"
            )));
        }
        ConnectionHandle::of(&request)?.note_token();
        Ok(request)
    }
}
