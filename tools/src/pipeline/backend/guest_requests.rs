//! Serves the requests of one guest. Each request is judged by the call's grant and the tool's declaration. A
//! confined thread of the host's HTTP client sends it, and it has its own rows in the audit log.
//!
//! The guest gets the head of a response when it arrives, and the body as it is streamed. A body is at most
//! `max_response` bytes long. Whatever the length of a body, the host buffers only a few chunks of 64 KiB of
//! each open response, so the limit on open responses bounds the memory of a call.
//!
//! The `begin` row of a request is written before the guest gets anything of the response, and before the
//! request is sent if the request may have effects. The `end` row is written before the guest learns that the
//! body has ended, or when the response is closed.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Instant,
};

use portcullis_egress::{
    ContentCoding, HeaderMap, HeaderName, HeaderValue, Method, Request, StreamedResponse,
};
use portcullis_policy::{Grant, JudgedRequest};
use portcullis_types::{HttpFailure, HttpRequestHead, HttpResponseHead, ToolError, ToolErrorCode};
use tokio::sync::mpsc;

use super::CallAttempt;
use crate::{
    audit::{CallEnd, Confinement, Decision, Outcome, RowFields, SharedText, Subject, SubjectKind},
    call::random_id,
    pipeline::{
        PendingRecord, admit::refuse, authorize::refuse_flow, flow::judge_flow_again,
        pending_record::unrecorded,
    },
    sandbox::HttpOperation,
    web::{self, DeclaredHosts, GrantJudge, HttpClientHandle, RequestError},
};

/// The maximum number of requests of one call: 256. Each request leaves rows in the audit log.
const MAX_REQUESTS: usize = 256;

/// The maximum number of open responses in one call: 8. Each holds a connection and less than 1 MiB of its
/// body. Only one of them may be compressed by brotli, whose decoder takes up to 20 MiB more.
const MAX_OPEN_RESPONSES: u32 = 8;

/// The host's side of a call's requests.
pub(super) struct GuestRequests<'a> {
    attempt: CallAttempt<'a>,
    http_client: &'a HttpClientHandle,
    declared_hosts: DeclaredHosts,
    requests_made: usize,
    next_handle: u32,
    /// The open responses by number: those that the guest has neither read to their end nor closed.
    open_responses: HashMap<u32, GuestResponse>,
    /// The secrets that the requests have carried.
    secrets: BTreeSet<SharedText>,
    /// The first error of the audit log, which fails the call.
    unrecorded: Option<ToolError>,
}

/// A response that the guest has neither read to its end nor closed.
struct GuestResponse {
    response: StreamedResponse,
    /// The unread part of the last chunk.
    unread_body: bytes::Bytes,
    judge: Arc<GrantJudge>,
    /// The request's row. If the response is dropped with the call, the `end` row is still written.
    record: PendingRecord,
}

impl<'a> GuestRequests<'a> {
    pub(super) fn new(
        attempt: CallAttempt<'a>,
        http_client: &'a HttpClientHandle,
        declared_hosts: DeclaredHosts,
    ) -> Self {
        Self {
            attempt,
            http_client,
            declared_hosts,
            requests_made: 0,
            next_handle: 0,
            open_responses: HashMap::new(),
            secrets: BTreeSet::new(),
            unrecorded: None,
        }
    }

    /// The names of the secrets that the requests have carried.
    pub(super) fn secrets(&self) -> Vec<SharedText> {
        self.secrets.iter().cloned().collect()
    }

