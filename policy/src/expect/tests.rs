//! Files of expectations, their faults and their bounds.

use portcullis_types::SandboxTier;

use super::*;
use crate::{DEFAULT_POLICY, LoadOptions};

fn policy() -> WorkspaceSecurityPolicy {
    let text = format!(
        "{DEFAULT_POLICY}\n[secrets.api]\nfrom = \"env:API_KEY\"\nhosts = [\"https://api.example\"]\nheader = \"X-Key\"\ntools = [\"web_fetch\"]\n"
    )
    .replace("environment = []", "environment = [\"TOKEN\"]");
    let operator = PolicySource { name: "p.toml", text: &text };
    let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
    WorkspaceSecurityPolicy::load(&options).unwrap_or_else(|error| panic!("{error}"))
}

fn read(text: &str) -> Result<Expectations, PolicyError> {
    Expectations::read(PolicySource { name: "e.toml", text }, &policy(), &KnownTools::shipped())
}

#[track_caller]
fn check_faults(text: &str, expected: &[&str]) {
    let error = read(text).expect_err(text).to_string();
    for part in expected {
        assert!(error.contains(part), "{part}\n{error}");
    }
}

#[test]
fn a_whole_file_is_read_with_its_places() {
    let expectations = read(
        "version = 1\n[[expect]]\nname = \"n\"\ntools = [\"file_read\", \"vault_copyto_read\"]\npaths = [\"/vault/**\", \"notes.txt\"]\naccess = \"write\"\nverdict = \"deny\"\ncode = \"mount_read_only\"\nafter = [\"web\", \"mount:shared\", \"secret:api\", \"vault\"]\n\
         [[expect]]\ntool = \"*\"\nurl = \"https://a.example/\"\nverdict = \"ask\"\n\
         [[expect]]\nprofile = \"VaultRead\"\npath = \"/vault/key\"\nverdict = \"allow\"\n\
         [[never]]\nreads = \"env:TOKEN\"\nreaches = \"evil.example\"\nunasked = true\n\
         [[unchanged]]\ndigest = \"0123456789AB\"\nuntil = 2026-12-31\nby = \"j\"\n",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(expectations.len(), 5);
    let first = &expectations.answers[0];
    assert_eq!((first.location.line, first.access.as_slice()), (2, [Access::Write].as_slice()));
    assert_eq!(
        first.subjects[1],
        ExpectedSubject::Path(GuestPath::parse("/shared/notes.txt").expect("a path"))
    );
    assert_eq!(first.after.len(), 4);
    assert_eq!(expectations.answers[1].tools, ExpectedTools::All);
    assert!(expectations.never[0].only_unasked);
    let signed = &expectations.unchanged[0];
    assert_eq!((signed.digest.as_str(), signed.until), ("0123456789ab", Day::parse("2026-12-31").ok()));
    assert!(read("").expect("an empty file").is_empty());
}

#[test]
fn faults_have_their_place_and_a_suggestion() {
    for (text, expected) in [
        ("[[expcet]]\n", &["e.toml:1:3: expcet: unknown key; did you mean `expect`?"][..]),
        (
            "[[expect]]\ntool = \"file_raed\"\nverdict = \"deny\"\nacess = \"read\"\n",
            &[
                "e.toml:2:8: expect[0].tool: no tool has this name: did you mean `file_read`?",
                "e.toml:4:1: expect[0].acess: unknown key; did you mean `access`?",
            ],
        ),
        (
            "[[expect]]\nprofile = \"VaultRaed\"\nverdict = \"deny\"\n",
            &["e.toml:2:11: expect[0].profile: the policy has no such profile; did you mean `VaultRead`?"],
        ),
        (
            "[[expect]]\ntool = \"*\"\npaths = [\"/valt/**\"]\nverdict = \"deny\"\nafter = [\"mount:shraed\", \"x\", \"secret:apj\"]\n",
            &[
                "e.toml:3:10: expect[0].paths[0]: the policy has no such mount; did you mean `vault`?",
                "did you mean `shared`?",
                "unknown label",
                "no such secret; did you mean `api`?",
            ],
        ),
        ("[[expect]]\ntool = \"*\"\nverdict = \"deyn\"\n", &["unknown verdict `deyn`; did you mean `deny`?"]),
        ("[[expect]]\ntool = \"*\"\n", &["expect[0].verdict: missing key"]),
        ("[[expect]]\nverdict = \"deny\"\n", &["expect[0].tool: missing key"]),
        ("[[expect]]\ntool = \"*\"\nprofile = \"VaultRead\"\nverdict = \"deny\"\n", &["write one of"]),
        ("[[expect]]\ntools = []\nverdict = \"deny\"\n", &["an empty list"]),
        (
            "[[expect]]\ntool = \"*\"\nverdict = \"ask\"\ncode = \"protected_path\"\n",
            &["only a denial has a code"],
        ),
        (
            "[[expect]]\ntool = \"*\"\npath = \"/shared/a**\"\nverdict = \"ask\"\n",
            &["`**` must stand for a whole path component"],
        ),
        ("[[expect]]\ntool = \"*\"\npaths = []\nverdict = \"deny\"\n", &["expect[0].paths: an empty list"]),
        (
            "[[expect]]\ntool = \"*\"\naccess = \"read\"\nverdict = \"deny\"\n",
            &["expect[0].access: only a path is accessed"],
        ),
        ("[[expect]]\ntool = 1\nverdict = \"ask\"\n", &["expected a string"]),
        ("[[never]]\nunasked = true\n", &["write `reads`, `writes` or `reaches`"]),
        ("[[never]]\nreads = \"env:TOKNE\"\n", &["no command gets such a variable; did you mean `TOKEN`?"]),
        ("[[never]]\nreads = \"file:x\"\n", &["it is not a source"]),
        ("[[never]]\nreads = \"vault\"\nreaches = \"a b\"\n", &["e.toml:3:11: never[0].reaches: "]),
        ("[[unchanged]]\ndigest = \"012345\"\n", &["it is not a digest"]),
        ("[[unchanged]]\ndigest = \"0123456789ab\"\nuntil = \"2026-02-30\"\n", &["it is not a day"]),
        ("expect = 1\n", &["expected a list"]),
        ("[[expect]\n", &["e.toml:1:"]),
        ("{\"expect\": []}", &["this looks like JSON"]),
        ("[[expect]]\ntool = \"\\u001b[2J\\u202e\"\nverdict = \"deny\"\n", &["no tool has this name"]),
    ] {
        check_faults(text, expected);
    }
    // A mount that must not exist may be named, if that is what is expected.
    read("[[expect]]\ntool = \"*\"\npath = \"/etc/passwd\"\nverdict = \"deny\"\ncode = \"unknown_mount\"\n")
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_file_is_bounded() {
    let one = "[[never]]\nreads = \"vault\"\n";
    check_faults(&one.repeat(MAX_EXPECTATIONS + 1), &["10001 expectations; at most 10000 are allowed"]);
    assert_eq!(read(&one.repeat(MAX_EXPECTATIONS)).map(|read| read.len()).ok(), Some(MAX_EXPECTATIONS));
    check_faults(&"# \n".repeat(MAX_EXPECTATIONS_BYTES / 3 + 1), &["at most 1048576 are allowed"]);
    let many = vec!["\"file_read\""; 257].join(", ");
    check_faults(
        &format!("[[expect]]\ntools = [{many}]\nverdict = \"deny\"\n"),
        &["257 elements; at most 256 are allowed"],
    );
}

#[test]
fn days_are_those_of_the_calendar() {
    for (text, is_day) in [
        ("2026-12-31", true),
        ("2024-02-29", true),
        ("2026-02-29", false),
        ("2000-02-29", true),
        ("1900-02-29", false),
        ("2026-04-31", false),
        ("2026-00-10", false),
        ("2026-13-01", false),
        ("2026-1-1", false),
        ("26-12-31", false),
        ("+026-12-31", false),
        ("2026-12-31T00:00:00Z", false),
    ] {
        assert_eq!(Day::parse(text).map(|day| day.to_string()).as_deref() == Ok(text), is_day, "{text}");
    }
    assert!(Day::parse("2026-12-31") < Day::parse("2027-01-01"));
}

#[test]
fn hosts_meet_rules_that_grant_them() {
    let rule = |text: &str| text.parse::<HostRule>().expect(text);
    for (hosts, granted, meets) in [
        (ExpectedHosts::Any, "https://a.example", true),
        (ExpectedHosts::Host(rule("https://evil.example")), "http://evil.example:8080", true),
        (ExpectedHosts::Host(rule("https://evil.example")), "https://*", true),
        (ExpectedHosts::Host(rule("https://*.example")), "https://a.example", true),
        (ExpectedHosts::Host(rule("https://evil.example")), "https://a.example", false),
        (ExpectedHosts::Rule(rule("https://a.example")), "https://a.example:8443", false),
        (ExpectedHosts::Rule(rule("https://a.example")), "https://*.example", true),
    ] {
        assert_eq!(hosts.meets(&rule(granted)), meets, "{hosts:?} {granted}");
    }
}
