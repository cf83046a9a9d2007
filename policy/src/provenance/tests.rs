//! Tests of the sources of values.

use portcullis_types::SandboxTier;

use super::*;
use crate::{DEFAULT_POLICY, PolicySource};

const OPERATOR: &str = "version = 1\n[mounts]\nshared = \"s\"\ntmp = \"t\"\n[profiles.R]\nmounts = { shared = \"write\", tmp = \"read\" }\n[tools.file_read]\nprofile = \"R\"\n[protect]\npaths = [\"Notes\"]\n[[flow]]\nafter = [\"mount:tmp\"]\nthen = [\"shell\", \"write:shared\", \"write:protected\"]\napproval = \"ask\"\n[sandbox.process.limits]\nconcurrency = 5\n";
const OVERLAY: &str = "[profiles.R.mounts]\nshared = \"read\"\ntmp = \"none\"\n[hide]\npaths = [\"*.pem\"]\n";

fn provenance(overlay: Option<&'static str>) -> PolicyProvenance {
    let options = LoadOptions {
        operator: PolicySource { name: "p.toml", text: OPERATOR },
        overlay: overlay.map(|text| PolicySource { name: "o.toml", text }),
        sandbox_tier: SandboxTier::Process,
    };
    PolicyProvenance::read(&options)
}

#[track_caller]
fn check(provenance: &PolicyProvenance, rule: &str, location: &str) {
    let found = provenance.location_of(rule).map(|location| location.to_string());
    assert_eq!(found.as_deref(), Some(location), "{rule}");
}

#[test]
fn a_rule_has_the_place_of_the_text_that_changed_it_last() {
    let alone = provenance(None);
    check(&alone, "profiles.R.mounts.shared", "p.toml:6");
    check(&alone, "tools.file_read.profile", "p.toml:8");
    check(&alone, "limits.concurrency", "p.toml:16");
    check(&alone, "flow[mount:tmp -> shell]", "p.toml:11");
    check(&alone, "flow[mount:tmp -> write:shared]", "p.toml:11");
    check(&alone, crate::WITHHELD_KIND_RULE, "p.toml:11");
    check(&alone, "protect.paths[\"notes\"]", "p.toml:10");
    // The section is missing, so the one around it counts.
    check(&alone, "profiles.R.mounts.vault", "p.toml:6");
    let reduced = provenance(Some(OVERLAY));
    check(&reduced, "profiles.R.mounts.shared", "o.toml:2");
    check(&reduced, "profiles.R.mounts.tmp", "o.toml:3");
    check(&reduced, "hide.paths[\"*.pem\"]", "o.toml:5");
    check(&reduced, "tools.file_read.profile", "p.toml:8");
}

#[test]
fn a_value_that_no_text_sets_is_a_default() {
    let values = provenance(None).values();
    let origin_of = |key: &str, text: &str| {
        let is_it = |value: &&PolicyValue| {
            value.key == key
                && value.value.as_ref().is_none_or(|value| value.as_str().is_none_or(|value| value == text))
        };
        values.iter().find(is_it).map(|value| value.origin.to_string())
    };
    for (key, text, origin) in [
        ("limits.calls_per_minute", "", "default"),
        ("protect.paths", ".git/hooks", "default"),
        ("protect.paths", "notes", "p.toml:10"),
        ("modules.dir", "", "default"),
        ("mounts.tmp", "t", "p.toml:4"),
    ] {
        assert_eq!(origin_of(key, text).as_deref(), Some(origin), "{key} {text}");
    }
}

#[test]
fn every_shipped_value_has_a_source_or_is_a_default() {
    let options = LoadOptions {
        operator: PolicySource { name: "d", text: DEFAULT_POLICY },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    };
    let values = PolicyProvenance::read(&options).values();
    let placed = values.iter().filter(|value| value.origin != ValueSource::Default);
    assert!(placed.count() > 100);
    for value in values.iter().filter(|value| value.key.starts_with("protect.")) {
        assert!(value.value.is_none() || value.origin != ValueSource::Default, "{value:?}");
    }
}
