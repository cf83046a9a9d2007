//! What a call says before it ends, sent to its client in order and before its result.

use std::{future::Future, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use portcullis_types::CancellationToken;
use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ProgressNotificationParam, ProgressToken,
        ServerRequest,
    },
    service::{Peer, RequestContext, ServiceError},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};

use super::{
    approver::takes_questions,
    client::{ClientError, Elicited, Report, action},
    elicitation,
    log::{self, Level, Threshold},
};

/// How long a person may take to answer a tool's question. The call's own deadline is shorter in most cases.
const ANSWER_TIME: Duration = Duration::from_secs(10 * 60);

/// For how long a call must have said nothing to its client before that is told that it lives. The registry, which
/// asks for it every 5 s, does not know what a tool says to the client itself.
const SILENCE: Duration = Duration::from_secs(4);

/// By what part progress grows that is none.
const STANDSTILL: f64 = 1e-9;

/// How long reports may still be sent when the call is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Sends the reports of one call.
#[derive(Debug)]
pub(super) struct Reports {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    threshold: Threshold,
    tool: String,
    takes_questions: bool,
}

impl Reports {
    pub(super) fn new(context: &RequestContext<RoleServer>, threshold: Threshold, tool: &str) -> Self {
        Self {
            peer: context.peer.clone(),
            token: context.meta.get_progress_token(),
            threshold,
            tool: log::bounded(tool.to_owned()),
            takes_questions: takes_questions(context),
        }
    }

    /// Drives a call while its reports are sent. A client that does not read holds up reports, never the call.
    ///
    /// # Cancellation
    /// As the call's.
    pub(super) async fn alongside<T>(
        &self,
        reports: mpsc::Receiver<Report>,
        mut call: impl Future<Output = T> + Unpin,
    ) -> T {
        let over = CancellationToken::new();
        let mut sending = std::pin::pin!(self.send(reports, over.clone()));
        let result = tokio::select! {
            biased;
            result = &mut call => result,
            // The client is gone, or nobody can report any more.
            () = &mut sending => return call.await,
        };
        over.cancel();
        // What the call said comes before its result, unless the client does not read.
        let _ = tokio::time::timeout(LAST_WORDS, sending).await;
        result
    }

    /// Sends until the client is gone, or the call is over and all it said is sent. Questions hold up nothing else,
    /// and are taken back when the call is over or nobody waits for the answer.
    async fn send(&self, mut reports: mpsc::Receiver<Report>, over: CancellationToken) {
        let mut last: f64 = 0.0;
        let mut last_total = None;
        let mut spoken = Instant::now();
        let mut questions = FuturesUnordered::new();
        loop {
            let report = tokio::select! {
                biased;
                report = reports.recv() => report,
                () = over.cancelled(), if !reports.is_closed() => {
                    reports.close();
                    continue;
                }
                Some(()) = questions.next() => continue,
            };
            let sent = match report {
                None => return,
                Some(Report::Alive) if spoken.elapsed() < SILENCE => Ok(()),
                Some(Report::Alive) => {
                    // Above the last, as it must be, and no step forward: the tool's own numbers go on from there.
                    last += f64::max(last.abs(), 1.0) * STANDSTILL;
                    self.progress(last, last_total, None).await
                }
                Some(Report::Progress { progress, total, message }) => {
                    (last_total, spoken) = (total, Instant::now());
                    // The protocol wants each above the last; a tool may begin with 0.
                    let above =
                        progress.filter(|progress| *progress > last || (last == 0.0 && *progress == 0.0));
                    last = above.unwrap_or(last + 1.0);
                    self.progress(last, total, message).await
                }
                Some(Report::Log { level, data }) => self.log(level, data).await,
                Some(Report::Elicit { message, schema, mut answer }) => {
                    questions.push(async move {
                        let asked = tokio::select! {
                            asked = self.elicit(message, schema) => asked,
                            () = answer.closed() => return,
                        };
                        // Whoever asked may be gone.
                        let _ = answer.send(asked);
                    });
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// As progress where the client asked for it, else as a message.
    async fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Result<(), ServiceError> {
        match (&self.token, message) {
            (Some(token), message) => {
                let mut report = ProgressNotificationParam::new(token.clone(), progress);
                report.total = total;
                report.message = message;
                self.peer.notify_progress(report).await
            }
            (None, Some(text)) => self.log(Level::Info, Value::String(text)).await,
            (None, None) => Ok(()),
        }
    }

    async fn log(&self, level: Level, data: Value) -> Result<(), ServiceError> {
        if !self.threshold.lets_through(level) {
            return Ok(());
        }
        log::send(&self.peer, level, &self.tool, data).await
    }

    async fn elicit(
        &self,
        message: String,
        requested_schema: rmcp::model::ElicitationSchema,
    ) -> Result<Elicited, ClientError> {
        if !self.takes_questions {
            return Err(ClientError::Unsupported);
        }
        let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let refused = |error: ServiceError| ClientError::Refused(error.to_string());
        match elicitation::ask(&self.peer, request, ANSWER_TIME).await.map_err(refused)? {
            ClientResult::ElicitResult(result) => {
                Ok(Elicited { action: action(&result.action), content: result.content })
            }
            _ => Err(ClientError::Refused("it answered something else".to_owned())),
        }
    }
}
