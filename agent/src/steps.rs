//! The steps of a run. Each step turns one storable state into the next, and [`RunState::next`] names the
//! step that follows. [`AgentLoop::run`] drives the steps.

use std::sync::Arc;

use portcullis_types::{Message, OfferedTool, error_chain};

use super::{
    AgentEnd, AgentEvent, AgentLoop, ModelRequest, ProviderErrorKind, StopReason,
    call_ids::CallIds,
    calls::CallRunner,
    embedder::{self, EmbedderError, EmbedderGuard, GuardedEmitter},
    read_response::{BrokenResponse, CompleteResponse, ask},
    repeat_guard::Repeat,
    state::{RunState, RunStep},
    transcript,
};

/// Takes the steps of one run.
pub(super) struct Steps<'a> {
    agent: &'a AgentLoop,
    guard: EmbedderGuard,
    emitter: Arc<GuardedEmitter>,
    run_id: String,
    /// The stored conversation, once a step has read it.
    conversation: Option<Conversation>,
    /// The tools that the model was last offered, once a step has asked for them.
    offers: Option<Vec<OfferedTool>>,
}

struct Conversation {
    /// The messages as they are sent to the provider.
    messages: Vec<Message>,
    ids: CallIds,
}

impl<'a> Steps<'a> {
    pub(super) fn new(agent: &'a AgentLoop, guard: EmbedderGuard, run_id: String) -> Self {
        let emitter = Arc::new(GuardedEmitter::new(Arc::clone(&agent.emitter), guard.clone()));
        Self { agent, guard, emitter, run_id, conversation: None, offers: None }
    }

    /// Reports an event, and waits until the emitter has taken it.
    pub(super) async fn report(&self, event: AgentEvent) {
        self.emitter.report(event).await;
    }

    /// Takes the next step. Does nothing after the last one.
    pub(super) async fn take_step(&mut self, state: &mut RunState) {
        // `CallModel` is only a placeholder: `next` is set again below.
        let next_step = match std::mem::replace(&mut state.next, RunStep::CallModel) {
            RunStep::Setup { prompt } => self.setup(prompt).await,
            RunStep::CallModel => self.call_model(state).await,
            RunStep::RunTools { answer } => self.run_tools(state, answer).await,
            RunStep::Finalize { answer } => self.finalize(state, answer).await,
            ended @ RunStep::Ended { .. } => Ok(ended),
        };
        state.next = next_step.unwrap_or_else(|end| RunStep::Ended { end });
    }

    /// Stores the state after a step. If the store fails, the run ends.
    pub(super) async fn save_state(&self, state: &mut RunState) {
        let keeping = self.guard.run("store", async { self.agent.store.save_state(state).await });
        let kept_turns = keeping
            .await
            .map_err(internal)
            .and_then(|kept_turns| kept_turns.map_err(|error| internal_text(error_chain(&error))));
        if let Err(end) = kept_turns {
            state.next = RunStep::Ended { end };
        }
    }

    /// Stores the prompt.
    async fn setup(&mut self, prompt: Message) -> Result<RunStep, AgentEnd> {
        self.append(vec![prompt]).await?;
        Ok(RunStep::CallModel)
    }

    /// Appends the messages that a person has queued in the meantime, then asks the model.
    async fn call_model(&mut self, state: &mut RunState) -> Result<RunStep, AgentEnd> {
        self.steer().await?;
        self.ensure_running()?;
        let limit = self.agent.config.max_iterations.get();
        if state.turns_for_prompt >= limit {
            return Err(AgentEnd::MaxIterations { limit });
        }
        state.turns_for_prompt += 1;
        let answer = self.ask(state).await?;
        Ok(if answer.calls.is_empty() { RunStep::Finalize { answer } } else { RunStep::RunTools { answer } })
    }

