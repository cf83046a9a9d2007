//! Serves the requests of one guest: each is judged by the call's grant and by what the tool declares, made on a confined
//! thread of the host's HTTP client, and recorded in rows of its own.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Instant,
};

use portcullis_egress::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
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

/// The most responses that a call reads side by side. Each is held in memory.
const MAX_OPEN_RESPONSES: u32 = 8;

/// The host's end of a call's requests.
pub(super) struct GuestRequests<'a> {
    attempt: CallAttempt<'a>,
    gate: &'a EgressGate,
    declared: DeclaredHosts,
    made: usize,
    next: u32,
    /// What has not been read yet of each open response.
    open: HashMap<u32, bytes::Bytes>,
    /// The secrets that the requests have carried.
    secrets: BTreeSet<Text>,
}

impl<'a> GuestRequests<'a> {
    pub(super) fn new(attempt: CallAttempt<'a>, gate: &'a EgressGate, declared: DeclaredHosts) -> Self {
        Self { attempt, gate, declared, made: 0, next: 0, open: HashMap::new(), secrets: BTreeSet::new() }
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
                Some(HttpAsk::Read { body, max, reply }) => reply.give(self.read(body, max)),
                Some(HttpAsk::Close { body, reply }) => {
                    self.open.remove(&body);
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
        let result = self.make(&head, body, &mut pending).await;
        self.secrets.extend(pending.row.secrets.iter().cloned());
        let ending = CallEnding {
            code: result.as_ref().err().map(|error| Arc::from(error.code())),
            duration: Some(pending.elapsed()),
            output_bytes: result.as_ref().ok().map(|response| response.body.len() as u64),
            ..CallEnding::new(match &result {
                Ok(_) => Outcome::Ok,
                Err(error) => Outcome::Error(error.kind()),
            })
        };
        // Before the guest gets the response, as with every result.
        pending.end(ending).map_err(|error| unrecorded(&error))?;
        result.map(|response| self.keep(response))
    }

    /// Judges the request, records its begin where it may have effects, and sends it.
    async fn make(
        &mut self,
        head: &HttpRequestHead,
        body: Vec<u8>,
        pending: &mut PendingRecord,
    ) -> Result<Response, ToolError> {
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
        if !matches!(request.method, Method::GET | Method::HEAD) {
            pending.begin().map_err(|error| unrecorded(&error))?;
        }
        reading.reads_web();
        reading.carries(&pending.row.secrets);
        reading.withdraw_networks(&host.policy).await.map_err(|denial| refuse_flow(denial, pending))?;
        let cancel = caller.cancel.child_token();
        let made = web::request(self.gate, &judge, request, cancel, &mut pending.row).await;
        // A redirect may have carried further ones.
        reading.carries(&pending.row.secrets);
        made.map_err(|failure| match failure {
            RequestFailure::Denied(denial) => refuse(denial, pending),
            RequestFailure::Failed(error) => error,
        })
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

    fn keep(&mut self, response: Response) -> HttpResponseHead {
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
        self.open.insert(number, response.body);
        head
    }

    fn read(&mut self, number: u32, max: usize) -> Result<Vec<u8>, HttpFault> {
        let Some(body) = self.open.get_mut(&number) else { return Ok(Vec::new()) };
        let piece = body.split_to(max.min(body.len()));
        if body.is_empty() {
            self.open.remove(&number);
        }
        Ok(piece.into())
    }
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
