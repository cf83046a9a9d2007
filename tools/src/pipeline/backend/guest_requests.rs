//! Serves the requests of one guest: each is judged by the call's grant and by what the tool declares, made on a confined
//! thread of the host's HTTP client, and recorded in rows of its own.
//!
//! The guest has the head of a response, and the first bytes of its body, while the server still sends. So the `begin` of
//! a request is written before the guest has the head, and its `end` before the guest learns that the body has ended.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use portcullis_egress::{HeaderMap, HeaderName, HeaderValue, Method, Request, StreamedResponse};
use portcullis_policy::{Grant, JudgedRequest};
use portcullis_types::{HttpFault, HttpRequestHead, HttpResponseHead, ToolError};
use tokio::sync::mpsc;

use super::CallAttempt;
use crate::{
    audit::{CallEnding, CallRecord, Confinement, Outcome, Subject, SubjectKind, Text, Verdict},
    call::random_id,
    pipeline::{
        PendingRecord, admit::refuse, authorize::refuse_flow, call_log::unrecorded, flow::judge_flow_again,
    },
    sandbox::HttpAsk,
    web::{self, DeclaredHosts, EgressGate, GrantJudge, RequestFailure},
};

/// The most requests of one call. Each leaves rows in the audit log.
const MAX_REQUESTS: usize = 256;

/// The most responses that a call reads side by side. Each is a connection, with a few pieces of its body.
const MAX_OPEN_RESPONSES: u32 = 8;

/// The host's end of a call's requests.
pub(super) struct GuestRequests<'a> {
    attempt: CallAttempt<'a>,
    gate: &'a EgressGate,
    declared: DeclaredHosts,
    made: usize,
    next: u32,
    open: HashMap<u32, OpenResponse>,
    /// The secrets that the requests have carried.
    secrets: BTreeSet<Text>,
    /// The first end of a request that could not be recorded.
    unrecorded: Option<ToolError>,
}

/// A response whose body the guest may still read.
struct OpenResponse {
    response: StreamedResponse,
    /// The rest of the last piece.
    rest: Bytes,
    /// The bytes that the guest has got.
    read: u64,
    judge: Arc<GrantJudge>,
    pending: PendingRecord,
}

impl<'a> GuestRequests<'a> {
    pub(super) fn new(attempt: CallAttempt<'a>, gate: &'a EgressGate, declared: DeclaredHosts) -> Self {
        Self {
            attempt,
            gate,
            declared,
            made: 0,
            next: 0,
            open: HashMap::new(),
            secrets: BTreeSet::new(),
            unrecorded: None,
        }
    }

    /// The names of the secrets that the requests have carried.
    pub(super) fn secrets(&self) -> Vec<Text> {
        self.secrets.iter().cloned().collect()
    }

    /// Serves until the call is over, which drops the future.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection. The row of a request under way says `cancelled`.
    pub(super) async fn serve(&mut self, asks: &mut mpsc::Receiver<HttpAsk>) -> Infallible {
        loop {
            match asks.recv().await {
                Some(HttpAsk::Send { head, body, reply }) => {
                    let answer = self.send(head, body).await;
                    reply.give(answer.map_err(|error| fault(&error)));
                }
                Some(HttpAsk::Read { body, max, reply }) => {
                    let read = self.read(body, max).await;
                    reply.give(read.map_err(|error| fault(&error)));
                }
                Some(HttpAsk::Close { body, reply }) => {
                    // The guest learns nothing of the log; the end of the call does.
                    let closed = self.open.remove(&body).map_or(Ok(()), OpenResponse::close);
                    self.unrecorded = self.unrecorded.take().or(closed.err());
                    reply.give(());
                }
                // The guest is over; its report is on its way.
                None => std::future::pending().await,
            }
        }
    }

