//! What hostile guests try, and what must come of it.
//!
//! All of it goes through the real registry: real modules, confined threads, an audit log on disk.

mod alone;
mod cancellation;
mod descriptors;
mod escapes;
mod guests;
mod isolation;
mod memory;
mod modules;
mod places;
mod posture;
mod protected;
mod races;
mod snapshot;
pub(crate) mod wat_guest;

use std::time::Duration;

use portcullis_testing::{Answer, World};
use portcullis_tools::{
    ToolRegistry,
    audit::{Event, Row},
};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

/// Far above what anything here takes, far below what an unbounded guest would.
const PATIENCE: Duration = Duration::from_secs(120);

/// An entry of a policy that lets a tool run unasked.
fn entry(tool: &str, profile: &str, timeout: &str) -> String {
    format!("[tools.{tool}]\nprofile = \"{profile}\"\napproval = \"allow\"\ntimeout = \"{timeout}\"\n")
}

/// One hostile guest in a world of its own.
struct Trial {
    world: World,
    registry: ToolRegistry,
    guest: &'static str,
}

impl Trial {
    /// With no mounts and plenty of time.
    async fn new(guest: &'static str) -> Self {
        Self::with(guest, "Nothing", "60s").await
    }

    async fn with(guest: &'static str, profile: &str, timeout: &str) -> Self {
        let world = World::new().with_policy(&entry(guest, profile, timeout));
        Self::within(world, guest).await
    }

    /// In a world whose policy has an entry for the guest already.
    async fn within(world: World, guest: &'static str) -> Self {
        world.put("README.md", "still here\n");
        let registry = world.registry_with(&[guest]).await;
        Self { world, registry, guest }
    }

    /// A call that may take at most [`PATIENCE`], whatever the guest does.
    async fn call(&self, arguments: Value) -> Answer {
        let answer = tokio::time::timeout(PATIENCE, Answer::of(&self.registry, self.guest, arguments)).await;
        answer.expect("the call ends by itself")
    }

    /// The last row of the guest's own calls.
    #[track_caller]
    fn row(&self) -> Row {
        let mut rows = self.world.rows().into_iter();
        rows.rfind(|row| &*row.tool == self.guest && row.event == Event::End).expect("a row of the guest")
    }

    /// The registry serves others as before.
    async fn others_go_on(&self) {
        let answer = Answer::of(&self.registry, "file_read", json!({"path": "/shared/README.md"})).await;
        assert_eq!(answer.text(), "still here\n");
    }

    /// The call ends with this error, the row says the same and by whom the guest was held, and the next
    /// calls, of the guest and of others, are served. Returns the message.
    async fn check(&self, arguments: Value, kind: ToolErrorKind, code: &str) -> String {
        let message = self.call(arguments.clone()).await.refused(kind, code);
        let row = self.row();
        assert_eq!(row.outcome.expect("an end has an outcome").as_str(), kind.as_str());
        assert_eq!(row.code.as_deref(), Some(code));
        posture::assert_confined(&row);
        self.others_go_on().await;
        assert_eq!(self.call(arguments).await.refused(kind, code), message, "the second time");
        message
    }
}
