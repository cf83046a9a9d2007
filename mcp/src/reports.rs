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
    approver::supports_elicitation,
    client::{CallReport, ClientError, ElicitationAnswer, action},
    elicitation,
    log::{self, LogLevel, LogThreshold},
};

/// The timeout of a person's answer to a tool's question. The call's own deadline is usually shorter.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The minimum time without progress before a heartbeat is sent. The registry's own interval is longer, but
/// the registry does not see the reports that a tool sends to the client itself.
const HEARTBEAT_MIN_GAP: Duration = Duration::from_secs(4);

/// The relative step of the progress number in a heartbeat. The number must grow, although a heartbeat means
/// no progress.
const HEARTBEAT_STEP: f64 = 1e-9;

/// The timeout for sending reports after the call has ended.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The sender of one call's reports.
#[derive(Debug)]
pub(super) struct Reports {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    threshold: LogThreshold,
    tool: String,
    supports_elicitation: bool,
}

impl Reports {
    pub(super) fn new(context: &RequestContext<RoleServer>, threshold: LogThreshold, tool: &str) -> Self {
        Self {
            peer: context.peer.clone(),
            token: context.meta.get_progress_token(),
            threshold,
            tool: log::bounded(tool.to_owned()),
            supports_elicitation: supports_elicitation(context),
        }
    }

    /// Drives a call and sends its reports. A client that does not read delays reports, never the call.
    ///
    /// # Cancellation
    /// Dropping the future drops the call.
    pub(super) async fn run_with_reports<T>(
        &self,
        reports: mpsc::Receiver<CallReport>,
        mut call: impl Future<Output = T> + Unpin,
    ) -> T {
        let call_ended = CancellationToken::new();
        let mut sending = std::pin::pin!(self.send(reports, call_ended.clone()));
        let result = tokio::select! {
            // `biased`: poll the call first, because its result takes precedence.
            biased;
            result = &mut call => result,
            // The client is gone, or all senders of reports are gone.
            () = &mut sending => return call.await,
        };
        call_ended.cancel();
        // Send the remaining reports before the result, unless the client does not read.
        let _ = tokio::time::timeout(FINAL_REPORT_TIMEOUT, sending).await;
        result
    }

    /// Sends reports until the client is gone, or until the call has ended and all its reports are sent. A
    /// question does not delay other reports. It is withdrawn when the call has ended or the tool stops
    /// waiting for the answer.
    async fn send(&self, mut reports: mpsc::Receiver<CallReport>, call_ended: CancellationToken) {
        let mut last_progress: f64 = 0.0;
        let mut last_total = None;
        let mut last_report_at = Instant::now();
        let mut questions = FuturesUnordered::new();
        loop {
            let report = tokio::select! {
                // `biased`: send waiting reports before handling the end of the call.
                biased;
                report = reports.recv() => report,
                () = call_ended.cancelled(), if !reports.is_closed() => {
                    reports.close();
                    continue;
                }
                Some(()) = questions.next() => continue,
            };
            let sent = match report {
                None => return,
                Some(CallReport::Alive) if last_report_at.elapsed() < HEARTBEAT_MIN_GAP => Ok(()),
                Some(CallReport::Alive) => {
                    // The protocol requires a greater number each time. Increase it only slightly, so that
                    // the tool's own numbers can continue.
                    last_progress += f64::max(last_progress.abs(), 1.0) * HEARTBEAT_STEP;
                    self.progress(last_progress, last_total, None).await
                }
                Some(CallReport::Progress { progress, total, message }) => {
                    (last_total, last_report_at) = (total, Instant::now());
                    // The protocol requires a greater number each time. A tool may begin with 0.
                    let increased_progress = progress.filter(|progress| {
                        *progress > last_progress || (last_progress == 0.0 && *progress == 0.0)
                    });
                    last_progress = increased_progress.unwrap_or(last_progress + 1.0);
                    self.progress(last_progress, total, message).await
                }
                Some(CallReport::Log { level, data }) => self.log(level, data).await,
                Some(CallReport::Elicit { message, schema, mut answer }) => {
                    questions.push(async move {
                        let answered = tokio::select! {
                            answered = self.elicit(message, schema) => answered,
                            // The tool has dropped its end. Dropping `elicit` withdraws the question.
                            () = answer.closed() => return,
                        };
                        // The tool may have stopped waiting for the answer.
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

    /// Reports progress if the client asked for it. Otherwise sends the text as a log message.
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
        if !self.threshold.allows(level) {
            return Ok(());
        }
        log::send(&self.peer, level, &self.tool, data).await
    }

    async fn elicit(
        &self,
        message: String,
        requested_schema: rmcp::model::ElicitationSchema,
    ) -> Result<ElicitationAnswer, ClientError> {
        if !self.supports_elicitation {
            return Err(ClientError::Unsupported);
        }
        let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let refused = |error: ServiceError| ClientError::Refused(error.to_string());
        match elicitation::ask(&self.peer, request, ANSWER_TIMEOUT).await.map_err(refused)? {
            ClientResult::ElicitResult(result) => {
                Ok(ElicitationAnswer { action: action(&result.action), content: result.content })
            }
            _ => Err(ClientError::Refused("it answered something else".to_owned())),
        }
    }
}