    async fn send(&mut self, head: HttpRequestHead, body: Vec<u8>) -> Result<HttpResponseHead, ToolError> {
        if self.made >= MAX_REQUESTS {
            let message = format!("more than {MAX_REQUESTS} requests of one call");
            return Err(ToolError::failed(message).with_code("too_many_requests"));
        }
        if u32::try_from(self.open.len()).is_ok_and(|open| open >= MAX_OPEN_RESPONSES) {
            let message =
                format!("more than {MAX_OPEN_RESPONSES} responses are open; read or drop one first");
            return Err(ToolError::failed(message).with_code("too_many_responses"));
        }
        // Also a request that is refused: each leaves a row.
        self.made += 1;
        let mut pending = self.pending(&head);
        let made = self.make(&head, body, &mut pending).await;
        self.secrets.extend(pending.row.secrets.iter().cloned());
        match made {
            Ok((response, judge)) => Ok(self.keep(response, judge, pending)),
            Err(error) => {
                record(&mut pending, Err(&error))?;
                Err(error)
            }
        }
    }

    /// Judges the request, and sends it. Records its begin: before it is sent where it may have effects, else before
    /// anything of the response is passed on.
    async fn make(
        &mut self,
        head: &HttpRequestHead,
        body: Vec<u8>,
        pending: &mut PendingRecord,
    ) -> Result<(StreamedResponse, Arc<GrantJudge>), ToolError> {
        let CallAttempt { checked, grant, deadline, reading, caller, host, .. } = self.attempt;
        let left = deadline.saturating_duration_since(Instant::now());
        let judge = GrantJudge::new(grant.clone(), Some(self.declared.clone()), left);
        let tool = checked.tool.facts().name.as_str();
        let judge = Arc::new(judge.keeping_connections(host.policy.digest().as_str(), tool, caller));
        let judged = judge.judge(&head.method, &head.url).map_err(|denial| refuse(denial, pending))?;
        // Other calls of the run go on while this one runs, and a guest may have read its mounts before it sends.
        judge_flow_again(checked, grant, host, &reading.facts_before_requests(caller))
            .map_err(|denial| refuse_flow(denial, pending))?;
        let request = request(&judged, head, body)?;
        pending.row.secrets = web::secrets_for(grant, judged.url().as_str());
        pending.row.decision = Some(Verdict::Allow);
        pending.row.rule = Some(rule_of(grant).into());
        let has_effects = !matches!(request.method, Method::GET | Method::HEAD);
        if has_effects {
            pending.begin().map_err(|error| unrecorded(&error))?;
        }
        reading.reads_web();
        reading.carries(&pending.row.secrets);
        reading.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending))?;
        let cancel = caller.cancel.child_token();
        let made = web::stream(self.gate, &judge, request, cancel, &mut pending.row).await;
        // A redirect may have carried further ones.
        reading.carries(&pending.row.secrets);
        let response = made.map_err(|failure| match failure {
            RequestFailure::Denied(denial) => refuse(denial, pending),
            RequestFailure::Failed(error) => error,
        })?;
        if !has_effects {
            pending.begin().map_err(|error| unrecorded(&error))?;
        }
        Ok((response, judge))
    }

    /// A row of its own, which the id of the call, or of its operation, joins with the call's.
    fn pending(&self, head: &HttpRequestHead) -> PendingRecord {
        let CallAttempt { checked, grant, caller, host, .. } = self.attempt;
        let operation = caller.operation_id.as_deref().unwrap_or(&checked.call.id);
        let row = CallRecord {
            call_id: random_id("request").into(),
            run_id: Some(caller.run_id.as_str().into()),
            agent: Some(caller.agent_id.as_str().into()),
            operation_id: Some(operation.into()),
            tool: checked.tool.facts().name.as_str().into(),
            confinement: Some(Confinement::Egress),
            profile: Some(grant.profile.as_str().into()),
            subjects: vec![Subject {
                argument: "request".into(),
                kind: SubjectKind::Url,
                value: head.url.as_str().into(),
            }],
            policy_digest: Some(host.policy.digest().as_str().into()),
            labels: host.labels.facts(caller).labels.keys().map(|label| label.to_string().into()).collect(),
            ..CallRecord::default()
        };
        PendingRecord::new(Arc::clone(&host.audit), row)
    }

    fn keep(
        &mut self,
        response: StreamedResponse,
        judge: Arc<GrantJudge>,
        pending: PendingRecord,
    ) -> HttpResponseHead {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = response.headers.iter();
        let headers = headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
        let head = HttpResponseHead {
            body: number,
            status: response.status.as_u16(),
            url: response.url.to_string(),
            headers: headers.collect(),
        };
        self.open.insert(number, OpenResponse { response, rest: Bytes::new(), read: 0, judge, pending });
        head
    }

    /// The next bytes of a body; none at its end, and of a response that is not open.
    async fn read(&mut self, number: u32, max: usize) -> Result<Vec<u8>, ToolError> {
        let Some(open) = self.open.get_mut(&number) else { return Ok(Vec::new()) };
        let read = open.read(max).await;
        if !matches!(&read, Ok(bytes) if !bytes.is_empty())
            && let Some(mut ended) = self.open.remove(&number)
        {
            record(&mut ended.pending, read.as_ref().map(|_end| ended.read))?;
        }
        read
    }

    /// Closes the responses that the guest has left open, once it has ended.
    ///
    /// # Errors
    /// If the end of a request could not be recorded.
    pub(super) fn finish(mut self) -> Result<(), ToolError> {
        let closed = self.open.drain().map(|(_, open)| open.close());
        closed.fold(self.unrecorded.take().map_or(Ok(()), Err), Result::and)
    }
}

