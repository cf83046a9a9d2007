//! [`StoredGrant`]: the tool and the mounts whose data a stored output may contain.

use std::collections::BTreeSet;

use portcullis_policy::{FlowLabel, Grant, GrantedMount};
use portcullis_types::Access;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

/// The grant of a call, as it is stored with the call's output. The policy in force must still give it when the
/// output is read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredGrant {
    /// The tool that made the output.
    pub(crate) tool: String,
    grant: StoredMounts,
    /// Read by [`StoredGrant::labels`], because a reader without them gets another error.
    #[serde(default, rename = "labels")]
    _labels: IgnoredAny,
}

/// The part of a grant's JSON that governs the output.
#[derive(Debug, Deserialize)]
struct StoredMounts {
    mounts: Vec<GrantedMount>,
}

impl StoredGrant {
    /// Returns the JSON to store: the tool, its grant and the labels of its run.
    pub(crate) fn to_json(tool: &str, grant: &Grant, labels: &[FlowLabel]) -> Value {
        json!({ "tool": tool, "grant": grant, "labels": labels })
    }

    /// Parses the stored JSON. `None` if it has an unknown form, so that the output is not given.
    pub(crate) fn parse(stored: &Value) -> Option<Self> {
        Self::deserialize(stored).ok()
    }

    /// Parses the labels in the stored JSON. `None` if they cannot be read.
    pub(crate) fn labels(stored: &Value) -> Option<BTreeSet<FlowLabel>> {
        stored["labels"].as_array()?.iter().map(|label| label.as_str()?.parse().ok()).collect()
    }

    /// Whether these mounts include every mount of the grant, with the same access or more.
    pub(crate) fn is_within(&self, mounts: &[GrantedMount]) -> bool {
        let is_granted = |stored: &GrantedMount| {
            mounts.iter().any(|now| {
                stored.name == now.name && (stored.access == Access::Read || stored.access == now.access)
            })
        };
        self.grant.mounts.iter().all(is_granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(mounts: &Value) -> Vec<GrantedMount> {
        serde_json::from_value(mounts.clone()).expect("mounts")
    }

    #[track_caller]
    fn check(stored: &Value, expected: Option<bool>) {
        let now = mounts(&json!([
            { "name": "shared", "access": "read" },
            { "name": "tmp", "access": "write" },
        ]));
        assert_eq!(StoredGrant::parse(stored).map(|stored| stored.is_within(&now)), expected, "{stored}");
    }

    fn stored(mounts: &Value) -> Value {
        json!({ "tool": "t", "grant": { "profile": "P", "mounts": mounts }, "labels": [] })
    }

    #[test]
    fn every_mount_must_still_be_granted() {
        for (mounts, expected) in [
            (json!([]), true),
            (json!([{ "name": "shared", "access": "read" }]), true),
            (json!([{ "name": "tmp", "access": "read" }]), true),
            (json!([{ "name": "tmp", "access": "write" }]), true),
            (json!([{ "name": "shared", "access": "write" }]), false),
            (json!([{ "name": "vault", "access": "read" }]), false),
            (json!([{ "name": "tmp", "access": "read" }, { "name": "vault", "access": "read" }]), false),
        ] {
            check(&stored(&mounts), Some(expected));
        }
    }

    #[test]
    fn a_grant_of_an_unknown_form_is_not_given() {
        for mounts in [
            Value::Null,
            json!({}),
            json!("shared"),
            json!(["shared"]),
            json!([null]),
            json!([{ "name": "shared" }]),
            json!([{ "access": "read" }]),
            json!([{ "name": "shared", "access": "none" }]),
            json!([{ "name": "shared", "access": true }]),
            json!([{ "name": "../x", "access": "read" }]),
            json!([{ "name": "shared", "access": "read", "path": "/a" }]),
        ] {
            check(&stored(&mounts), None);
        }
        for other in [
            Value::Null,
            json!([]),
            json!({}),
            json!({ "tool": "t" }),
            json!({ "grant": { "mounts": [] } }),
            json!({ "tool": 1, "grant": { "mounts": [] } }),
            json!({ "tool": "t", "grant": {} }),
            json!({ "tool": "t", "grant": { "mounts": [] }, "hosts": [] }),
        ] {
            check(&other, None);
        }
    }

    #[test]
    fn labels_that_cannot_be_read_are_none() {
        assert_eq!(StoredGrant::labels(&json!({ "labels": [] })), Some(BTreeSet::new()));
        for stored in [json!({}), json!({ "labels": {} }), json!({ "labels": [1] })] {
            assert_eq!(StoredGrant::labels(&stored), None, "{stored}");
        }
    }
}
