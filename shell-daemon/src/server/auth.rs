//! The check before every call: first the token, then the version. No other part of a request is read before it.

use std::sync::Arc;

use tonic::{Request, Status, service::Interceptor};

use super::{connection::ConnectionHandle, refusal::RefusalCode, sidecar::SidecarServer};
use portcullis_shell_protocol::{VERSION, VERSION_KEY};

/// The interceptor of one connection. All interceptors share the same sidecar.
#[derive(Clone, Debug)]
pub(super) struct AuthInterceptor(pub(super) Arc<SidecarServer>);

impl Interceptor for AuthInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let authorization = request.metadata().get("authorization");
        if !authorization.is_some_and(|authorization| self.0.token.admits(authorization.as_bytes())) {
            return Err(RefusalCode::Unauthenticated.status("the token is missing or wrong"));
        }
        let version = request.metadata().get(VERSION_KEY).and_then(|version| version.to_str().ok());
        if version != Some(VERSION) {
            let client_version =
                version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
            return Err(RefusalCode::Version.status(format!(
                "the sidecar has version {VERSION} and the client has {client_version}; start both from the same build"
            )));
        }
        ConnectionHandle::from_request(&request)?.note_token();
        Ok(request)
    }
}
