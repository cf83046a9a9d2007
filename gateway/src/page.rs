//! The page: static files that the gateway serves. They need no build step and load nothing from another
//! host.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
    routing::get,
};

use crate::{
    error::{ApiError, ErrorCode},
    state::GatewayState,
};

/// The operator's own components, which the page loads.
const EXTENSIONS: &str = "extensions.js";

/// The content security policy. It allows only the gateway's own scripts and styles, and prevents text from
/// becoming markup.
const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The routes of the page.
pub(crate) fn router() -> Router<Arc<GatewayState>> {
    Router::new().route("/", get(async || file("index.html"))).route("/assets/{*path}", get(asset))
}

async fn asset(State(state): State<Arc<GatewayState>>, Path(path): Path<String>) -> Response {
    if path == EXTENSIONS {
        let script = state.extensions.clone().unwrap_or_default();
        return with_headers(script.into_response(), "text/javascript");
    }
    file(&path)
}

fn file(path: &str) -> Response {
    // The files are embedded in the program, so no path leads to the disk.
    let Some((_, bytes)) = FILES.iter().find(|(name, _)| *name == path) else {
        return ApiError::new(ErrorCode::NotFound, "there is no such file").into_response();
    };
    let kind = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    with_headers((*bytes).into_response(), kind)
}

fn with_headers(mut response: Response, kind: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SECURITY_POLICY));
    // Revalidate always: a new version of the program has other files under the same names.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