    /// Serves requests until the call ends, which drops the future.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection of the request in flight, and the row of this request ends
    /// with `cancelled`. Open responses stay open until [`Self::finish`].
    pub(super) async fn serve(&mut self, asks: &mut mpsc::Receiver<HttpOperation>) -> Infallible {
        loop {
            match asks.recv().await {
                Some(HttpOperation::Send { head, body, reply }) => {
                    let answer = self.send(head, body).await;
                    self.wait_if_cancelled().await;
                    reply.send(answer.map_err(|error| fault(&error)));
                }
                Some(HttpOperation::Read { body, max, reply }) => {
                    let read_result = self.read(body, max).await;
                    self.wait_if_cancelled().await;
                    if let (Ok(bytes), Some(response)) = (&read_result, self.open_responses.get_mut(&body)) {
                        response.count(bytes.len());
                    }
                    reply.send(read_result.map_err(|error| fault(&error)));
                }
                Some(HttpOperation::Close { body, reply }) => {
                    if let Some(response) = self.open_responses.remove(&body) {
                        // The reply to a close cannot carry an error. `record` remembers the error, which
                        // fails the call at its end.
                        let _kept =
                            self.record(response.record, RequestEnd::Closed(response.response.has_ended()));
                    }
                    reply.send(());
                }
                // The guest has ended. Wait until the call drops this future.
                None => std::future::pending().await,
            }
        }
    }

