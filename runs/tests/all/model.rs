//! A deterministic model: its answer depends only on the conversation.

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use portcullis_agent::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallDelta,
};
use portcullis_types::MessageRole;

/// A turn of the model: its calls, or its answer.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    /// Calls: tool and arguments.
    Calls(Vec<(&'static str, &'static str)>),
    Answer(&'static str),
    /// A part of an answer. Then the connection breaks.
    Broken(&'static str),
}

/// Gives the turn whose number is the number of answers so far.
#[derive(Debug)]
pub(crate) struct Model(pub(crate) Vec<Turn>);

#[async_trait]
impl Provider for Model {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let answers = request.messages.iter().filter(|message| message.role == MessageRole::Assistant);
        let turn = answers.count();
        let deltas = match &self.0[turn] {
            Turn::Broken(text) => {
                let error = ProviderError::new(ProviderErrorKind::Incomplete, "it broke off");
                let pieces = [Ok(Delta::Text((*text).to_owned())), Err(error)];
                return Ok(stream::iter(pieces).boxed());
            }
            Turn::Answer(text) => {
                vec![Delta::Text((*text).to_owned()), Delta::End(StopReason::Stop)]
            }
            Turn::Calls(calls) => {
                let calls = calls.iter().enumerate().map(|(index, (tool, arguments))| {
                    Delta::ToolCall(ToolCallDelta {
                        index: u64::try_from(index).expect("few calls"),
                        id: Some(format!("call-{turn}-{index}")),
                        name: Some((*tool).to_owned()),
                        arguments: Some((*arguments).to_owned()),
                    })
                });
                calls.chain([Delta::End(StopReason::ToolCalls)]).collect()
            }
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}