    /// Runs a response's calls, then stores the response and their results in one batch.
    async fn run_tools(
        &mut self,
        state: &mut RunState,
        answer: CompleteResponse,
    ) -> Result<RunStep, AgentEnd> {
        let CompleteResponse { text, calls, stop, usage } = answer;
        let sent_calls = calls.iter().map(|call| transcript::stored_form(&call.call)).collect();
        // Skip refused calls: they have no result that could repeat, and their arguments may be cut off.
        let runs = calls.iter().filter(|call| call.refused.is_none()).map(|call| &call.call);
        let repeat = state.guard.count_calls(runs);
        let message = Arc::new(Message::assistant(text, sent_calls));
        self.report(AgentEvent::MessageEnd { message: Arc::clone(&message) }).await;
        // A driver that resumes at this step has not made an offer yet.
        let offers = match self.offers.take() {
            Some(offers) => offers,
            None => self.list_offers()?,
        };
        let runner = CallRunner {
            config: &self.agent.config,
            executor: &self.agent.executor,
            emitter: &self.emitter,
            handle: &self.agent.handle,
            guard: &self.guard,
            run_id: &self.run_id,
        };
        let results = runner.run(calls, &offers).await;
        let mut batch = Vec::with_capacity(results.len() + 2);
        batch.push(Arc::unwrap_or_clone(message));
        batch.extend(results.iter().map(|result| Message::tool_result(result)));
        if let Repeat::Hint(hint) = &repeat {
            batch.push(hint.clone());
        }
        self.append(batch).await?;
        self.ensure_running()?;
        if let Repeat::End { tool } = repeat {
            return Err(AgentEnd::Repeated { tool });
        }
        self.report(AgentEvent::TurnEnd { iteration: state.turns_total, stop, usage }).await;
        Ok(RunStep::CallModel)
    }

    /// Stores a response without calls, and ends the run unless a person has written in the meantime. Each
    /// message of a person is a new prompt, so the model gets its full number of turns again.
    async fn finalize(
        &mut self,
        state: &mut RunState,
        answer: CompleteResponse,
    ) -> Result<RunStep, AgentEnd> {
        let CompleteResponse { text, stop, usage, .. } = answer;
        self.keep_text(text.clone()).await?;
        let iteration = state.turns_total;
        self.report(AgentEvent::TurnEnd { iteration, stop: stop.clone(), usage }).await;
        if self.agent.handle.wants_to_steer() {
            state.turns_for_prompt = 0;
            return Ok(RunStep::CallModel);
        }
        let arrived = self.take_arrived_messages().await?;
        if !arrived.is_empty() {
            // Do not reset the count of turns: without it, a run whose calls are answered late would never
            // end.
            self.append(arrived.clone()).await?;
            self.report(AgentEvent::Steered { messages: Arc::new(arrived) }).await;
            return Ok(RunStep::CallModel);
        }
        let follow_ups = self.agent.handle.take_follow_ups();
        if follow_ups.is_empty() {
            self.ensure_running()?;
            return Ok(RunStep::Ended { end: run_end(text, stop) });
        }
        state.turns_for_prompt = 0;
        self.append(follow_ups).await?;
        Ok(RunStep::CallModel)
    }

    /// Ends the run if it was cancelled, or if the emitter failed.
    fn ensure_running(&self) -> Result<(), AgentEnd> {
        if self.guard.cancel.is_cancelled() {
            return Err(AgentEnd::Cancelled);
        }
        self.emitter.fault().map_or(Ok(()), |fault| Err(internal(fault)))
    }

    /// Returns the stored conversation. Only the first call reads the store.
    async fn conversation(&mut self) -> Result<&mut Conversation, AgentEnd> {
        let loaded = match self.conversation.take() {
            Some(loaded) => loaded,
            None => {
                let loading = self.guard.run("store", async { self.agent.store.load().await });
                let messages =
                    loading.await.map_err(internal)?.map_err(|error| internal_text(error_chain(&error)))?;
                let messages = transcript::repair(messages);
                Conversation { ids: CallIds::from_messages(&messages), messages }
            }
        };
        Ok(self.conversation.insert(loaded))
    }

