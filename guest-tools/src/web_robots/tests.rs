//! Tests of the reader of `robots.txt`, including hostile files.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(file: &str, expected: &[(&str, bool)]) {
    for (path, allowed) in expected {
        assert_eq!(allows(file.as_bytes(), path), *allowed, "{path}\n{file}");
    }
}

#[test]
fn the_longest_rule_decides() {
    // From RFC 9309, sections 2.2.2 and 5.2.
    check(
        "User-Agent: *\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n",
        &[("/example/page/", true), ("/example/page/disallowed.gif", false), ("/other", true)],
    );
    check("user-agent: *\nallow: /p\ndisallow: /\n", &[("/page", true), ("/other", false)]);
    // If two rules are equally long, the rule that allows wins.
    check("user-agent: *\ndisallow: /folder\nallow: /folder\n", &[("/folder/page", true)]);
}

#[test]
fn the_group_of_this_program_goes_before_that_of_all() {
    let file =
        "User-Agent: *\nDisallow: /\n\nUser-Agent: Portcullis\nUser-Agent: other\nDisallow: /private\n";
    check(file, &[("/", true), ("/private/x", false)]);
    // Several groups for one program count as one group.
    let file = "User-agent: portcullis\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n\nUser-agent: portcullis\nDisallow: /c\n";
    check(file, &[("/a", false), ("/b", true), ("/c", false)]);
    check("User-agent: notportcullis\nDisallow: /\n", &[("/", true)]);
}

#[test]
fn patterns_have_stars_and_an_end() {
    let file = "user-agent: *\ndisallow: /*.gif$\ndisallow: /a*/b\ndisallow: /caf\u{e9}\n";
    check(
        file,
        &[
            ("/x/y.gif", false),
            ("/x.gif?y", true),
            ("/axx/b/c", false),
            ("/a/c", true),
            ("/caf%C3%A9/x", false),
            ("/caf%c3%a9", false),
        ],
    );
}

#[test]
fn a_file_without_rules_allows_everything() {
    for file in ["", "\u{feff}", "<!doctype html><p>Not found", "Disallow: /", "user-agent: *\ndisallow:\n"] {
        check(file, &[("/", true), ("/x?y", true)]);
    }
}

#[test]
fn a_rule_that_is_cut_off_does_not_count() {
    let rule = "disallow: /";
    let filler = "#".repeat(500 * 1024 - "user-agent: *\n\n".len() - rule.len());
    // The host sends one byte more than is read.
    let file = format!("user-agent: *\n{filler}\n{rule}private");
    assert!(allows(&file.as_bytes()[..=500 * 1024], "/"));
}

/// Patterns that cost a matcher with backtracking exponential time, in a file of full size.
#[test]
fn hostile_patterns_are_matched_in_bounded_time() {
    let path = format!("/{}", "a".repeat(8_000));
    for pattern in ["*a", "a*", "*a*", "**", "a*b"] {
        let many = format!("disallow: /{}$\n", pattern.repeat(1_000));
        let one = format!("disallow: /{}$\n", pattern.repeat(500 * 1024 / pattern.len()));
        for file in [many.repeat(500 * 1024 / many.len()), one] {
            let _answer = allows(format!("user-agent: *\n{file}").as_bytes(), &path);
        }
    }
    let rules = "allow: /*a$\n".repeat(500 * 1024 / "allow: /*a$\n".len());
    assert!(allows(format!("user-agent: *\n{rules}").as_bytes(), &path));
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(
        file in prop::collection::vec(any::<u8>(), 0..4_096),
        path in "/[ -~]{0,200}",
    ) {
        let _answer = allows(&file, &path);
    }

    #[test]
    fn no_file_of_rules_ends_the_reader(
        lines in prop::collection::vec(
            ("(user-agent|allow|disallow|sitemap|crawl-delay)", "[a-z/*$%?#:. \u{e9}]{0,40}"), 0..64,
        ),
        path in "/[a-z/*$%?]{0,200}",
    ) {
        let file: String = lines.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        let _answer = allows(file.as_bytes(), &path);
    }
}
