//! The model's answers, chosen by the prompt, so that one worker can drive every run of a test.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use portcullis_agent::{DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind};
use portcullis_types::MessageRole;

use crate::model::{Model, Turn};

/// Two turns with read-only calls and calls with effects, and an answer.
pub(crate) const WORK: &str = "Work.";

/// A call that the policy asks about, and an answer.
pub(crate) const ASK: &str = "Ask first.";

/// A slow call, then another call, and an answer.
pub(crate) const SLOW: &str = "Be slow.";

/// A call with a result of 1 MiB.
pub(crate) const LARGE: &str = "Read it all.";

/// Calls that are refused: an unknown tool, and arguments that do not fit.
pub(crate) const WRONG: &str = "Be wrong.";

/// An answer, after the provider has failed as often as the prompt says.
pub(crate) const FAILING: &str = "Fail ";

/// An answer that takes long.
pub(crate) const THINK: &str = "Think.";

/// Six turns of calls.
pub(crate) const LONG: &str = "Work long.";

/// Nine turns of ten calls without effects, for measurements.
pub(crate) const IDLE: &str = "Be idle.";

/// The arguments of the calls of a turn of [`IDLE`]. Each differs from the previous one.
const IDLE_ARGUMENTS: [&str; 10] = [
    "{\"text\":\"0\"}",
    "{\"text\":\"1\"}",
    "{\"text\":\"2\"}",
    "{\"text\":\"3\"}",
    "{\"text\":\"4\"}",
    "{\"text\":\"5\"}",
    "{\"text\":\"6\"}",
    "{\"text\":\"7\"}",
    "{\"text\":\"8\"}",
    "{\"text\":\"9\"}",
];

/// Returns the turns for a prompt.
fn turns(question: &str) -> Vec<Turn> {
    match question {
        WORK => vec![
            Turn::Calls(vec![
                ("look", "{\"text\":\"a\"}"),
                ("look", "{\"text\":\"b\"}"),
                ("note", "{\"text\":\"c\"}"),
            ]),
            Turn::Calls(vec![("note", "{\"text\":\"d\"}"), ("note", "{\"text\":\"e\"}")]),
            Turn::Answer("Done."),
        ],
        ASK => vec![Turn::Calls(vec![("ask", "{\"text\":\"a\"}")]), Turn::Answer("Done.")],
        SLOW => vec![
            Turn::Calls(vec![("slow", "{\"text\":\"a\"}"), ("note", "{\"text\":\"b\"}")]),
            Turn::Answer("Done."),
            Turn::Answer("As you say."),
        ],
        LARGE => vec![Turn::Calls(vec![("large", "{\"text\":\"a\"}")]), Turn::Answer("Done.")],
        WRONG => vec![
            Turn::Calls(vec![("nothing", "{}"), ("note", "{\"text\":7}"), ("note", "{\"text\":\"a\"}")]),
            Turn::Answer("Done."),
        ],
        LONG => {
            let turn = |_| {
                Turn::Calls(vec![
                    ("look", "{\"text\":\"a\"}"),
                    ("note", "{\"text\":\"b\"}"),
                    ("note", "{\"text\":\"c\"}"),
                ])
            };
            (0..4).map(turn).chain([Turn::Answer("Done.")]).collect()
        }
        IDLE => {
            let turn = |_| Turn::Calls(IDLE_ARGUMENTS.map(|arguments| ("idle", arguments)).to_vec());
            (0..9).map(turn).chain([Turn::Answer("Done.")]).collect()
        }
        _ => vec![Turn::Answer("Done.")],
    }
}

/// A model whose answer depends on the prompt.
pub(crate) struct Scripts {
    /// Counts the failures of all processes.
    folder: PathBuf,
    requests: AtomicUsize,
}

impl Scripts {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, requests: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Provider for Scripts {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let question = request.messages.iter().find(|message| message.role == MessageRole::User);
        let question = question.map(portcullis_types::Message::text).unwrap_or_default();
        self.requests.fetch_add(1, Ordering::SeqCst);
        if let Some(wanted) = question.strip_prefix(FAILING) {
            let (kind, times) = wanted.split_once(' ').expect("a kind and a number");
            let kind = match kind {
                "server" => ProviderErrorKind::Server,
                "rate" => ProviderErrorKind::RateLimited,
                _ => ProviderErrorKind::Unauthorized,
            };
            let file = self.folder.join("failures");
            let failures = fs::read_to_string(&file).unwrap_or_default().len();
            if failures < times.parse().expect("a number") {
                fs::write(&file, "x".repeat(failures + 1)).expect("written");
                return Err(ProviderError::new(kind, "it failed"));
            }
        }
        if question == THINK {
            fs::write(self.folder.join("thinks"), "").expect("written");
            std::future::pending::<()>().await;
        }
        Model(turns(&question)).stream(request).await
    }
}
