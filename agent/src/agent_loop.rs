//! [`AgentLoop`]: a model is asked, its calls are run, and it is asked again with their results.

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

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRun {
    /// The run.
    pub run_id: String,
    /// How it ended.
    pub end: AgentEnd,
    /// How often the model was asked.
    pub iterations: u32,
    /// What all answers have cost together, as far as the provider says so.
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
    /// An agent that tells `emitter` what happens (`()` for nobody), keeps its conversation in `store`, asks `llm`
    /// and has `registry` run the calls. All of them may be shared by `Arc`.
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

    /// A hold on the loop: to say something in between, to add a question, to give the run up.
    #[must_use]
    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Asks the model a question, runs the calls that it asks for and asks again with their results, until it
    /// answers without calls or the run ends otherwise. Needs a tokio runtime with a timer.
    ///
    /// Whatever happens, the stored conversation is one that providers take: every call has exactly one result.
    ///
    /// # Cancellation
    /// [`AgentHandle::cancel`] gives the run up in order. Dropping the future drops the calls that run, tells
    /// nobody, and leaves the answer that asked for them out of the conversation.
    pub async fn run(&mut self, question: impl Into<String>) -> AgentRun {
        let question = Message::user(question);
        // Whether the run ends or its future is dropped: what gave it up does not give up the next one.
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

/// Makes a handle ready for the next run when it is dropped.
struct Renews<'a>(&'a AgentHandle);

impl Drop for Renews<'_> {
    fn drop(&mut self) {
        self.0.renew();
    }
}

/// Tells the executor that a run is over when it is dropped.
struct EndsRun<'a> {
    agent: &'a AgentLoop,
    run_id: String,
}

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        let AgentLoop { executor, config, .. } = self.agent;
        // Its run has its end already, whether or not the executor panics.
        let _ = guarded::call("executor", || executor.run_ended(&config.agent_id, &self.run_id));
    }
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A run while it runs.
struct Run<'a> {
    agent: &'a AgentLoop,
    patience: GracePeriod,
    watch: Arc<Watch>,
    run_id: String,
    /// The conversation, as it is sent.
    messages: Vec<Message>,
    ids: CallIds,
    guard: RepeatGuard,
    iterations: u32,
    usage: Usage,
}

impl Run<'_> {
    /// The way of a run. An end on the way comes as an error, so that every step may be one.
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
                // A person goes on after an answer: the model gets its turns anew.
                left = limit;
                continue;
            }
            let follow_ups = self.agent.handle.take_follow_ups();
            if follow_ups.is_empty() {
                self.go_on()?;
                return Ok(end);
            }
            // A person has asked again: the model gets its turns anew.
            left = limit;
            self.append(follow_ups).await?;
        }
    }

    /// Ends a run that nobody wants any more, or that cannot tell anybody.
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

    /// Adds what a person has said in between.
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

    /// Keeps what a model has said; nothing is no message.
    async fn keep_text(&mut self, text: String) -> Result<(), AgentEnd> {
        if text.is_empty() {
            return Ok(());
        }
        let message = Message::assistant(text, Vec::new());
        self.append(vec![message.clone()]).await?;
        self.watch.tell(AgentEvent::MessageEnd { message: Arc::new(message) }).await;
        Ok(())
    }

    /// Keeps an answer without calls, and says what end it is.
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
            // Whether it is whole, nobody can say.
            StopReason::Other(reason) => failed(
                ProviderErrorKind::Incomplete,
                &format!("the answer ended for a reason that is not known: {}", reason.escape_debug()),
            ),
            StopReason::Stop | StopReason::ToolCalls => AgentEnd::Answer { text },
        })
    }

    /// Runs an answer's calls and keeps the answer with their results, all at once.
    async fn run_calls(&mut self, answer: Answer, offers: &[OfferedTool]) -> Result<(), AgentEnd> {
        let asked = answer.calls.iter().map(|call| transcript::sendable(&call.call)).collect();
        let mut repeat = Repeat::No;
        let mut repeated = String::new();
        // Of what does not run nothing comes that could be wanted again, and its arguments are not known in full.
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