    async fn append(&mut self, messages: Vec<Message>) -> Result<(), AgentEnd> {
        self.conversation().await?.messages.extend_from_slice(&messages);
        let appending = self.guard.run("store", async { self.agent.store.append(messages).await });
        appending.await.map_err(internal)?.map_err(|error| internal_text(error_chain(&error)))
    }

    /// Appends the messages that a person has queued during the run, and those that have arrived in the
    /// store.
    async fn steer(&mut self) -> Result<(), AgentEnd> {
        let mut messages = self.agent.handle.take_steering();
        messages.extend(self.take_arrived_messages().await?);
        if messages.is_empty() {
            return Ok(());
        }
        self.append(messages.clone()).await?;
        self.report(AgentEvent::Steered { messages: Arc::new(messages) }).await;
        Ok(())
    }

    async fn take_arrived_messages(&self) -> Result<Vec<Message>, AgentEnd> {
        let reading = self.guard.run("store", async { self.agent.store.take_arrived_messages().await });
        reading.await.map_err(internal)?.map_err(|error| internal_text(error_chain(&error)))
    }

    /// Asks the executor which tools the model may call.
    fn list_offers(&self) -> Result<Vec<OfferedTool>, AgentEnd> {
        embedder::catch_panic("executor", || self.agent.executor.offers()).map_err(internal)
    }

    async fn ask(&mut self, state: &mut RunState) -> Result<CompleteResponse, AgentEnd> {
        let offers = self.list_offers()?;
        state.turns_total += 1;
        self.report(AgentEvent::TurnStart { iteration: state.turns_total }).await;
        let config = &self.agent.config;
        let (provider, idle_timeout) = (Arc::clone(&self.agent.provider), config.model_idle_timeout);
        let system = config.system.iter().map(Message::system);
        let (cancel, emitter) = (self.guard.cancel.child_token(), Arc::clone(&self.emitter));
        let conversation = self.conversation().await?;
        let request = ModelRequest {
            model: config.model.clone(),
            messages: system.chain(conversation.messages.iter().cloned()).collect(),
            tools: offers.iter().map(|offer| offer.decl.clone()).collect(),
            max_tokens: config.max_tokens,
            temperature: config.temperature,
            cancel,
        };
        let outcome = ask(&*provider, request, &offers, &mut conversation.ids, idle_timeout, &emitter).await;
        self.offers = Some(offers);
        match outcome {
            Ok(answer) => {
                state.count(answer.usage);
                Ok(answer)
            }
            Err(BrokenResponse { text, end, usage }) => {
                state.count(usage);
                self.keep_text(text).await?;
                Err(end)
            }
        }
    }

    /// Stores the model's text, unless it is empty.
    async fn keep_text(&mut self, text: String) -> Result<(), AgentEnd> {
        if text.is_empty() {
            return Ok(());
        }
        let message = Message::assistant(text, Vec::new());
        self.append(vec![message.clone()]).await?;
        self.report(AgentEvent::MessageEnd { message: Arc::new(message) }).await;
        Ok(())
    }
}

/// Returns the run's end after a response without calls.
fn run_end(text: String, stop: StopReason) -> AgentEnd {
    let failed = |kind, message: &str| AgentEnd::Provider { kind, message: message.to_owned() };
    match stop {
        StopReason::Length => AgentEnd::Length { text },
        StopReason::ContentFilter => {
            failed(ProviderErrorKind::Rejected, "the provider withheld the rest of the answer")
        }
        StopReason::ToolCalls if text.is_empty() => {
            failed(ProviderErrorKind::Malformed, "the model waits for calls that it has not made")
        }
        // An unknown reason does not say whether the response is complete.
        StopReason::Other(reason) => failed(
            ProviderErrorKind::Incomplete,
            &format!("the answer ended for a reason that is not known: {}", reason.escape_debug()),
        ),
        StopReason::Stop | StopReason::ToolCalls => AgentEnd::Answer { text },
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is used in `map_err`")]
fn internal(fault: EmbedderError) -> AgentEnd {
    internal_text(fault.to_string())
}

fn internal_text(message: String) -> AgentEnd {
    AgentEnd::Internal { message }
}

#[cfg(test)]
mod tests;
