//! [`EventFormat`]: from events to JSON, and the choice among the forms.

use std::{fmt, str::FromStr};

use portcullis_agent::AgentEvent;
use serde_json::Value;
use thiserror::Error;

use super::{Everruns, Hsafa, Yoagent};

/// Another system's words for a run. One for each run: a form remembers what it needs to say the next event.
pub trait EventFormat: Send {
    /// What an event is in these words: nothing, one JSON object or several, in order. Called for each event
    /// of the run, in order.
    fn values(&mut self, event: &AgentEvent) -> Vec<Value>;

    /// The same as JSON lines, each with its newline.
    fn lines(&mut self, event: &AgentEvent) -> String {
        self.values(event).into_iter().map(|value| format!("{value}\n")).collect()
    }
}

/// Which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventForm {
    /// Those of specification 000: [`Everruns`].
    Everruns,
    /// Those of specification 002: [`Yoagent`].
    Yoagent,
    /// Those of specification 003: [`Hsafa`].
    Hsafa,
}

impl EventForm {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Everruns, Self::Yoagent, Self::Hsafa];

    /// The name, as on a command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everruns => "everruns",
            Self::Yoagent => "yoagent",
            Self::Hsafa => "hsafa",
        }
    }

    /// The form, for one run.
    #[must_use]
    pub fn begin(self) -> Box<dyn EventFormat> {
        match self {
            Self::Everruns => Box::new(Everruns::default()),
            Self::Yoagent => Box::new(Yoagent::default()),
            Self::Hsafa => Box::new(Hsafa::default()),
        }
    }
}

impl fmt::Display for EventForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventForm {
    type Err = UnknownForm;

    fn from_str(text: &str) -> Result<Self, UnknownForm> {
        let known = Self::ALL.into_iter().find(|form| form.as_str() == text);
        known.ok_or_else(|| UnknownForm { name: text.to_owned() })
    }
}

/// There is no form of this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no form `{}`; there are everruns, yoagent and hsafa", name.escape_debug())]
pub struct UnknownForm {
    /// What was asked for.
    pub name: String,
}
