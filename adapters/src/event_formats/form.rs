//! [`EventFormat`]: converts events to JSON; [`EventForm`] selects a format.

use std::str::FromStr;

use portcullis_agent::AgentEvent;
use serde_json::Value;
use thiserror::Error;

use super::{EverrunsEvents, Hsafa, YoagentEvents};

/// An event format of another system. Use one for each run: a format keeps state between events.
pub trait EventFormat: Send {
    /// Converts an event to zero or more JSON objects, in order. Called for each event of the run, in order.
    fn values(&mut self, event: &AgentEvent) -> Vec<Value>;

    /// Converts an event to JSON lines, each with its newline.
    fn lines(&mut self, event: &AgentEvent) -> String {
        self.values(event).into_iter().map(|value| format!("{value}\n")).collect()
    }
}

portcullis_types::words! {
    /// The available event formats.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum EventForm {
        /// Of specification 000: [`EverrunsEvents`].
        Everruns = "everruns",
        /// Of specification 002: [`YoagentEvents`].
        Yoagent = "yoagent",
        /// Of specification 003: [`Hsafa`].
        Hsafa = "hsafa",
    }
}

impl EventForm {
    /// Creates the format's state for one run.
    #[must_use]
    pub fn begin(self) -> Box<dyn EventFormat> {
        match self {
            Self::Everruns => Box::new(EverrunsEvents::default()),
            Self::Yoagent => Box::new(YoagentEvents::default()),
            Self::Hsafa => Box::new(Hsafa::default()),
        }
    }
}

impl FromStr for EventForm {
    type Err = UnknownForm;

    fn from_str(text: &str) -> Result<Self, UnknownForm> {
        let known = Self::ALL.into_iter().find(|form| form.as_str() == text);
        known.ok_or_else(|| UnknownForm { name: text.to_owned() })
    }
}

/// The error of an unknown format name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no form `{}`; use everruns, yoagent or hsafa", name.escape_debug())]
pub struct UnknownForm {
    /// The name that was given.
    pub name: String,
}