    /// Waits forever if the call is cancelled. The guest of a cancelled call gets no further answer, so it
    /// cannot report success.
    async fn wait_if_cancelled(&self) {
        if self.attempt.caller.cancel.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    async fn send(&mut self, head: HttpRequestHead, body: Vec<u8>) -> Result<HttpResponseHead, ToolError> {
        if self.requests_made >= MAX_REQUESTS {
            let message = format!("more than {MAX_REQUESTS} requests of one call");
            return Err(ToolError::failed(message).with_code(ToolErrorCode::TooManyRequests));
        }
        if u32::try_from(self.open_responses.len()).is_ok_and(|open_count| open_count >= MAX_OPEN_RESPONSES) {
            let message =
                format!("more than {MAX_OPEN_RESPONSES} responses are open; read or drop one first");
            return Err(ToolError::failed(message).with_code(ToolErrorCode::TooManyResponses));
        }
        // Refused requests count too, because each leaves a row.
        self.requests_made += 1;
        let mut pending_record = self.new_record(&head);
        let result = self.perform(&head, body, &mut pending_record).await;
        self.secrets.extend(pending_record.row.secrets.iter().cloned());
        match result {
            Ok((response, judge)) => {
                let rest = bytes::Bytes::new();
                pending_record.passed_bytes = Some(0);
                Ok(self.open(GuestResponse { response, unread_body: rest, judge, record: pending_record }))
            }
            Err(error) => {
                self.record(pending_record, RequestEnd::Failed(&error))?;
                Err(error)
            }
        }
    }

    /// Judges the request, sends it, and writes its `begin` row. The row is written before sending if the
    /// request may have effects, otherwise before the response is passed on.
    async fn perform(
        &mut self,
        head: &HttpRequestHead,
        body: Vec<u8>,
        pending_record: &mut PendingRecord,
    ) -> Result<(StreamedResponse, Arc<GrantJudge>), ToolError> {
        let CallAttempt { checked, grant, deadline, labels, caller, host, .. } = self.attempt;
        let time_left = deadline.saturating_duration_since(Instant::now());
        let mut judge = GrantJudge::new(grant.clone(), Some(self.declared_hosts.clone()), time_left);
        if self.open_responses.values().any(|open| open.response.coding == ContentCoding::Brotli) {
            judge = judge.with_small_decoders();
        }
        let tool = checked.tool.descriptor().name.as_str();
        let judge = Arc::new(judge.with_pooled_connections(host.policy.digest().as_str(), tool, caller));
        let judged = judge.judge(&head.method, &head.url).map_err(|denial| refuse(denial, pending_record))?;
        // Judge the flow again: the run may have read more data since the call was authorized, in this guest
        // or in other calls.
        judge_flow_again(checked, grant, host, &labels.context_before_requests(caller))
            .map_err(|denial| refuse_flow(denial, pending_record))?;
        let request = request(&judged, head, body)?;
        pending_record.row.secrets = web::secrets_for(grant, judged.url().as_str());
        pending_record.row.decision = Some(Decision::Allow);
        pending_record.row.rule = Some(rule_of(grant).into());
        let may_have_effects = !matches!(request.method, Method::GET | Method::HEAD);
        if may_have_effects {
            self.begin(pending_record)?;
        }
        labels.mark_web_read();
        labels.mark_secrets_sent(&pending_record.row.secrets);
        labels.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending_record))?;
        let cancel = caller.cancel.child_token();
        let result = web::stream(self.http_client, &judge, request, cancel, &mut pending_record.row).await;
        // A redirect may have carried more secrets.
        labels.mark_secrets_sent(&pending_record.row.secrets);
        let response = result.map_err(|failure| match failure {
            RequestError::Denied(denial) => refuse(denial, pending_record),
            RequestError::Failed(error) => error,
        })?;
        if !may_have_effects {
            self.begin(pending_record)?;
        }
        Ok((response, judge))
    }

    /// Creates the pending record of a request. Its operation id is the id of the call, or of the call's
    /// operation, and joins the rows.
    fn new_record(&self, head: &HttpRequestHead) -> PendingRecord {
        let CallAttempt { checked, grant, caller, host, .. } = self.attempt;
        let operation = caller.operation_id.as_deref().unwrap_or(&checked.call.id);
        let row = RowFields {
            call_id: random_id("request").into(),
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            operation_id: Some(operation.into()),
            tool: checked.tool.descriptor().name.as_str().into(),
            confinement: Some(Confinement::Egress),
            profile: Some(grant.profile.as_str().into()),
            subjects: vec![Subject {
                source: "request".into(),
                kind: SubjectKind::Url,
                value: head.url.as_str().into(),
            }],
            policy_digest: Some(host.policy.digest().as_str().into()),
            labels: host.labels.context(caller).labels.keys().map(|label| label.to_string().into()).collect(),
            ..RowFields::default()
        };
        PendingRecord::new(Arc::clone(&host.audit), row)
    }

    fn open(&mut self, open_response: GuestResponse) -> HttpResponseHead {
        let number = self.next_handle;
        self.next_handle = self.next_handle.wrapping_add(1);
        let response = &open_response.response;
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = response.headers.iter();
        let headers = headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
        let head = HttpResponseHead {
            body: number,
            status: response.status.as_u16(),
            url: response.url.to_string(),
            headers: headers.collect(),
        };
        self.open_responses.insert(number, open_response);
        head
    }

    /// Returns the next bytes of a body. No bytes mean the end of the body, or a response that is not open.
    async fn read(&mut self, number: u32, max: usize) -> Result<Vec<u8>, ToolError> {
        let Some(open_response) = self.open_responses.get_mut(&number) else { return Ok(Vec::new()) };
        let read_result = open_response.read(max).await;
        if read_result.as_ref().is_ok_and(|bytes| !bytes.is_empty()) {
            return read_result;
        }
        // Write the row before the guest learns that the body has ended.
        if let Some(GuestResponse { record, .. }) = self.open_responses.remove(&number) {
            self.record(
                record,
                read_result.as_ref().map_or_else(RequestEnd::Failed, |_end| RequestEnd::Closed(true)),
            )?;
        }
        read_result
    }

    /// Closes the responses that are still open after the guest has ended. `failure` is the reason if the
    /// host stopped the guest.
    ///
    /// # Errors
    /// `unavailable` with the code `audit_unwritable` if a row of a request could not be written.
    pub(super) fn finish(mut self, failure: Option<&ToolError>) -> Result<(), ToolError> {
        let mut open_responses: Vec<_> = self.open_responses.drain().collect();
        open_responses.sort_unstable_by_key(|(number, _)| *number);
        for (_, GuestResponse { response, record, .. }) in open_responses {
            let end = failure.map_or(RequestEnd::Closed(response.has_ended()), RequestEnd::Failed);
            // `record` remembers the first error. Still write the other rows.
            let _kept = self.record(record, end);
        }
        self.unrecorded.map_or(Ok(()), Err)
    }

    fn begin(&mut self, pending_record: &PendingRecord) -> Result<(), ToolError> {
        let begin_result = pending_record.begin();
        begin_result.map_err(|error| self.remember(unrecorded(&error)))
    }

    /// Writes the `end` row of a request, with the number of bytes that the guest got.
    fn record(&mut self, mut pending_record: PendingRecord, ended: RequestEnd<'_>) -> Result<(), ToolError> {
        let outcome = match ended {
            RequestEnd::Closed(_) => Outcome::Ok,
            RequestEnd::Failed(error) => Outcome::Error(error.kind()),
        };
        let ending = CallEnd {
            duration: Some(pending_record.elapsed()),
            output_bytes: pending_record.passed_bytes,
            ..match ended {
                RequestEnd::Closed(is_whole) => {
                    CallEnd { truncated: Some(!is_whole), ..CallEnd::new(outcome) }
                }
                RequestEnd::Failed(error) => {
                    CallEnd { code: Some(error.code().into()), ..CallEnd::new(outcome) }
                }
            }
        };
        pending_record.end(ending).map_err(|error| self.remember(unrecorded(&error)))
    }

    /// Remembers the first error of the audit log, which fails the call.
    fn remember(&mut self, error: ToolError) -> ToolError {
        self.unrecorded.get_or_insert(error).clone()
    }
}

