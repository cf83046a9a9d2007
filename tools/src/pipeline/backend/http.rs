//! The backend of HTTP tools. A call is one request, made on a confined thread of the host's HTTP client.

use portcullis_egress::{HeaderMap, HeaderValue, Method, Request};
use portcullis_policy::RequestedSubject;
use portcullis_types::{ToolArgs, ToolError, ToolErrorCode, async_trait};

use super::{
    AttemptOutcome, Backend, CallAttempt,
    egress::{error_of, headers, judge_of_configured, send_labelled},
};
use crate::{
    audit::Confinement,
    http_tool::HttpTarget,
    pipeline::{Host, PendingRecord, admit::refuse},
    web,
};

/// The configuration key of the tool's URL. Approval questions and audit rows show it. It cannot clash with
/// an argument, because argument names contain no dots.
pub(crate) const CONFIGURED_URL: &str = "execution.url";

/// The reason in a program without the HTTP client.
pub(super) const NO_CLIENT: &str = "this program makes no requests for tools";

/// The `Accept` header, unless the configuration sets it.
const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.5");

/// An HTTP tool.
#[derive(Debug)]
pub(crate) struct HttpBackend(pub(crate) HttpTarget);

#[async_trait]
impl Backend for HttpBackend {
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.http_client.is_none().then_some(NO_CLIENT)
    }

    fn http_target(&self) -> Option<&HttpTarget> {
        Some(&self.0)
    }

    /// The tool's URL, with the arguments in its query if the method has no body.
    fn configured_subject(&self, args: &ToolArgs) -> Result<Option<RequestedSubject>, ToolError> {
        let url = self.0.url_with(args)?.into();
        Ok(Some(RequestedSubject::Url { argument: CONFIGURED_URL.to_owned(), url }))
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, host, .. } = attempt;
        let Self(target) = self;
        let Some(http_client) = &host.http_client else {
            return Err(ToolError::unavailable(NO_CLIENT).with_code(ToolErrorCode::NoHttpClient));
        };
        let judge = judge_of_configured(&attempt);
        let (url, method) = (target.url_with(&checked.args)?, target.method().as_str());
        let judged = judge.judge(method, url.as_str()).map_err(|denial| refuse(denial, pending_record))?;
        let body = target.body_with(&checked.args);
        let request = Request {
            method: Method::from_bytes(method.as_bytes())
                .map_err(|error| ToolError::internal(error.to_string()))?,
            headers: configured_headers(target, body.is_some()),
            body: body.unwrap_or_default(),
            ..Request::get(judged.url().clone())
        };
        let result = match send_labelled(&attempt, http_client, &judge, request, pending_record).await? {
            Ok(response) => web::output_of_response(&response),
            Err(failure) => Err(error_of(failure, pending_record)),
        };
        Ok(AttemptOutcome::without_retry(result))
    }
}

/// Returns the default headers, overridden by the configured ones.
fn configured_headers(target: &HttpTarget, has_body: bool) -> HeaderMap {
    let mut headers = headers(ACCEPT, has_body);
    for (name, value) in target.headers() {
        headers.insert(name, value.clone());
    }
    headers
}
