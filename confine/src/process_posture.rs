//! The proven posture of a process, as a value that it can send to its parent.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Layer, LayerStatus, posture::summarize};

/// The proven posture of one process and all its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPosture {
    layers: Vec<LayerReport>,
}

/// One layer of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    /// The layer that was applied or is missing.
    pub layer: Layer,
    /// The degree to which the layer is enforced.
    pub status: LayerStatus,
    /// The attempts, with their outcomes before and after. Empty for a layer that was waived.
    pub evidence: Vec<Evidence>,
}

impl ProcessPosture {
    /// Creates a posture from reports, which keep their order.
    #[must_use]
    pub fn new(layers: Vec<LayerReport>) -> Self {
        Self { layers }
    }

    /// Returns every layer that was tried, each once.
    #[must_use]
    pub fn layers(&self) -> &[LayerReport] {
        &self.layers
    }

    /// Returns the status of one layer, if it was tried.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> Option<&LayerStatus> {
        self.layers.iter().find(|report| report.layer == layer).map(|report| &report.status)
    }

    /// Returns one line for audit rows: `limits=enforced,privileges=enforced,landlock=…,seccomp=enforced`.
    #[must_use]
    pub fn summary(&self) -> String {
        let layers: Vec<String> =
            self.layers.iter().map(|report| summarize(report.layer, &report.status, None)).collect();
        layers.join(",")
    }
}

impl fmt::Display for ProcessPosture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())
    }
}
