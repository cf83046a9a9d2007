//! One process's part of a conversation: asks the questions, shows the answers, and keeps both.

use std::{path::PathBuf, sync::Arc, time::Duration};

use portcullis_adapters::event_formats::EventFormatKind;
use portcullis_agent::AgentRun;
use portcullis_tools::{PolicyFiles, ToolRegistry};
use portcullis_types::{CancellationToken, Message};

use super::{question::Answerer, summary};
use crate::{
    agent_file::Price,
    conversations::{ConversationId, KeptConversation},
    error::CliError,
    output::{live::Live, stream, text},
};

/// How the events of a run are shown.
#[derive(Clone)]
pub(super) enum View {
    /// For a person, on standard error.
    Live(Arc<Live>),
    /// As JSON on standard output, in this format.
    Json(EventFormatKind),
}

/// One process's part of a conversation.
pub(super) struct Session {
    pub(super) id: ConversationId,
    /// The model's name, as the provider knows it.
    pub(super) model: String,
    pub(super) answerer: Answerer,
    pub(super) kept: Arc<KeptConversation>,
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) files: PolicyFiles,
    pub(super) audit_log: PathBuf,
    pub(super) view: View,
    pub(super) price: Option<Price>,
}

impl Session {
    /// Asks a question, and shows what happens.
    ///
    /// # Cancellation
    /// As for [`Answerer::answer`].
    pub(super) async fn ask(
        &self,
        question: Message,
        cancel: &CancellationToken,
    ) -> Result<AgentRun, CliError> {
        let answerer = self.answerer.clone();
        match &self.view {
            View::Live(live) => {
                let show = |event: &_| {
                    live.show(event);
                    Ok(())
                };
                answerer.answer(question, cancel, show).await
            }
            View::Json(form) => {
                let mut format = form.begin();
                answerer.answer(question, cancel, |event| stream::write_answer(&format.lines(event))).await
            }
        }
    }

    /// Shows the answer, unless this terminal or the events have shown it.
    pub(super) fn show_answer(&self, run: &AgentRun) -> Result<(), CliError> {
        let was_shown = matches!(self.view, View::Json(_))
            || (stream::stderr_is_terminal() && stream::stdout_is_terminal());
        let Some(answer) = run.answer().filter(|_| !was_shown) else { return Ok(()) };
        let answer = format!("{answer}\n");
        stream::write_answer(&if stream::stdout_is_terminal() { text::for_terminal(&answer) } else { answer })
    }

    /// Keeps the tokens and the time of a question, and shows them.
    pub(super) fn end_question(&self, run: &AgentRun, elapsed: Duration) -> Result<(), CliError> {
        self.kept.end_question(run.usage, elapsed)?;
        if matches!(self.view, View::Live(_)) {
            let line = summary::line((run.usage, elapsed), self.kept.totals(), self.price.as_ref());
            stream::write_stderr(&line);
        }
        Ok(())
    }

    /// Shows how the conversation goes on later, if it has a question.
    pub(super) fn show_how_to_continue(&self) {
        if self.kept.has_messages() {
            stream::write_stderr(&format!("to go on: portcullis agent --resume {}\n", self.id));
        }
    }
}
