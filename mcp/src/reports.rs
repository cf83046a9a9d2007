//! Sends a call's reports to its client, in order and before its result.

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
    client::{CallReport, ClientError, Elicited, action},
    elicitation,
    log::{self, LogLevel, Threshold},
};

/// How long a person may take to answer a tool's question. The call's own deadline is usually shorter.
const ANSWER_TIME: Duration = Duration::from_secs(10 * 60);

/// The time that a call must have been without progress before its client gets a heartbeat. The registry's interval
/// is longer. The registry does not know of reports that a tool sends to the client itself.
const HEARTBEAT_MIN_GAP: Duration = Duration::from_secs(4);

/// Relative step of a sign of life: progress numbers must grow, but this one means no progress.
const HEARTBEAT_STEP: f64 = 1e-9;

/// How long reports may still be sent after the call has ended.
const FINAL_REPORT_TIME: Duration = Duration::from_secs(1);

/// Sender of one call's reports.
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

    /// Drives a call while its reports are sent. A client that does not read delays reports, never the call.
    ///
    /// # Cancellation
    /// As the call's.
    pub(super) async fn alongside<T>(
        &self,
        reports: mpsc::Receiver<CallReport>,
        mut call: impl Future<Output = T> + Unpin,
    ) -> T {
        let over = CancellationToken::new();
        let mut sending = std::pin::pin!(self.send(reports, over.clone()));
        let result = tokio::select! {
            biased;
            result = &mut call => result,
            // The client is gone, or all senders of reports are.
            () = &mut sending => return call.await,
        };
        over.cancel();
        // Reports come before the result, unless the client does not read.
        let _ = tokio::time::timeout(FINAL_REPORT_TIME, sending).await;
        result
    }

    /// Sends until the client is gone, or the call is over and all its reports are sent. Questions delay
    /// nothing else. They are withdrawn when the call is over or their asker stops waiting.
    async fn send(&self, mut reports: mpsc::Receiver<CallReport>, over: CancellationToken) {
        let mut last: f64 = 0.0;
        let mut last_total = None;
        let mut last_report_at = Instant::now();
        let mut questions = FuturesUnordered::new();
        loop {
            let report = tokio::select! {
                // `biased`: waiting reports are sent before the end of the call is noticed.
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
                Some(CallReport::Alive) if last_report_at.elapsed() < HEARTBEAT_MIN_GAP => Ok(()),
                Some(CallReport::Alive) => {
                    // Slightly above the last number, as the protocol requires, so that the tool's own
                    // numbers can continue.
                    last += f64::max(last.abs(), 1.0) * HEARTBEAT_STEP;
                    self.progress(last, last_total, None).await
                }
                Some(CallReport::Progress { progress, total, message }) => {
                    (last_total, last_report_at) = (total, Instant::now());
                    // The protocol wants each number above the last; a tool may begin with 0.
                    let above =
                        progress.filter(|progress| *progress > last || (last == 0.0 && *progress == 0.0));
                    last = above.unwrap_or(last + 1.0);
                    self.progress(last, total, message).await
                }
                Some(CallReport::Log { level, data }) => self.log(level, data).await,
                Some(CallReport::Elicit { message, schema, mut answer }) => {
                    questions.push(async move {
                        let answered = tokio::select! {
                            answered = self.elicit(message, schema) => answered,
                            () = answer.closed() => return,
                        };
                        // The asker may be gone.
                        let _ = answer.send(answered);
                    });
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Reports progress if the client asked for it, else sends the text as a log message.
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
            (None, Some(text)) => self.log(LogLevel::Info, Value::String(text)).await,
            (None, None) => Ok(()),
        }
    }

    async fn log(&self, level: LogLevel, data: Value) -> Result<(), ServiceError> {
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
