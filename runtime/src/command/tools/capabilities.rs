//! `portcullis tools --capabilities`: the capabilities that an agent can get.

use portcullis_tools::native::{Capability, CapabilityStatus};
use serde::Serialize;

use crate::{
    error::CliError,
    output::{json, stream, table},
};

#[derive(Debug, Serialize)]
struct ListedCapability {
    id: Capability,
    description: &'static str,
    status: CapabilityStatus,
    tools: &'static [&'static str],
    prompt: &'static str,
}

/// Prints the capabilities as a table or as JSON.
pub(super) fn show(as_json: bool) -> Result<(), CliError> {
    if as_json {
        let descriptor = Capability::ALL.map(|capability| ListedCapability {
            id: capability,
            description: capability.description(),
            status: capability.status(),
            tools: capability.tools(),
            prompt: capability.prompt(),
        });
        return json::write_output(&descriptor);
    }
    let rows = Capability::ALL.map(|capability| {
        let tools = capability.tools().join(", ");
        [
            capability.as_str().to_owned(),
            capability.status().to_string(),
            capability.description().to_owned(),
            tools,
        ]
    });
    stream::write_output(&table::render(["CAPABILITY", "STATUS", "WHAT IT IS", "TOOLS"], rows))
}
