//! [`Session`]: one run of a worker, across its connections.

use std::{error::Error, panic};

use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{SHUTDOWN_GRACE, Worker, seen_calls::SeenCalls, submit::submit};
use crate::{
    Call, ClientError, Submission,
    backoff::{self, Backoff},
};

/// The kind of the event after which events are missing.
const RESET: &str = "reset";

/// A run of a worker. Calls in flight outlive the connection on which they arrived.
pub(super) struct WorkerSession<'a> {
    worker: &'a Worker,
    agent: &'a str,
    /// The id of the last event that was handled.
    last_event_id: Option<String>,
    seen_calls: SeenCalls,
    in_flight: JoinSet<Answered>,
}

/// A call that was answered, or whose answer failed.
struct Answered {
    call: String,
    outcome: Result<Submission, ClientError>,
}

impl<'a> WorkerSession<'a> {
    pub(super) fn new(worker: &'a Worker, agent: &'a str) -> Self {
        Self {
            worker,
            agent,
            last_event_id: None,
            seen_calls: SeenCalls::default(),
            in_flight: JoinSet::new(),
        }
    }

    /// Answers calls until an error that is not transient.
    pub(super) async fn listen(&mut self) -> ClientError {
        let mut backoff = Backoff::default();
        loop {
            let begun = Instant::now();
            match self.answer_connection(&mut backoff).await {
                Ok(()) => tracing::debug!("the gateway has ended the stream of events"),
                Err(error) if error.is_transient() => {
                    tracing::warn!(error = &error as &dyn Error, "cannot read events; reconnecting");
                    if matches!(error, ClientError::TooLarge { .. } | ClientError::Unreadable { .. }) {
                        // Drop the id: with it, the gateway would send the same event again. The list has the
                        // missed calls.
                        self.last_event_id = None;
                    }
                }
                Err(error) => return error,
            }
            if begun.elapsed() >= backoff::MAX_RETRY_DELAY {
                backoff.reset();
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Waits for the calls in flight, and abandons those that take too long.
    pub(super) async fn finish(mut self) {
        let all = async { while self.in_flight.join_next().await.is_some() {} };
        if timeout(SHUTDOWN_GRACE, all).await.is_err() {
            tracing::warn!(calls = self.in_flight.len(), "abandoning calls in flight");
        }
    }

    /// Answers the calls of one connection until it ends.
    async fn answer_connection(&mut self, backoff: &mut Backoff) -> Result<(), ClientError> {
        // Connect before reading the list, so that no call in between is missed.
        let mut events = self.worker.gateway.events(self.agent, self.last_event_id.as_deref()).await?;
        self.answer_open().await?;
        loop {
            self.wait_for_slot().await?;
            let event = tokio::select! {
                event = events.next() => event,
                Some(answered) = self.in_flight.join_next() => {
                    self.end_call(answered)?;
                    continue;
                }
            };
            let Some(event) = event.transpose()? else { return Ok(()) };
            backoff.reset();
            if event.kind == RESET {
                self.answer_open().await?;
            } else if let Some(call) = event.call()? {
                self.answer(call).await?;
            }
            // Ignore an event without an id: it is not stored, so a reconnect cannot resume from it.
            if let Some(id) = event.id {
                self.last_event_id = Some(id);
            }
        }
    }

    /// Answers the calls that are open now.
    async fn answer_open(&mut self) -> Result<(), ClientError> {
        let mut calls = self.worker.gateway.open_calls(self.agent);
        while let Some(call) = calls.try_next().await? {
            self.answer(call).await?;
        }
        Ok(())
    }

    /// Begins to answer a call, unless it has begun already.
    async fn answer(&mut self, call: Call) -> Result<(), ClientError> {
        let Some(tool) = self.worker.tools.get(&call.tool_name).cloned() else { return Ok(()) };
        self.wait_for_slot().await?;
        if !self.seen_calls.begin(&call.call_id) {
            return Ok(());
        }
        let gateway = self.worker.gateway.clone();
        self.in_flight.spawn(async move {
            let result = tool.call(call.args.clone()).await;
            let outcome = submit(&gateway, &call, &result).await;
            Answered { call: call.call_id, outcome }
        });
        Ok(())
    }

    /// Waits until fewer calls than allowed are in flight. In that time no event is read, and the gateway
    /// buffers them.
    async fn wait_for_slot(&mut self) -> Result<(), ClientError> {
        while self.in_flight.len() >= self.worker.concurrency.get() {
            if let Some(answered) = self.in_flight.join_next().await {
                self.end_call(answered)?;
            }
        }
        Ok(())
    }

    /// Handles the end of a call.
    ///
    /// # Errors
    /// An error of its submission that is not transient. The next submission would fail in the same way.
    fn end_call(&mut self, answered: Result<Answered, JoinError>) -> Result<(), ClientError> {
        let Answered { call, outcome } = match answered {
            Ok(answered) => answered,
            // Panics of tools are caught, so this panic is a fault of this crate.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => panic::resume_unwind(panic),
                Err(_cancelled) => return Ok(()),
            },
        };
        match outcome {
            Ok(submission) => {
                if !submission.is_delivered() {
                    tracing::warn!(call, ?submission, "the gateway did not accept a result");
                }
                self.seen_calls.answered(call);
                Ok(())
            }
            Err(error) if error.is_transient() => {
                tracing::error!(call, error = &error as &dyn Error, "cannot submit a result");
                self.seen_calls.forget(&call);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
