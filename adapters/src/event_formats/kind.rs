//! [`EventFormat`]: converts events to JSON. [`EventFormatKind`] selects a format.

use std::str::FromStr;

use portcullis_agent::AgentEvent;
use serde_json::Value;
use thiserror::Error;

use super::{EverrunsEvents, HsafaEvents, YoagentEvents};

/// An event format of another system. Use one value for each run, because a format keeps state between events.
pub trait EventFormat: Send {
    /// Converts an event to zero or more JSON objects, in order. Call this for each event of the run, in order.
    fn values(&mut self, event: &AgentEvent) -> Vec<Value>;

    /// Converts an event to JSON lines, each with its newline.
    fn lines(&mut self, event: &AgentEvent) -> String {
        self.values(event).into_iter().map(|value| format!("{value}\n")).collect()
    }
}

portcullis_types::word_enum! {
    /// The available event formats.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum EventFormatKind {
        /// The format of Everruns: [`EverrunsEvents`].
        Everruns = "everruns",
        /// The format of Yoagent: [`YoagentEvents`].
        Yoagent = "yoagent",
        /// The format of Hsafa: [`HsafaEvents`].
        Hsafa = "hsafa",
    }
}

impl EventFormatKind {
    /// Creates the format's state for one run.
    #[must_use]
    pub fn begin(self) -> Box<dyn EventFormat> {
        match self {
            Self::Everruns => Box::new(EverrunsEvents::default()),
            Self::Yoagent => Box::new(YoagentEvents::default()),
            Self::Hsafa => Box::new(HsafaEvents::default()),
        }
    }
}

impl FromStr for EventFormatKind {
    type Err = UnknownEventFormat;

    fn from_str(text: &str) -> Result<Self, UnknownEventFormat> {
        let known = Self::ALL.into_iter().find(|format| format.as_str() == text);
        known.ok_or_else(|| UnknownEventFormat { name: text.to_owned() })
    }
}

/// The error for an unknown name of a format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown event format `{}`; use everruns, yoagent or hsafa", name.escape_debug())]
pub struct UnknownEventFormat {
    /// The name that was given.
    pub name: String,
}
