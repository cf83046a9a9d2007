//! The classes of patterns, against the evaluator.

use std::collections::BTreeSet;

use portcullis_types::{Access, ToolName};
use proptest::prelude::*;

use super::*;
use crate::{
    CallRequest, DEFAULT_POLICY, LoadOptions, PolicySource, RequestedSubject, RunContext, ToolDescriptor,
    shipped_tools,
};

fn load(text: &str) -> WorkspaceSecurityPolicy {
    let operator = PolicySource { name: "p", text };
    let sandbox_tier = portcullis_types::SandboxTier::Process;
    WorkspaceSecurityPolicy::load(&LoadOptions { operator, overlay: None, sandbox_tier })
        .unwrap_or_else(|error| panic!("{error}"))
}

fn classes(policy: &WorkspaceSecurityPolicy, pattern: &str) -> Vec<GuestPath> {
    PathClasses::new(policy).of(&PathPattern::parse(pattern).expect(pattern)).expect(pattern)
}

fn tool(name: &str) -> ToolDescriptor {
    shipped_tools().find(|tool| tool.name == ToolName::parse(name).expect("a name")).expect("a tool")
}

/// The answer of the evaluator, with the code of a denial.
fn answer(
    policy: &WorkspaceSecurityPolicy,
    tool: &ToolDescriptor,
    path: &GuestPath,
    access: Access,
) -> String {
    let subject = RequestedSubject::Path { argument: "path".to_owned(), path: path.clone(), access };
    let labels = [("web".parse().expect("a label"), "call".to_owned())].into_iter().collect();
    let run = RunContext { agent: "a", run: "r", labels: std::sync::Arc::new(labels) };
    match policy.authorize(&CallRequest { tool, subjects: &[subject], run: &run }) {
        Ok(grant) => grant.approval.to_string(),
        Err(denial) => denial.code.to_string(),
    }
}

#[test]
fn every_path_of_a_pattern_is_a_path_of_the_pattern() {
    let policy = load(DEFAULT_POLICY);
    for pattern in ["/shared/**", "/shared/*.sh", "/shared/a*/**/b", "/tmp/x", "src/**/*.rs", "/vault/**"] {
        let parsed = PathPattern::parse(pattern).expect(pattern);
        let found = classes(&policy, pattern);
        assert!(!found.is_empty(), "{pattern}");
        for path in found {
            assert!(parsed.covers(&path, policy.home()), "{pattern}: {path}");
        }
    }
}

#[test]
fn each_kind_of_answer_has_a_path() {
    let policy = load(&format!(
        "{DEFAULT_POLICY}\n[hide]\npaths = [\".env\", \"*.pem\"]\n[tools.file_write]\napproval = \"ask\"\nunasked = {{ path = \"src/**/*.rs\" }}\n"
    ));
    let write = tool("file_write");
    let answers = |pattern: &str| -> BTreeSet<String> {
        classes(&policy, pattern).iter().map(|path| answer(&policy, &write, path, Access::Write)).collect()
    };
    let all = ["allow", "ask", "hidden_path", "protected_path"].map(str::to_owned);
    // After the web, a protected kind is asked about although `unasked` covers it.
    assert_eq!(answers("/shared/**"), BTreeSet::from(all.clone()));
    assert_eq!(answers("/shared/src/**"), BTreeSet::from(all));
    // `build.rs` is a protected kind.
    assert_eq!(answers("/shared/src/*.rs"), ["allow", "ask"].map(str::to_owned).into());
    assert_eq!(answers("/shared/*.pem"), ["hidden_path"].map(str::to_owned).into());
    assert_eq!(answers("/shared/.git/hooks/**"), ["hidden_path", "protected_path"].map(str::to_owned).into());
    assert_eq!(answers("/vault/**"), ["mount_not_granted"].map(str::to_owned).into());
}

