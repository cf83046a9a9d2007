//! Approving a tool of a module from outside: what it is now, what was approved before, the pin, and its end.
//!
//! Either is on record before it is done. What is on record may not have been done, if the lock could not be
//! written; then a row `end` of the same id says so.

use std::{path::Path, sync::Arc};

use portcullis_policy::{Standing, ToolOrigin};
use portcullis_types::{ToolErrorKind, ToolName};

use super::{ApproveError, Declared, Lock, LockError, Pin, PinError};
use crate::{
    audit::{CallRecord, Ending, Outcome, Record},
    call::random_id,
    registered::RegisteredTool,
    registry::ToolRegistry,
};

/// A tool as it stands to be approved.
#[derive(Debug)]
pub struct ModuleApproval<'a> {
    tool: &'a RegisteredTool,
    declared: &'a Declared,
    before: Option<&'a Pin>,
    registry: &'a ToolRegistry,
}

/// Something that is not as it was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What: `module`, or the name of a fact of [`Declared::facts`].
    pub what: String,
    /// As it was approved.
    pub before: String,
    /// As it is now.
    pub now: String,
}

impl ToolRegistry {
    /// What approving a tool would pin. Nothing is pinned yet.
    ///
    /// # Errors
    /// [`ApproveError`] for a name that no tool has, or one that is not of a module from outside.
    pub fn approval_of(&self, name: &str) -> Result<ModuleApproval<'_>, ApproveError> {
        let tool = self.get(name).ok_or_else(|| ApproveError::Unknown { name: name.to_owned() })?;
        let facts = tool.facts();
        match tool.declared() {
            Some(declared) if facts.origin == ToolOrigin::ForeignModule => Ok(ModuleApproval {
                tool,
                declared,
                before: self.setup().lock.pin(&facts.name),
                registry: self,
            }),
            _ => Err(ApproveError::NotOutside { name: facts.name.clone() }),
        }
    }

    /// Withdraws what was approved under a name, whether or not there is a tool of that name now. From the
    /// next start on it is as if nothing had ever been approved: the policy alone decides, also on what was
    /// quarantined. `agent` is who does it, for the row.
    ///
    /// # Errors
    /// [`PinError`]; nothing is withdrawn then.
    pub fn revoke(&self, name: &str, agent: &str) -> Result<Pin, PinError> {
        let pinned =
            ToolName::parse(name).ok().and_then(|name| Some((self.setup().lock.pin(&name)?.clone(), name)));
        let Some((pin, name)) = pinned else { return Err(PinError::NotPinned { name: name.to_owned() }) };
        let row = self.row("revoke", &name, &pin, agent);
        self.recorded(&Record::revoke(&row), || Lock::unpin_now(&self.setup().state, &name))?;
        Ok(pin)
    }

    /// Does something to the lock once its row is written.
    fn recorded(
        &self,
        record: &Record,
        change: impl FnOnce() -> Result<(), LockError>,
    ) -> Result<(), PinError> {
        self.audit().append(record)?;
        let changed = change();
        if changed.is_err() {
            let failed = Ending::new(Outcome::Error(ToolErrorKind::Failed));
            // Whoever asked is told in any case.
            let _ = self.audit().append(&Record::end(&record.call, failed));
        }
        Ok(changed?)
    }

    /// What a row says of a pin: who, which tool, which module, and in the place of the arguments' digest
    /// that of the declarations.
    fn row(&self, what: &str, name: &ToolName, pin: &Pin, agent: &str) -> Arc<CallRecord> {
        Arc::new(CallRecord {
            call_id: random_id(what).into(),
            agent: Some(agent.into()),
            tool: name.as_str().into(),
            args_sha256: Some(pin.declarations_sha256.as_str().into()),
            policy_digest: Some(self.policy().digest().as_str().into()),
            module_sha256: Some(pin.module_sha256.as_str().into()),
            rule: Some(format!("portcullis.lock: tools.{name}").into()),
            ..CallRecord::default()
        })
    }
}

impl ModuleApproval<'_> {
    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &RegisteredTool {
        self.tool
    }

    /// What it says of itself.
    #[must_use]
    pub fn declared(&self) -> &Declared {
        self.declared
    }

    /// What was approved before, if anything was.
    #[must_use]
    pub fn before(&self) -> Option<&Pin> {
        self.before
    }

    /// Whether what is there is what was approved.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.tool.facts().standing == Standing::Approved
    }

    /// The file that the pin is written to.
    #[must_use]
    pub fn lock(&self) -> &Path {
        self.registry.setup().lock.path()
    }

    /// What is not as it was approved; nothing where nothing was.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let Some(before) = self.before else { return Vec::new() };
        let pin = self.as_pin();
        let mut changes = Vec::new();
        let mut compare = |what: &str, before: &str, now: &str| {
            if before != now {
                let [what, before, now] = [what, before, now].map(str::to_owned);
                changes.push(Change { what, before, now });
            }
        };
        compare("module", &before.module_sha256, &pin.module_sha256);
        for (name, now) in &pin.declares {
            compare(name, before.declares.get(name).map_or("not recorded", String::as_str), now);
        }
        compare("declarations", &before.declarations_sha256, &pin.declarations_sha256);
        changes
    }

    /// Pins the tool as it is now. It holds from the next start on. `agent` is who does it, for the row.
    ///
    /// # Errors
    /// [`PinError`]; nothing is pinned then.
    pub fn pin(&self, agent: &str) -> Result<(), PinError> {
        let (name, pin) = (&self.tool.facts().name, self.as_pin());
        let row = self.registry.row("approve", name, &pin, agent);
        self.registry
            .recorded(&Record::approve(&row), || Lock::pin_now(&self.registry.setup().state, name, pin))
    }

    fn as_pin(&self) -> Pin {
        let digest = self.tool.module().map(|module| module.digest().to_string());
        Pin {
            module: self.tool.module_name().unwrap_or_default().to_owned(),
            module_sha256: digest.unwrap_or_default(),
            declarations_sha256: self.declared.sha256().to_owned(),
            declares: self
                .declared
                .facts()
                .iter()
                .map(|(name, fact)| ((*name).to_owned(), fact.clone()))
                .collect(),
        }
    }
}
