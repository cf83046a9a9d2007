//! [`StreamAccess`]: the right to read a stream of events. It is checked again while the stream is open.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    access::{Identity, TokenHash},
    error::{ApiError, ErrorCode},
    state::GatewayState,
    topic,
};

/// How often the right is checked without a change in this process, because another process may have changed
/// it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of open streams of one token: 256. The operator's streams are limited only by the
/// number of connections.
const MAX_STREAMS_PER_TOKEN: usize = 256;

/// The resource that a stream is about.
#[derive(Debug, Clone)]
pub(crate) enum StreamSubject {
    /// A space, by its id.
    Space(String),
    /// An agent, by its id.
    Agent(String),
    /// A run, by its id.
    Run(String),
}

impl StreamSubject {
    /// Returns the topic of the resource's events.
    pub(crate) fn topic(&self) -> String {
        match self {
            Self::Space(id) => topic::for_space(id),
            Self::Agent(id) => topic::for_agent(id),
            Self::Run(id) => topic::for_run(id),
        }
    }
}

/// The open streams, and a channel for changes that may end them.
#[derive(Debug)]
pub(crate) struct StreamAccesses {
    /// The number of streams by token.
    open_streams: Mutex<HashMap<TokenHash, usize>>,
    changes: watch::Sender<()>,
}

impl Default for StreamAccesses {
    fn default() -> Self {
        Self { open_streams: Mutex::default(), changes: watch::Sender::new(()) }
    }
}

impl StreamAccesses {
    /// Makes all streams check their right again. Called after each change that revokes a right.
    pub(crate) fn recheck(&self) {
        self.changes.send_replace(());
    }
}

/// One reader's access to a stream. Dropping it releases the reader's stream from its token's count.
pub(crate) struct StreamAccess {
    state: Arc<GatewayState>,
    token: TokenHash,
    subject: StreamSubject,
    changes: watch::Receiver<()>,
    checked: Instant,
    is_counted: bool,
}

impl StreamAccess {
    /// Checks the right to a stream, and counts the stream.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthorized`], [`ErrorCode::NotFound`] for a subject that the reader does not see,
    /// [`ErrorCode::TooMany`].
    pub(crate) async fn new(
        state: Arc<GatewayState>,
        token: TokenHash,
        subject: StreamSubject,
    ) -> Result<Self, ApiError> {
        // Subscribe first, so that a change during the check is not missed.
        let changes = state.stream_accesses.changes.subscribe();
        let identity = check(&state, &token, &subject).await?;
        let is_counted = identity != Identity::Admin;
        if is_counted {
            let mut open = state.stream_accesses.open_streams.lock();
            let count = open.entry(token.clone()).or_default();
            if *count >= MAX_STREAMS_PER_TOKEN {
                let message =
                    format!("{MAX_STREAMS_PER_TOKEN} streams of this token are open, which is the limit");
                return Err(ApiError::new(ErrorCode::TooMany, message));
            }
            *count += 1;
        }
        Ok(Self { state, token, subject, changes, checked: Instant::now(), is_counted })
    }

    /// Returns the topic of the stream.
    pub(crate) fn topic(&self) -> String {
        self.subject.topic()
    }

    /// Waits until the right may have changed.
    pub(crate) async fn wait_for_possible_change(&mut self) {
        tokio::select! {
            // The sender lives in the core, so `changed` cannot fail. It marks the change as seen, but
            // `ensure_allowed` must still see it.
            _ = self.changes.changed() => self.changes.mark_changed(),
            () = sleep_until(self.checked + RECHECK_INTERVAL) => {}
        }
    }

    /// Checks that the reader may continue. Asks the store only if the right may have changed.
    ///
    /// # Errors
    /// [`ApiError`] if the right is lost, or if the store cannot be read.
    pub(crate) async fn ensure_allowed(&mut self) -> Result<(), ApiError> {
        let has_changed = self.changes.has_changed().unwrap_or(true);
        if has_changed || self.checked.elapsed() >= RECHECK_INTERVAL {
            // Clear the mark before the check, so that a change during the check triggers another check.
            self.changes.mark_unchanged();
            check(&self.state, &self.token, &self.subject).await?;
            self.checked = Instant::now();
        }
        Ok(())
    }
}

impl Drop for StreamAccess {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let mut open = self.state.stream_accesses.open_streams.lock();
        if let Some(count) = open.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                // Remove the entry, so that the map does not grow with every token.
                open.remove(&self.token);
            }
        }
    }
}

/// Returns the holder of the token, if the holder may see the subject.
///
/// # Errors
/// [`ErrorCode::Unauthorized`], [`ErrorCode::NotFound`].
async fn check(
    state: &GatewayState,
    token: &TokenHash,
    subject: &StreamSubject,
) -> Result<Identity, ApiError> {
    let identity = Identity::of_token(state, token).await?;
    match subject {
        StreamSubject::Space(id) => {
            identity.ensure_sees_space(state, id).await?;
            // The operator may ask for any id, so look up the space too.
            state.store.space(id).await?;
        }
        StreamSubject::Agent(id) => identity.ensure_sees_agent(state, id).await?,
        StreamSubject::Run(id) => {
            let agent = state.store.run(id).await?.summary.agent;
            identity.ensure_sees_run(state, (id, &agent)).await?;
        }
    }
    Ok(identity)
}
