//! Expectations that hold, and the counterexamples of those that do not.

use std::collections::BTreeSet;

use portcullis_policy::{
    Approval, CallRequest, DEFAULT_POLICY, KnownTools, LoadOptions, PathPattern, PolicySource,
    RequestedSubject, RunContext,
};
use portcullis_types::{Access, GuestPath, SandboxTier};
use proptest::prelude::*;

use super::*;
use crate::pipeline::verdict_by_names;

fn explainer(text: &str) -> Explainer {
    let operator = PolicySource { name: "policy.toml", text };
    let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
    let policy = WorkspaceSecurityPolicy::load(&options).unwrap_or_else(|error| panic!("{text}\n{error}"));
    Explainer::by_names(policy, PolicyProvenance::read(&options))
}

fn decide(explainer: &Explainer, expectations: &str) -> ExpectationReport {
    let tools: Vec<ExplainedTool> = ExplainedTool::all_shipped(explainer.policy()).collect();
    let source = PolicySource { name: "expect.toml", text: expectations };
    let expectations = Expectations::read(source, explainer.policy(), &KnownTools::shipped())
        .unwrap_or_else(|error| panic!("{error}"));
    explainer.decide_expectations(&expectations, &tools, Day { year: 2026, month: 11, day: 26 })
}

/// Evaluates one expectation of the shipped policy with an addition. `None` if it holds, else its text.
fn failure(addition: &str, expectation: &str) -> Option<String> {
    let report = decide(&explainer(&format!("{DEFAULT_POLICY}\n{addition}\n")), expectation);
    let [result] = report.results.as_slice() else { panic!("{report:?}") };
    assert_eq!(result.holds, result.counterexample.is_none());
    (!result.holds).then(|| result.to_string())
}

#[track_caller]
fn check_holds(addition: &str, expectation: &str) {
    assert_eq!(failure(addition, expectation), None, "{expectation}");
}

