//! Single steps of a run, for a driver that decides elsewhere which step comes next. Each step may run in
//! another process.

use std::sync::Arc;

use portcullis_types::ToolResult;

use super::{
    AgentLoop,
    agent_loop::TokenRenewalGuard,
    call_ids::random_id,
    calls::CallRunner,
    embedder::{self, EmbedderGuard, GuardedEmitter},
    state::{RunState, RunStep},
    steps::Steps,
};

impl AgentLoop {
    /// Takes the step that follows this state, and returns the state after it. The store gets the new state
    /// if `saves` returns `true`. Otherwise the step counts as not taken, and can be repeated from the old
    /// state. The state of a run that has ended is returned unchanged.
    ///
    /// Reports neither the start nor the end of the run, and does not tell the executor that the run has
    /// ended. The driver does both.
    ///
    /// # Cancellation
    /// Same as [`AgentLoop::resume`].
    pub async fn take_step(
        &mut self,
        mut state: RunState,
        saves: impl FnOnce(&RunState) -> bool + Send,
    ) -> RunState {
        if state.end().is_some() {
            return state;
        }
        let _token_renewal = TokenRenewalGuard(&self.handle);
        let guard = EmbedderGuard { cancel: self.handle.token(), grace: self.config.grace };
        let mut steps = Steps::new(self, guard, self.run_id());
        steps.take_step(&mut state).await;
        if saves(&state) {
            steps.save_state(&mut state).await;
        }
        state
    }

    /// Runs one of the calls of a state's next step, and returns its result. Stores nothing: the step itself
    /// finds the result through its executor. Returns `None` if the next step has no such call, or if the
    /// loop refuses it.
    ///
    /// # Cancellation
    /// [`AgentHandle::cancel`](super::AgentHandle::cancel) ends the call gracefully. Dropping the future drops the call.
    pub async fn run_call(&mut self, state: &RunState, call_id: &str) -> Option<Arc<ToolResult>> {
        let RunStep::RunTools { answer } = &state.next else { return None };
        let is_call = |call: &&super::AssembledCall| call.call.id == call_id && call.refused.is_none();
        let call = answer.calls.iter().find(is_call)?.clone();
        let _token_renewal = TokenRenewalGuard(&self.handle);
        let guard = EmbedderGuard { cancel: self.handle.token(), grace: self.config.grace };
        let emitter = Arc::new(GuardedEmitter::new(Arc::clone(&self.emitter), guard.clone()));
        let run_id = self.run_id();
        let runner = CallRunner {
            config: &self.config,
            executor: &self.executor,
            emitter: &emitter,
            handle: &self.handle,
            guard: &guard,
            run_id: &run_id,
        };
        // The offers only determine concurrency, so a single call can run without them.
        let offers = embedder::catch_panic("executor", || self.executor.offers()).unwrap_or_default();
        runner.run(vec![call], &offers).await.into_iter().next()
    }

    fn run_id(&self) -> String {
        self.config.run_id.clone().unwrap_or_else(|| random_id("run"))
    }
}
