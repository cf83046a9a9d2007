//! [`AgentLoop`]: asks a model, runs the calls that it asks for, and asks again with their results.

use std::{fmt, sync::Arc};

use portcullis_types::{Message, ToolResult, chain};

use super::{
    AgentConfig, AgentEnd, AgentEvent, AgentHandle, AssembledCall, EventEmitter, MessageStore, ModelRequest,
    OfferedTool, Provider, ProviderErrorKind, StopReason, ToolExecutor, Usage,
    call_ids::{CallIds, random_id},
    calls::Calls,
    guard::{Repeat, RepeatGuard},
    guarded::{self, Fault, GracePeriod, Watch},
    read_answer::{Answer, BrokenAnswer, ask},
    transcript,
};

/// An agent: one conversation, a model, and tools (specification 000, "ToolRegistry").
pub struct AgentLoop {
    config: AgentConfig,
    emitter: Arc<dyn EventEmitter>,
    store: Arc<dyn MessageStore>,
    provider: Arc<dyn Provider>,
    executor: Arc<dyn ToolExecutor>,
    handle: AgentHandle,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRun {
    /// The run.
    pub run_id: String,
    /// How it ended.
    pub end: AgentEnd,
    /// How many times the model was asked.
    pub iterations: u32,
    /// Tokens of all answers together, as far as the provider reports them.
    pub usage: Usage,
}

impl AgentRun {
    /// The model's final answer, if the run ended with one.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        match &self.end {
            AgentEnd::Answer { text } => Some(text),
            _ => None,
        }
    }
}

impl AgentLoop {
    /// Creates an agent that reports events to `emitter` (`()` drops them), keeps its conversation in
    /// `store`, asks `llm`, and has `registry` run the calls. All of them may be shared by `Arc`.
    #[must_use]
    pub fn new(
        config: AgentConfig,
        emitter: impl EventEmitter + 'static,
        store: impl MessageStore + 'static,
        llm: impl Provider + 'static,
        registry: impl ToolExecutor + 'static,
    ) -> Self {
        Self {
            config,
            emitter: Arc::new(emitter),
            store: Arc::new(store),
            provider: Arc::new(llm),
            executor: Arc::new(registry),
            handle: AgentHandle::default(),
        }
    }

    /// A handle to the loop: steer a run, queue a follow-up question, cancel.
    #[must_use]
    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Asks the model a question, runs the calls that it asks for, and asks again with their results, until
    /// it answers without calls or the run ends otherwise. Needs a tokio runtime with a timer.
    ///
    /// However the run ends, the stored conversation stays valid for providers: every call has exactly one
    /// result.
    ///
    /// # Cancellation
    /// [`AgentHandle::cancel`] ends the run in order. Dropping the future drops the running calls, emits no
    /// event, and leaves the answer that asked for them out of the conversation.
    pub async fn run(&mut self, question: impl Into<String>) -> AgentRun {
        let question = Message::user(question);
        // Renews the token when the run ends or its future is dropped, so that a cancellation ends only this
        // run.
        let _renews = Renews(&self.handle);
        let patience = GracePeriod { cancel: self.handle.token(), grace: self.config.grace };
        let run_id = self.config.run_id.clone().unwrap_or_else(|| random_id("run"));
        let _ends = EndsRun { agent: self, run_id: run_id.clone() };
        let watch = Arc::new(Watch::new(Arc::clone(&self.emitter), patience.clone()));
        let mut run = Run {
            agent: self,
            patience,
            watch: Arc::clone(&watch),
            run_id: run_id.clone(),
            messages: Vec::new(),
            ids: CallIds::default(),
            guard: RepeatGuard::default(),
            iterations: 0,
            usage: Usage::default(),
        };
        watch.tell(AgentEvent::AgentStart { agent_id: run.agent.config.agent_id.clone(), run_id }).await;
        let end = run.drive(question).await.unwrap_or_else(|end| end);
        watch.tell(AgentEvent::AgentEnd { end: end.clone() }).await;
        let Run { run_id, iterations, usage, .. } = run;
        AgentRun { run_id, end, iterations, usage }
    }
}

/// Renews the handle's cancellation token on drop, for the next run.
struct Renews<'a>(&'a AgentHandle);

impl Drop for Renews<'_> {
    fn drop(&mut self) {
        self.0.renew();
    }
}

