//! `TaskStates`: the states of tasks, each with its folder, and the moves between them.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The states of the tasks of one folder. [`TaskStates::default`] lists the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStates {
    scanned: Vec<ScannedState>,
    pending_approval: String,
    approved: String,
    others: Vec<String>,
}

/// A state whose files are read for calls.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScannedState {
    /// The name of the state's folder.
    pub folder: String,
    /// The folder that a task moves to when all of its calls have succeeded.
    pub on_success: String,
    /// The folder that a task moves to when a call has failed. If it is the same folder, the task stays.
    pub on_failure: String,
}

/// Why states cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatesError {
    /// The text is not TOML of this shape.
    #[error("the states cannot be read")]
    Syntax(#[from] toml::de::Error),
    /// A name cannot be the folder of a state.
    #[error("`{0}` cannot be the folder of a state; write one name without `/` that does not begin with `.`")]
    Name(String),
    /// No state is scanned.
    #[error("no state is scanned; add a `[[scanned]]`")]
    NoneScanned,
    /// Two states are in one folder.
    #[error("`{0}` is the folder of two states")]
    Twice(String),
    /// A task would move to an unknown state.
    #[error("tasks move to `{0}`, which is not a state; add it to `folders`, or correct it")]
    Unknown(String),
    /// Tasks would move in a cycle.
    #[error(
        "a task whose calls have all succeeded in `{0}` would move on for ever; one of the states must not be scanned"
    )]
    Circle(String),
}

/// The structure of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatesFile {
    pending_approval: String,
    approved: String,
    #[serde(default)]
    folders: Vec<String>,
    scanned: Vec<ScannedState>,
}

impl TaskStates {
    /// Parses states from TOML: `pending_approval`, `approved`, `folders` for states that are not scanned,
    /// and a `[[scanned]]` with `folder`, `on_success` and `on_failure` for each scanned state. The state
    /// `approved` is scanned too, and needs a `[[scanned]]`.
    ///
    /// # Errors
    /// [`StatesError`] if the text has another shape, if a folder's name is invalid or used twice, if no
    /// state is scanned, or if tasks would move to an unknown state or in a cycle.
    pub fn parse(text: &str) -> Result<Self, StatesError> {
        let file: StatesFile = toml::from_str(text)?;
        let states = Self {
            scanned: file.scanned,
            pending_approval: file.pending_approval,
            approved: file.approved,
            others: file.folders,
        };
        states.check()?;
        Ok(states)
    }

    /// Returns all folders, sorted and without duplicates.
    #[must_use]
    pub fn folders(&self) -> BTreeSet<&str> {
        let scanned = self.scanned.iter().map(|state| &*state.folder);
        scanned
            .chain([&*self.pending_approval, &*self.approved])
            .chain(self.others.iter().map(|other| &**other))
            .collect()
    }

    /// Returns the states whose files are read for calls.
    #[must_use]
    pub fn scanned(&self) -> &[ScannedState] {
        &self.scanned
    }

    /// Returns the folder of tasks that wait for a person's approval.
    #[must_use]
    pub fn pending_approval(&self) -> &str {
        &self.pending_approval
    }

    /// Returns the folder into which a person moves a task to approve its question.
    #[must_use]
    pub fn approved(&self) -> &str {
        &self.approved
    }

    fn check(&self) -> Result<(), StatesError> {
        if self.scanned.is_empty() {
            return Err(StatesError::NoneScanned);
        }
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        let mut seen = BTreeSet::new();
        let scanned = self.scanned.iter().map(|state| &state.folder);
        for name in scanned.chain([&self.pending_approval]).chain(&self.others) {
            if !is_name(name) {
                return Err(StatesError::Name(name.clone()));
            }
            if !seen.insert(name) {
                return Err(StatesError::Twice(name.clone()));
            }
        }
        let targets = self.scanned.iter().flat_map(|state| [&state.on_success, &state.on_failure]);
        let is_scanned = |name: &String| self.scanned.iter().any(|state| state.folder == *name);
        if let Some(unknown) = targets.into_iter().find(|target| !seen.contains(target)) {
            return Err(StatesError::Unknown(unknown.clone()));
        }
        if !is_scanned(&self.approved) {
            return Err(StatesError::Unknown(self.approved.clone()));
        }
        for start in &self.scanned {
            let mut at = &start.on_success;
            for _step in &self.scanned {
                let Some(next) = self.scanned.iter().find(|state| state.folder == *at) else { break };
                at = &next.on_success;
            }
            // After as many steps as there are states, only a cycle is still in a scanned one.
            if is_scanned(at) {
                return Err(StatesError::Circle(start.folder.clone()));
            }
        }
        Ok(())
    }
}

impl Default for TaskStates {
    /// `01_Inbox`, `04_Approved` and `05_Researching` are scanned. A task whose calls have succeeded moves to
    /// `07_Done`, and from `05_Researching` to `06_Reviewing`; a task with a failed call moves to `02_Needs_Action`. A
    /// call that needs an approval waits in `03_Pending_Approval`, until a person moves its task to `04_Approved`.
    fn default() -> Self {
        let scanned = |folder: &str, on_success: &str| ScannedState {
            folder: folder.to_owned(),
            on_success: on_success.to_owned(),
            on_failure: "02_Needs_Action".to_owned(),
        };
        Self {
            scanned: vec![
                scanned("01_Inbox", "07_Done"),
                scanned("04_Approved", "07_Done"),
                scanned("05_Researching", "06_Reviewing"),
            ],
            pending_approval: "03_Pending_Approval".to_owned(),
            approved: "04_Approved".to_owned(),
            others: ["02_Needs_Action", "06_Reviewing", "07_Done"].map(str::to_owned).into(),
        }
    }
}