impl OpenResponse {
    async fn read(&mut self, max: usize) -> Result<Vec<u8>, ToolError> {
        if self.rest.is_empty() {
            match self.response.next().await {
                Ok(piece) => self.rest = piece.unwrap_or_default(),
                Err(error) => {
                    return Err(match web::failure(&error, &self.judge) {
                        RequestFailure::Denied(denial) => refuse(denial, &mut self.pending),
                        RequestFailure::Failed(error) => error,
                    });
                }
            }
        }
        let bytes = self.rest.split_to(max.min(self.rest.len()));
        self.read += bytes.len() as u64;
        Ok(bytes.into())
    }

    /// The guest has given the response up, which is no fault.
    fn close(mut self) -> Result<(), ToolError> {
        record(&mut self.pending, Ok(self.read))
    }
}

/// Writes the end of a request: the bytes that the guest got, or the reason why it got no more.
fn record(pending: &mut PendingRecord, result: Result<u64, &ToolError>) -> Result<(), ToolError> {
    let ending = CallEnding {
        code: result.err().map(|error| Arc::from(error.code())),
        duration: Some(pending.elapsed()),
        output_bytes: result.ok(),
        ..CallEnding::new(match result {
            Ok(_) => Outcome::Ok,
            Err(error) => Outcome::Error(error.kind()),
        })
    };
    pending.end(ending).map_err(|error| unrecorded(&error))
}

/// The policy rule that grants a request.
fn rule_of(grant: &Grant) -> String {
    format!("profiles.{}.hosts", grant.profile)
}

/// The request in the judged form of its address: the guest's text may be another spelling.
fn request(judged: &JudgedRequest, head: &HttpRequestHead, body: Vec<u8>) -> Result<Request, ToolError> {
    let invalid = |what: String| ToolError::invalid_arguments(what).with_code("request_invalid");
    let method = Method::from_bytes(head.method.as_bytes())
        .map_err(|_invalid| invalid(format!("`{}` is no method", head.method.escape_debug())))?;
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", web::USER_AGENT);
    // The first value of a name replaces ours; further ones are added.
    let mut own = HeaderMap::new();
    for (name, value) in &head.headers {
        let shown = name.escape_debug();
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_invalid| invalid(format!("`{shown}` is no name of a header")))?;
        let value = HeaderValue::from_str(value).map_err(|_invalid| {
            invalid(format!("the value of the header `{name}` has control characters"))
        })?;
        own.append(name, value);
    }
    headers.extend(own);
    Ok(Request { method, url: judged.url().clone(), headers, body: body.into() })
}

/// The failure as the guest gets it: without the operator's detail.
fn fault(error: &ToolError) -> HttpFault {
    HttpFault { kind: error.kind().into(), code: error.code().to_owned(), message: error.to_string() }
}