#[test]
fn many_hidden_names_make_few_classes() {
    let policy_hiding =
        |globs: &[String]| load(&format!("{DEFAULT_POLICY}\n[hide]\npaths = [{}]\n", globs.join(", ")));
    let words: Vec<String> = (0..40).map(|index| format!("\"*word{index}*\"")).collect();
    let policy = policy_hiding(&words);
    let rules = PathRulesOfMount::new(&policy, "shared");
    assert!(NameGlobs::new(&policy, &rules, &[]).classes(3000).is_some());
    // Each set of the middle parts is a separate state.
    let ends: Vec<String> = ('a'..='z').map(|letter| format!("\"*{letter}{letter}*end\"")).collect();
    let policy = policy_hiding(&ends);
    let rules = PathRulesOfMount::new(&policy, "shared");
    assert_eq!(NameGlobs::new(&policy, &rules, &[]).classes(1000), None);
    let error = TooManyClasses { pattern: "/shared/**".to_owned() };
    assert!(error.to_string().starts_with("`/shared/**` matches more combinations"), "{error}");
}

/// One name of a small alphabet, with invisible characters and both cases.
fn any_name() -> impl Strategy<Value = String> {
    "[abA.\u{200c}]{1,4}".prop_filter("no name", |name| name != "." && name != "..")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Expectations rely on this: a property of all classes is a property of every path.
    #[test]
    fn the_classes_have_every_answer_that_a_path_has(
        hidden in prop::collection::btree_set("[ab]{1,2}[*][ab.]{1,2}|[ab.]{2,3}", 0..3),
        protected in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,2}", 0..3),
        kinds in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,1}|[*][.][ab]{1,2}", 0..3),
        unasked in prop::collection::btree_set("([abA*]{1,2}|[*][*])(/([ab*]{1,2}|[*][*])){0,2}", 0..3),
        pattern in "(/([abA]{0,2}[*]{0,1}[ab]{1,2}|[*][*])){1,3}",
        access in "read|write",
        paths in prop::collection::vec(prop::collection::vec(any_name(), 0..4), 0..24),
    ) {
        let list = |values: &BTreeSet<String>| {
            values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
        };
        let valid = |values: &BTreeSet<String>| -> BTreeSet<String> {
            values.iter().filter(|value| PathPattern::parse(value).is_ok()).cloned().collect()
        };
        let hidden: BTreeSet<String> =
            hidden.into_iter().filter(|name| name != "." && name != "..").collect();
        let unasked = valid(&unasked);
        let text = format!(
            "version = 1\n[mounts]\nm = \"m\"\n[profiles.P]\nmounts = {{ m = \"{access}\" }}\n\
             [tools.file_write]\nprofile = \"P\"\napproval = \"ask\"\nunasked = {{ path = [{}] }}\n\
             [protect]\npaths = [{}]\nkinds = [{}]\n[hide]\npaths = [{}]\n\
             [[flow]]\nafter = [\"web\"]\nthen = [\"write:protected\"]\napproval = \"deny\"\n",
            list(&unasked.iter().map(|pattern| format!("/m/{pattern}")).collect()),
            list(&protected), list(&kinds), list(&hidden),
        );
        let operator = PolicySource { name: "p", text: &text };
        let sandbox_tier = portcullis_types::SandboxTier::Process;
        let loaded =
            WorkspaceSecurityPolicy::load(&LoadOptions { operator, overlay: None, sandbox_tier });
        let Ok(policy) = loaded else { return Ok(()) };
        let Ok(pattern) = PathPattern::parse(&format!("/m{pattern}")) else { return Ok(()) };
        let found = PathClasses::new(&policy).of(&pattern).expect("few classes");
        let write = tool("file_write");
        for access in [Access::Read, Access::Write] {
            let answers: BTreeSet<String> =
                found.iter().map(|path| answer(&policy, &write, path, access)).collect();
            for names in &paths {
                let path = GuestPath::parse(&path_of("m", names)).expect("a path");
                if pattern.covers(&path, policy.home()) {
                    let own = answer(&policy, &write, &path, access);
                    prop_assert!(answers.contains(&own), "{}\n{}: {} is {}, not of {:?}", text, pattern, path, own, answers);
                }
            }
            for path in &found {
                prop_assert!(pattern.covers(path, policy.home()), "{} {}", pattern, path);
            }
        }
    }
}
