//! Approves a tool of a foreign module: shows its current state and the earlier approval, and pins it or withdraws the
//! pin.
//!
//! A pin or a withdrawal is recorded in the audit log before the lock file is changed. If the lock file then
//! cannot be written, an `end` row with the same id records the failure.

use std::{path::Path, sync::Arc};

use portcullis_policy::ToolOrigin;
use portcullis_types::{ToolErrorKind, ToolName};

use super::{ApproveError, DeclarationSummary, LockError, Pin, PinError, Pins};
use crate::{
    audit::{CallEnd, NewRow, Outcome, RowFields},
    call::random_id,
    registered::RegisteredTool,
    registry::ToolRegistry,
};

/// A tool that waits for an approval.
#[derive(Debug)]
pub struct ModuleApproval<'a> {
    tool: Arc<RegisteredTool>,
    declared: DeclarationSummary,
    before: Option<&'a Pin>,
    registry: &'a ToolRegistry,
}

/// A difference between the approved state and the current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleChange {
    /// The item that changed: `module`, `declarations`, or the name of a property of [`DeclarationSummary::properties`].
    pub what: String,
    /// The approved value.
    pub before: String,
    /// The current value.
    pub now: String,
}

impl ToolRegistry {
    /// Returns the pin that an approval of a tool would write. Writes nothing.
    ///
    /// # Errors
    /// [`ApproveError`] for an unknown name, or for a tool that does not come from a foreign module.
    pub fn approval_of(&self, name: &str) -> Result<ModuleApproval<'_>, ApproveError> {
        let tool = self.get(name).ok_or_else(|| ApproveError::Unknown { name: name.to_owned() })?;
        let descriptor = tool.descriptor();
        let declared = tool.declared().filter(|_| descriptor.origin == ToolOrigin::ForeignModule).cloned();
        let Some(declared) = declared else {
            return Err(ApproveError::NotForeign { name: descriptor.name.clone() });
        };
        let before = self.findings().pins.pin(&descriptor.name);
        Ok(ModuleApproval { tool, declared, before, registry: self })
    }

    /// Withdraws the approval of a name, even if no tool has that name at present. From the next start on,
    /// the name counts as never approved: the policy alone decides, even about a tool that was quarantined.
    /// `agent` is recorded as the author of the change.
    ///
    /// # Errors
    /// [`PinError`] if the withdrawal failed. The approval then stays.
    pub fn revoke(&self, name: &str, agent: &str) -> Result<Pin, PinError> {
        let pinned = ToolName::parse(name)
            .ok()
            .and_then(|name| Some((self.findings().pins.pin(&name)?.clone(), name)));
        let Some((pin, name)) = pinned else { return Err(PinError::NotPinned { name: name.to_owned() }) };
        let row = self.row("revoke", &name, &pin, agent);
        self.recorded(&NewRow::revoke(&row), || Pins::unpin_now(&self.findings().state, &name))?;
        Ok(pin)
    }

    /// Records a change of the lock file, then makes the change.
    fn recorded(&self, row: &NewRow, change: impl FnOnce() -> Result<(), LockError>) -> Result<(), PinError> {
        self.audit().append(row)?;
        let result = change();
        if result.is_err() {
            let failed_ending = CallEnd::new(Outcome::Error(ToolErrorKind::Failed));
            // Ignore a failed append: the caller gets the error of the change in any case.
            let _ = self.audit().append(&NewRow::end(&row.fields, failed_ending));
        }
        Ok(result?)
    }

    /// Builds the audit row of a pin: agent, tool and module. `args_sha256` is the digest of the
    /// declarations.
    fn row(&self, kind: &str, name: &ToolName, pin: &Pin, agent: &str) -> Arc<RowFields> {
        Arc::new(RowFields {
            call_id: random_id(kind).into(),
            agent: Some(agent.into()),
            tool: name.as_str().into(),
            args_sha256: Some(pin.declarations_sha256.as_str().into()),
            policy_digest: Some(self.policy().digest().as_str().into()),
            module_sha256: Some(pin.module_sha256.as_str().into()),
            rule: Some(format!("portcullis.lock: tools.{name}").into()),
            ..RowFields::default()
        })
    }
}

impl ModuleApproval<'_> {
    /// The tool to approve, in its current state.
    #[must_use]
    pub fn tool(&self) -> &RegisteredTool {
        &self.tool
    }

    /// The tool's declaration.
    #[must_use]
    pub fn declared(&self) -> &DeclarationSummary {
        &self.declared
    }

    /// The earlier approval, if there is one.
    #[must_use]
    pub fn previous_pin(&self) -> Option<&Pin> {
        self.before
    }

    /// The file that the pin is written to.
    #[must_use]
    pub fn lock(&self) -> &Path {
        self.registry.findings().pins.path()
    }

    /// The differences from the approved state. Empty if there is no earlier approval.
    #[must_use]
    pub fn changes(&self) -> Vec<ModuleChange> {
        let Some(earlier_pin) = self.before else { return Vec::new() };
        let pin = self.as_pin();
        let mut changes = Vec::new();
        let mut compare = |what: &str, before: &str, now: &str| {
            if before != now {
                let [what, before, now] = [what, before, now].map(str::to_owned);
                changes.push(ModuleChange { what, before, now });
            }
        };
        compare("module", &earlier_pin.module_sha256, &pin.module_sha256);
        for (name, now) in &pin.declares {
            compare(name, earlier_pin.declares.get(name).map_or("not recorded", String::as_str), now);
        }
        compare("declarations", &earlier_pin.declarations_sha256, &pin.declarations_sha256);
        changes
    }

    /// Pins the tool in its current state. The pin takes effect at the next start. `agent` is recorded as the author of
    /// the change.
    ///
    /// # Errors
    /// [`PinError`] if no pin was written.
    pub fn pin(&self, agent: &str) -> Result<(), PinError> {
        let (name, pin) = (&self.tool.descriptor().name, self.as_pin());
        let row = self.registry.row("approve", name, &pin, agent);
        self.registry
            .recorded(&NewRow::approve(&row), || Pins::pin_now(&self.registry.findings().state, name, pin))
    }

    fn as_pin(&self) -> Pin {
        let digest = self.tool.module().map(|module| module.digest().to_string());
        Pin {
            module: self.tool.module_name().unwrap_or_default().to_owned(),
            module_sha256: digest.unwrap_or_default(),
            declarations_sha256: self.declared.sha256().to_owned(),
            declares: self
                .declared
                .properties()
                .iter()
                .map(|(name, property)| ((*name).to_owned(), property.clone()))
                .collect(),
        }
    }
}
