//! Approving a tool of a module from outside: what it is now, what was approved before, and the pin.

use std::path::{Path, PathBuf};

use portcullis_policy::{Standing, ToolOrigin};

use super::{ApproveError, Declared, Lock, LockError, Pin};
use crate::registry::{RegisteredTool, ToolRegistry};

/// A tool as it stands to be approved.
#[derive(Debug)]
pub struct ModuleApproval<'a> {
    tool: &'a RegisteredTool,
    declared: &'a Declared,
    before: Option<&'a Pin>,
    state: PathBuf,
    lock: PathBuf,
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
                before: self.lock.pin(&facts.name),
                state: self.state.clone(),
                lock: self.lock.path().to_owned(),
            }),
            _ => Err(ApproveError::NotOutside { name: facts.name.clone() }),
        }
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
        &self.lock
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

    /// Pins the tool as it is now. It holds from the next start on.
    ///
    /// # Errors
    /// [`LockError`] when the lock cannot be read or written.
    pub fn pin(&self) -> Result<(), LockError> {
        Lock::pin_now(&self.state, &self.tool.facts().name, self.as_pin())
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