/// The end of a request.
#[derive(Clone, Copy)]
enum RequestEnd<'e> {
    /// The guest has read the response to its end (`true`) or closed it early (`false`, not an error).
    Closed(bool),
    /// There was no response, or its body was cut off.
    Failed(&'e ToolError),
}

impl GuestResponse {
    /// Returns up to `max` bytes of the body. No bytes mean the end of the body.
    ///
    /// # Cancellation
    /// Dropping the future loses no byte.
    async fn read(&mut self, max: usize) -> Result<Vec<u8>, ToolError> {
        if self.unread_body.is_empty() {
            let chunk = self.response.next().await;
            self.unread_body =
                chunk.map_err(|error| web::request_error(error, &self.judge))?.unwrap_or_default();
        }
        Ok(self.unread_body.split_to(max.min(self.unread_body.len())).into())
    }

    /// Adds to the bytes that the guest has received, for the `end` row.
    fn count(&mut self, bytes: usize) {
        let passed = self.record.passed_bytes.unwrap_or_default();
        self.record.passed_bytes = Some(passed.saturating_add(bytes as u64));
    }
}

/// Returns the policy rule that grants a request.
fn rule_of(grant: &Grant) -> String {
    format!("profiles.{}.hosts", grant.profile)
}

/// Builds the request to send, with the judged form of the URL: the guest may spell it differently.
fn request(judged: &JudgedRequest, head: &HttpRequestHead, body: Vec<u8>) -> Result<Request, ToolError> {
    let invalid =
        |problem: String| ToolError::invalid_arguments(problem).with_code(ToolErrorCode::RequestInvalid);
    let method = Method::from_bytes(head.method.as_bytes())
        .map_err(|_invalid| invalid(format!("`{}` is not a method", head.method.escape_debug())))?;
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", web::USER_AGENT);
    // The guest's first value of a header replaces the default, and further values are added.
    let mut guest_headers = HeaderMap::new();
    for (name, value) in &head.headers {
        let escaped_name = name.escape_debug();
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_invalid| invalid(format!("`{escaped_name}` is not a valid header name")))?;
        let value = HeaderValue::from_str(value).map_err(|_invalid| {
            invalid(format!("the value of the header `{name}` has control characters"))
        })?;
        guest_headers.append(name, value);
    }
    headers.extend(guest_headers);
    Ok(Request { method, url: judged.url().clone(), headers, body: body.into() })
}

/// Converts an error for the guest, without the operator's detail.
fn fault(error: &ToolError) -> HttpFailure {
    HttpFailure { kind: error.kind().into(), code: error.code().to_owned(), message: error.to_string() }
}
