//! The backend of internal tools. It runs nothing: a call returns its arguments.

use portcullis_types::{ToolError, ToolOutput, async_trait};
use serde_json::json;

use super::{AttemptOutcome, Backend, CallAttempt};
use crate::{audit::Confinement, pipeline::PendingRecord};

/// An internal tool.
#[derive(Debug)]
pub(crate) struct InternalBackend;

#[async_trait]
impl Backend for InternalBackend {
    fn confinement(&self) -> Confinement {
        Confinement::Internal
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        _pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let result = json!({ "success": true, "args": attempt.checked.args.value() });
        Ok(AttemptOutcome::without_retry(Ok(ToolOutput::structured(result))))
    }
}
