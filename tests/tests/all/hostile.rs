//! Attempts of hostile guests, and their required outcomes.
//!
//! Every attempt goes through the real registry: real modules, confined threads, an audit log on disk.

mod alone;
mod cancellation;
mod descriptors;
mod escapes;
mod guests;
mod isolation;
mod locks;
mod memory;
mod modules;
mod places;
mod posture;
mod protected;
mod races;
mod snapshot;
pub(crate) mod wat_guest;

use portcullis_testing::{CallOutcome, Fixture, TEST_TIMEOUT};
use portcullis_tools::{
    ToolRegistry,
    audit::{Row, RowEvent},
};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

/// Returns a policy entry that lets a tool run without approval.
fn entry(tool: &str, profile: &str, timeout: &str) -> String {
    format!("[tools.{tool}]\nprofile = \"{profile}\"\napproval = \"allow\"\ntimeout = \"{timeout}\"\n")
}

/// One hostile guest in a separate fixture.
struct Trial {
    fixture: Fixture,
    registry: ToolRegistry,
    guest: &'static str,
}

impl Trial {
    /// Creates a trial without mounts, with a long timeout.
    async fn new(guest: &'static str) -> Self {
        Self::with_profile(guest, "Nothing", "60s").await
    }

    async fn with_profile(guest: &'static str, profile: &str, timeout: &str) -> Self {
        let fixture = Fixture::new().with_policy(&entry(guest, profile, timeout));
        Self::in_fixture(fixture, guest).await
    }

    /// Creates a trial in a fixture whose policy already has an entry for the guest.
    async fn in_fixture(fixture: Fixture, guest: &'static str) -> Self {
        fixture.put("README.md", "still here\n");
        let registry = fixture.registry_with(&[guest]).await;
        Self { fixture, registry, guest }
    }

    /// Makes a call that takes at most [`TEST_TIMEOUT`], whatever the guest does.
    async fn call(&self, arguments: Value) -> CallOutcome {
        let answer =
            tokio::time::timeout(TEST_TIMEOUT, CallOutcome::run(&self.registry, self.guest, arguments)).await;
        answer.expect("the call ends by itself")
    }

    /// Returns the last end row of the guest's calls.
    #[track_caller]
    fn row(&self) -> Row {
        let mut rows = self.fixture.rows().into_iter();
        rows.rfind(|row| &*row.tool == self.guest && row.event == RowEvent::End).expect("a row of the guest")
    }

    /// Asserts that the registry still serves other tools.
    async fn assert_others_are_served(&self) {
        let answer =
            CallOutcome::run(&self.registry, "file_read", json!({"path": "/shared/README.md"})).await;
        assert_eq!(answer.text(), "still here\n");
    }

    /// Asserts that the call ends with this error, that the row has this error and the posture, and that the
    /// registry serves later calls of the guest and of others. Returns the message.
    async fn check(&self, arguments: Value, kind: ToolErrorKind, code: &str) -> String {
        let message = self.call(arguments.clone()).await.assert_refused(kind, code);
        let row = self.row();
        assert_eq!(row.outcome.expect("an end has an outcome").as_str(), kind.as_str());
        assert_eq!(row.code.as_deref(), Some(code));
        posture::assert_confined(&row);
        self.assert_others_are_served().await;
        assert_eq!(self.call(arguments).await.assert_refused(kind, code), message, "the second time");
        message
    }
}