#[track_caller]
fn check_fails(addition: &str, expectation: &str, expected: &[&str]) {
    let text = failure(addition, expectation).unwrap_or_else(|| panic!("it holds: {expectation}"));
    for part in expected {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn expectations_about_a_pattern_cover_every_path() {
    let expect = |tools: &str, rest: &str| format!("[[expect]]\n{tools}\n{rest}\n");
    let all = "tools = \"*\"";
    check_holds("", &expect(all, "paths = \"/vault/**\"\naccess = \"write\"\nverdict = \"deny\""));
    check_fails(
        "",
        &expect(all, "paths = \"/vault/**\"\naccess = \"read\"\nverdict = \"deny\""),
        &["reads /vault: ALLOW by profiles."],
    );
    // A single hidden or protected name anywhere below is found.
    check_holds(
        "",
        &expect("tool = \"file_read\"", "paths = \"/shared/**\"\naccess = \"read\"\nverdict = \"allow\""),
    );
    check_fails(
        "[hide]\npaths = [\"*.pem\"]",
        &expect("tool = \"file_read\"", "paths = \"/shared/**\"\naccess = \"read\"\nverdict = \"allow\""),
        &["DENY hidden_path by hide.paths[\"*.pem\"] (policy.toml:", ".pem"],
    );
    check_fails(
        "",
        &expect("tool = \"file_write\"", "paths = \"/shared/**\"\naccess = \"write\"\nverdict = \"allow\""),
        &["file_write writes /shared/", "DENY protected_path by protect.paths["],
    );
    check_holds("", &expect(all, "path = \"/shared/.git/hooks/x\"\naccess = \"write\"\nverdict = \"deny\""));
    check_holds(
        "",
        &expect(
            "tool = \"file_write\"",
            "paths = \"/shared/**/.git/hooks/**\"\naccess = \"write\"\nverdict = \"deny\"\ncode = \"protected_path\"",
        ),
    );
    // The paths of `unasked` are distinguished from the others.
    let unasked = "[tools.file_write]\napproval = \"ask\"\nunasked = { path = \"src/**\" }";
    check_fails(
        unasked,
        &expect(
            "tool = \"file_write\"",
            "paths = \"src/*\"\naccess = \"write\"\nverdict = \"ask\"\nafter = [\"mount:tmp\"]",
        ),
        &[
            "file_write writes /shared/src/a: ALLOW by tools.file_write.unasked.path[\"src/**\"] (policy.toml:",
        ],
    );
}

#[test]
fn operations_urls_commands_and_profiles_are_judged() {
    for holds in [
        "[[expect]]\ntool = \"vault_copyto\"\npath = \"/vault/key\"\naccess = \"read\"\nverdict = \"allow\"\n",
        "[[expect]]\ntool = \"vault_copyto\"\npath = \"/vault/key\"\naccess = \"write\"\nverdict = \"deny\"\n",
        "[[expect]]\ntool = \"vault_copyto_write\"\npath = \"/vault/key\"\nverdict = \"deny\"\n",
        "[[expect]]\nprofile = \"VaultRead\"\npaths = \"/shared/**\"\nverdict = \"deny\"\n",
        "[[expect]]\ntool = \"web_fetch\"\nurl = \"https://example.com/\"\nverdict = \"ask\"\n",
        "[[expect]]\ntool = \"web_fetch\"\nurl = \"https://example.com/\"\nverdict = \"deny\"\ncode = \"flow_denied\"\nafter = \"vault\"\n",
        "[[expect]]\ntool = \"file_read\"\nurl = \"https://example.com/\"\nverdict = \"deny\"\n",
        "[[expect]]\ntool = \"shell_exec\"\ncommand = [\"git push\", \"ls\"]\nverdict = \"ask\"\n",
        "[[expect]]\ntool = \"file_read\"\ncommand = \"ls\"\nverdict = \"deny\"\ncode = \"commands_not_granted\"\n",
        "[[expect]]\ntool = \"echo\"\nverdict = \"allow\"\n",
        "[[expect]]\ntool = \"*\"\npath = \"/etc/passwd\"\nverdict = \"deny\"\ncode = \"unknown_mount\"\n",
    ] {
        check_holds("", holds);
    }
    check_fails("", "[[expect]]\ntool = \"echo\"\nverdict = \"ask\"\n", &["echo: ALLOW"]);
}

#[test]
fn chains_of_calls_are_found_or_there_are_none() {
    check_fails(
        "",
        "[[never]]\nreads = \"vault\"\nwrites = \"shared\"\n",
        &["/vault → vault_copyto (", ") → /shared"],
    );
    // Data of the vault can reach the web through a copy: each step is named.
    check_fails(
        "",
        "[[never]]\nreads = \"vault\"\nreaches = \"web\"\n",
        &["/vault → vault_copyto", "/shared → ", "the model, after /shared → web_fetch (needs approval:"],
    );
    check_holds("", "[[never]]\nreads = \"vault\"\nreaches = \"web\"\nunasked = true\n");
    check_holds("", "[[never]]\nreads = \"shared\"\nwrites = \"vault\"\n");
    check_holds("", "[[never]]\nwrites = \"vault\"\n");
    check_fails("", "[[never]]\nreads = \"vault\"\n", &["/vault → "]);
    check_fails("", "[[never]]\nreaches = \"example.com\"\n", &["web_fetch (needs approval:"]);
    check_holds("", "[[never]]\nreaches = \"web\"\nunasked = true\n");
    // A source can reach itself.
    check_fails("", "[[never]]\nreads = \"shared\"\nwrites = \"shared\"\n", &["→ /shared"]);
}

#[test]
fn calls_that_are_spared_a_question_count_as_unasked() {
    let asks = "[tools.file_write]\napproval = \"ask\"\n[tools.file_edit]\napproval = \"ask\"\n[tools.file_delete]\napproval = \"ask\"\n";
    let never = "[[never]]\nwrites = \"tmp\"\nunasked = true\n";
    let copy = DEFAULT_POLICY.contains("[tools.vault_copyto]");
    assert!(copy, "the shipped policy has an entry to change");
    let text = |addition: &str| {
        format!("{DEFAULT_POLICY}\n{addition}\n")
            .replace("[tools.vault_copyto] ", "[tools.vault_copyto]\nenabled = false #")
    };
    let holds = |addition: &str| decide(&explainer(&text(addition)), never);
    assert!(holds(asks).holds(), "{:?}", holds(asks).results);
    let spared = asks.replacen("\"ask\"\n", "\"ask\"\nunasked = { path = \"/tmp/a/*\" }\n", 1);
    let report = holds(&spared);
    let shown = report.results[0].to_string();
    assert!(shown.contains("(runs by tools.file_write.unasked.path[\"/tmp/a/*\"]) → /tmp"), "{shown}");
    // A rule about another mount does not affect this one.
    let elsewhere = asks.replacen("\"ask\"\n", "\"ask\"\nunasked = { path = \"src/*\" }\n", 1);
    assert!(holds(&elsewhere).holds(), "{:?}", holds(&elsewhere).results);
    let shell = text(asks).replace("\n[shell]", "\n[shell]\nunasked = [\"ls *\"] #");
    let report = decide(&explainer(&shell), never);
    assert!(report.results[0].to_string().contains("runs by shell.unasked"), "{}", report.results[0]);
}

#[test]
fn a_signature_holds_for_one_digest_until_its_day() {
    let digest = explainer(DEFAULT_POLICY).policy().digest().to_string();
    let start = &digest[..12];
    let check = |rest: &str, expected: Option<&str>| {
        let report = decide(&explainer(DEFAULT_POLICY), &format!("[[unchanged]]\n{rest}\n"));
        let shown = report.results[0].to_string();
        assert_eq!(report.holds(), expected.is_none(), "{shown}");
        assert!(shown.contains(expected.unwrap_or("ok")), "{shown}");
    };
    check(&format!("digest = \"{start}\""), None);
    check(&format!("digest = \"{digest}\"\nuntil = 2026-11-26\nby = \"j\""), None);
    check(
        &format!("digest = \"{digest}\"\nuntil = \"2026-11-25\"\nby = \"j\""),
        Some("expired: it was signed off by j until 2026-11-25"),
    );
    check("digest = \"000000000000\"", Some(&digest));
}

#[test]
fn grants_without_an_expectation_are_named() {
    let explainer = explainer(DEFAULT_POLICY);
    let none = decide(&explainer, "").coverage;
    assert_eq!(none.grants, none.uncovered.len() as u64);
    let has = |coverage: &Coverage, tool: &str, target: &str, access: Option<Access>| {
        coverage
            .uncovered
            .iter()
            .any(|grant| grant.tool == tool && grant.target == target && grant.access == access)
    };
    assert!(has(&none, "file_read", "/vault", Some(Access::Read)));
    assert!(has(&none, "web_fetch", "https://*", None));
    let some = decide(
        &explainer,
        "[[expect]]\ntool = \"file_read\"\npaths = \"/vault/**\"\naccess = \"read\"\nverdict = \"allow\"\n\
         [[expect]]\ntool = \"web_fetch\"\nurl = \"https://example.com/\"\nverdict = \"ask\"\n\
         [[never]]\nreads = \"tmp\"\nwrites = \"shared\"\n",
    )
    .coverage;
    assert!(!has(&some, "file_read", "/vault", Some(Access::Read)));
    assert!(!has(&some, "web_fetch", "https://*", None));
    assert!(!has(&some, "file_write", "/shared", Some(Access::Write)));
    assert!(!has(&some, "file_read", "/tmp", Some(Access::Read)));
    assert!(has(&some, "file_write", "/shared", Some(Access::Read)));
}

#[test]
fn names_cannot_forge_lines() {
    let shown = failure(
        "",
        "[[expect]]\nname = \"x\\u001b[2J\\nok    \\u202ename\"\ntool = \"echo\"\nverdict = \"ask\"\n",
    )
    .expect("it fails");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// An expectation about all paths holds if and only if no path has a different verdict. For each
    /// generated pattern, the paths include a name that matches it and is on no list, and all the names that
    /// a list may have, so a counterexample cannot be missed.
    #[test]
    fn an_expectation_holds_if_and_only_if_no_path_is_otherwise(
        hidden in prop::collection::btree_set("[ab]{1,2}|[*]b", 0..3),
        protected in prop::collection::btree_set("[ab]{1,2}(/[ab]{1,2})?", 0..3),
        access in "read|write",
        approval in "allow|ask|deny",
        pattern in "(/[ab]{0,1}[*]{0,1}[ab]|/[*][*]){0,2}",
        verdict in "allow|ask|deny",
        asked in "read|write|any",
    ) {
        let list = |values: &BTreeSet<String>| {
            values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "version = 1\n[mounts]\nm = \"m\"\n[profiles.P]\nmounts = {{ m = \"{access}\" }}\n\
             [tiers]\nread_only = {{ profile = \"P\", approval = \"{approval}\" }}\n\
             side_effecting = {{ profile = \"P\", approval = \"allow\" }}\n\
             [protect]\npaths = [{}]\n[hide]\npaths = [{}]\n",
            list(&protected), list(&hidden),
        );
        let explainer = explainer(&text);
        let pattern = format!("/m{pattern}");
        let parsed = PathPattern::parse(&pattern).expect("a pattern");
        let expectation = format!(
            "[[expect]]\ntools = \"*\"\npaths = [{pattern:?}]\naccess = {asked:?}\nverdict = {verdict:?}\n"
        );
        let report = decide(&explainer, &expectation);
        let accesses: &[Access] = match asked.as_str() {
            "read" => &[Access::Read],
            "write" => &[Access::Write],
            _ => &[Access::Read, Access::Write],
        };
        // The four long names match `a*a` and similar patterns, and of the list entries only `*b` matches
        // them.
        let names = ["a", "b", "ab", "ba", "bb", "aa", "z", "A", "aza", "azb", "bza", "bzb"];
        let mut paths = vec!["/m".to_owned()];
        for first in names {
            paths.push(format!("/m/{first}"));
            for second in names {
                paths.push(format!("/m/{first}/{second}"));
                paths.extend(names.map(|third| format!("/m/{first}/{second}/{third}")));
            }
        }
        let run = RunContext::default();
        let tools: Vec<ExplainedTool> = ExplainedTool::all_shipped(explainer.policy()).collect();
        let other = paths.iter().find_map(|path| {
            let path = GuestPath::parse(path).expect("a path");
            parsed.covers_absolute(&path).then_some(())?;
            tools.iter().find_map(|tool| {
                accesses.iter().find_map(|access| {
                    let answer = |descriptor| {
                        let argument = String::new();
                        let subject = RequestedSubject::Path { argument, path: path.clone(), access: *access };
                        let request = CallRequest { tool: descriptor, subjects: &[subject], run: &run };
                        verdict_by_names(explainer.policy(), &request).0
                    };
                    let own = match tool.steps.is_empty() {
                        true => answer(&tool.descriptor),
                        // An operation without a step that has a profile is always refused.
                        false => tool.steps.iter().map(answer).min().unwrap_or(Approval::Deny),
                    };
                    (own.as_str() != verdict).then(|| format!("{} {path} {own}", tool.descriptor.name))
                })
            })
        });
        let result = &report.results[0];
        prop_assert_eq!(result.holds, other.is_none(), "{}\n{}\n{}\n{:?}", text, expectation, result, other);
    }
}