/// Tells the executor on drop that the run is over.
struct EndsRun<'a> {
    agent: &'a AgentLoop,
    run_id: String,
}

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        let AgentLoop { executor, config, .. } = self.agent;
        // The run has ended already; a panic of the executor must not change that.
        let _ = guarded::call("executor", || executor.run_ended(&config.agent_id, &self.run_id));
    }
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop").field("config", &self.config).finish_non_exhaustive()
    }
}

/// State of a run in progress.
struct Run<'a> {
    agent: &'a AgentLoop,
    patience: GracePeriod,
    watch: Arc<Watch>,
    run_id: String,
    /// The conversation as it is sent to the provider.
    messages: Vec<Message>,
    ids: CallIds,
    guard: RepeatGuard,
    iterations: u32,
    usage: Usage,
}

impl Run<'_> {
    /// Drives the run. An end is returned as an error, so that every step can end the run with `?`.
    async fn drive(&mut self, question: Message) -> Result<AgentEnd, AgentEnd> {
        self.load().await?;
        self.append(vec![question]).await?;
        let limit = self.agent.config.max_iterations.get();
        let mut left = limit;
        loop {
            self.steer().await?;
            self.go_on()?;
            if left == 0 {
                return Err(AgentEnd::MaxIterations { limit });
            }
            left -= 1;
            let offers = guarded::call("executor", || self.agent.executor.offers()).map_err(internal)?;
            let answer = self.ask(&offers).await?;
            let (iteration, stop, usage) = (self.iterations, answer.stop.clone(), answer.usage);
            let last = if answer.calls.is_empty() {
                Some(self.keep_answer(answer).await?)
            } else {
                self.run_calls(answer, &offers).await?;
                None
            };
            self.watch.tell(AgentEvent::TurnEnd { iteration, stop, usage }).await;
            let Some(end) = last else { continue };
            if self.agent.handle.wants_to_steer() {
                // Steering after an answer: the model gets its full number of turns again.
                left = limit;
                continue;
            }
            let follow_ups = self.agent.handle.take_follow_ups();
            if follow_ups.is_empty() {
                self.go_on()?;
                return Ok(end);
            }
            // A follow-up question: the model gets its full number of turns again.
            left = limit;
            self.append(follow_ups).await?;
        }
    }

    /// Ends the run if it was cancelled, or if the emitter failed.
    fn go_on(&self) -> Result<(), AgentEnd> {
        if self.patience.cancel.is_cancelled() {
            return Err(AgentEnd::Cancelled);
        }
        self.watch.fault().map_or(Ok(()), |fault| Err(internal(fault)))
    }

    async fn load(&mut self) -> Result<(), AgentEnd> {
        let loading = self.patience.with("store", async { self.agent.store.load().await });
        let messages = loading.await.map_err(internal)?.map_err(|error| internal_text(chain(&error)))?;
        self.messages = transcript::repaired(messages);
        self.ids = CallIds::of(&self.messages);
        Ok(())
    }

    async fn append(&mut self, messages: Vec<Message>) -> Result<(), AgentEnd> {
        self.messages.extend_from_slice(&messages);
        let appending = self.patience.with("store", async { self.agent.store.append(messages).await });
        appending.await.map_err(internal)?.map_err(|error| internal_text(chain(&error)))
    }

    /// Appends the messages that a person queued during the run.
    async fn steer(&mut self) -> Result<(), AgentEnd> {
        let messages = self.agent.handle.take_steering();
        if messages.is_empty() {
            return Ok(());
        }
        self.append(messages.clone()).await?;
        self.watch.tell(AgentEvent::Steered { messages: Arc::new(messages) }).await;
        Ok(())
    }

    async fn ask(&mut self, offers: &[OfferedTool]) -> Result<Answer, AgentEnd> {
        self.iterations += 1;
        self.watch.tell(AgentEvent::TurnStart { iteration: self.iterations }).await;
        let config = &self.agent.config;
        let system = config.system.iter().map(Message::system);
        let request = ModelRequest {
            model: config.model.clone(),
            messages: system.chain(self.messages.iter().cloned()).collect(),
            tools: offers.iter().map(|offer| offer.decl.clone()).collect(),
            max_tokens: config.max_tokens,
            temperature: config.temperature,
            cancel: self.patience.cancel.child_token(),
        };
        let ids = std::mem::take(&mut self.ids);
        match ask(&*self.agent.provider, request, offers, ids, config.model_silence, &self.watch).await {
            Ok(mut answer) => {
                self.ids = std::mem::take(&mut answer.ids);
                self.count(answer.usage);
                Ok(answer)
            }
            Err(BrokenAnswer { text, end, usage }) => {
                self.count(usage);
                self.keep_text(text).await?;
                Err(end)
            }
        }
    }

    fn count(&mut self, usage: Option<Usage>) {
        let Usage { input_tokens, output_tokens } = usage.unwrap_or_default();
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(output_tokens);
    }

    /// Stores the model's text; empty text is not stored.
    async fn keep_text(&mut self, text: String) -> Result<(), AgentEnd> {
        if text.is_empty() {
            return Ok(());
        }
        let message = Message::assistant(text, Vec::new());
        self.append(vec![message.clone()]).await?;
        self.watch.tell(AgentEvent::MessageEnd { message: Arc::new(message) }).await;
        Ok(())
    }

    /// Stores an answer without calls, and returns the end that it means for the run.
    async fn keep_answer(&mut self, answer: Answer) -> Result<AgentEnd, AgentEnd> {
        let Answer { text, stop, .. } = answer;
        self.keep_text(text.clone()).await?;
        let failed = |kind, message: &str| AgentEnd::Provider { kind, message: message.to_owned() };
        Ok(match stop {
            StopReason::Length => AgentEnd::Length { text },
            StopReason::ContentFilter => {
                failed(ProviderErrorKind::Rejected, "the provider withheld the rest of the answer")
            }
            StopReason::ToolCalls if text.is_empty() => {
                failed(ProviderErrorKind::Malformed, "the model waits for calls that it has not made")
            }
            // Whether the answer is complete is not known.
            StopReason::Other(reason) => failed(
                ProviderErrorKind::Incomplete,
                &format!("the answer ended for a reason that is not known: {}", reason.escape_debug()),
            ),
            StopReason::Stop | StopReason::ToolCalls => AgentEnd::Answer { text },
        })
    }

    /// Runs an answer's calls, then stores the answer and their results in one batch.
    async fn run_calls(&mut self, answer: Answer, offers: &[OfferedTool]) -> Result<(), AgentEnd> {
        let asked = answer.calls.iter().map(|call| transcript::sendable(&call.call)).collect();
        let mut repeat = Repeat::No;
        let mut repeated = String::new();
        // Skip refused calls: they give no result that could be repeated, and their arguments may be cut off.
        let run = |call: &&AssembledCall| call.refused.is_none();
        for AssembledCall { call, .. } in answer.calls.iter().filter(run) {
            match self.guard.see(call) {
                Repeat::No => {}
                Repeat::End => {
                    repeat = Repeat::End;
                    repeated.clone_from(&call.tool);
                }
                hint @ Repeat::Hint(_) if repeat != Repeat::End => repeat = hint,
                Repeat::Hint(_) => {}
            }
        }
        let message = Arc::new(Message::assistant(answer.text, asked));
        self.watch.tell(AgentEvent::MessageEnd { message: Arc::clone(&message) }).await;
        let calls = Calls {
            config: &self.agent.config,
            executor: &self.agent.executor,
            watch: &self.watch,
            handle: &self.agent.handle,
            patience: &self.patience,
            run_id: &self.run_id,
        };
        let results: Vec<Arc<ToolResult>> = calls.run(answer.calls, offers).await;
        let mut batch = Vec::with_capacity(results.len() + 2);
        batch.push(Arc::unwrap_or_clone(message));
        batch.extend(results.iter().map(|result| Message::tool_result(result)));
        if let Repeat::Hint(hint) = &repeat {
            batch.push(hint.clone());
        }
        self.append(batch).await?;
        self.go_on()?;
        match repeat {
            Repeat::End => Err(AgentEnd::Repeated { tool: repeated }),
            Repeat::No | Repeat::Hint(_) => Ok(()),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn internal(fault: Fault) -> AgentEnd {
    internal_text(fault.to_string())
}

fn internal_text(message: String) -> AgentEnd {
    AgentEnd::Internal { message }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
