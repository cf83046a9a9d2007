//! Texts made to exhaust the parser.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{CommandRefusal, CommandRules, allow, deny};

/// Openings, middles and closings of nested constructs.
const NESTED: &[(&str, &str, &str)] = &[
    ("(", "a", ")"),
    ("( ", "a", " )"),
    ("((", "1", "))"),
    ("{ ", "a", "; }"),
    ("$(", "a", ")"),
    ("\"$(", "a", ")\""),
    ("$((", "1", "))"),
    ("$((1+(", "1", ")))"),
    ("${x:-", "a", "}"),
    ("\"${x:-", "a", "}\""),
    ("${a[", "1", "]}"),
    ("a[", "1", "]=x"),
    ("`", "a", "`"),
    ("\\`", "a", "\\`"),
    ("if ", "a", "; then b; fi"),
    ("while ", "a", "; do b; done"),
    ("for i in a; do ", "a", "; done"),
    ("case x in x) ", "a", ";; esac"),
    ("f() { ", "a", "; }"),
    ("cat <(", "a", ")"),
    ("{a,", "b", "}"),
    ("x=(", "a", ")"),
    ("@(", "a", ")"),
    ("[[ ( ", "-n a", " ) ]]"),
    ("! ", "a", ""),
    ("coproc ", "a", ""),
    ("time ", "a", ""),
    ("a && ", "a", ""),
    ("a | ", "a", ""),
    ("a; ", "a", ""),
    ("env ", "a", ""),
    ("eval ", "a", ""),
    ("sudo --odd ", "a", ""),
    ("sudo -a sudo ", "a", ""),
    ("xargs -y ", "a", ""),
    ("find -exec ", "a", " ;"),
    ("cat <<E\n$(", "a", ")\nE\n"),
    ("a <<< ", "a", ""),
    ("> a ", "a", ""),
    ("x=1 ", "a", ""),
    ("\"", "a", "\""),
    ("$'", "a", "'"),
    ("\\", "a", ""),
    ("\n", "a", ""),
];

/// The time limit of one command: far more than any needs, even in a slow build on a busy machine, but less than
/// exponential parsing would take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
fn judged_in_time(rules: &CommandRules, command: &str) -> Result<(), CommandRefusal> {
    let begun = Instant::now();
    let judged = rules.judge(command);
    assert!(begun.elapsed() < TIME_LIMIT, "{} bytes: {}…", command.len(), &command[..60.min(command.len())]);
    judged
}

#[test]
fn deep_nesting_is_judged_in_time_without_an_overflow() {
    let rules = deny(&["curl"]);
    for (open, middle, close) in NESTED {
        let nested = |depth: usize| format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
        // The deepest nesting within the length limit, with and without its closing.
        let deepest = (16 << 10) / (open.len() + close.len()) - 1;
        let _ = judged_in_time(&rules, &nested(deepest));
        let _ = judged_in_time(&rules, &open.repeat((16 << 10) / open.len()));
        let beyond = judged_in_time(&rules, &nested(100_000));
        assert!(matches!(beyond, Err(CommandRefusal::Unreadable(_))), "{open}");
    }
}

#[test]
fn a_text_of_a_mebibyte_is_refused_immediately() {
    for unit in ["a", " ", "\n", "a;", "\u{e4}", "$x ", "'"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let judged = judged_in_time(&deny(&["curl"]), &text);
        assert!(matches!(judged, Err(CommandRefusal::Unreadable(_))), "{unit:?}");
        assert_eq!(CommandRules::default().judge(&text), Ok(()), "nothing is ruled, nothing is read");
    }
}

#[test]
fn programs_that_run_each_other_in_many_ways_are_bounded() {
    let rules = deny(&["curl"]);
    // Each option may or may not have a value, so every further option doubles the readings.
    let chain = "sudo --odd ".repeat(14);
    for command in [
        format!("{chain} a {}", "b ".repeat(7000)),
        format!("{} a", "sudo --odd ".repeat(1400)),
        format!("sudo {} a", "--odd ".repeat(2000)),
        format!("{} a", "xargs -y -z ".repeat(15)),
        format!("{} a", "strace -a -b -c -d ".repeat(12)),
        format!("find {}", "-exec a \\; ".repeat(1400)),
        format!("find {}", "-exec find ".repeat(1400)),
        format!("eval {}", "\"eval ".repeat(12)),
    ] {
        let judged = judged_in_time(&rules, &command);
        assert!(!matches!(judged, Err(CommandRefusal::Denied { .. })), "{judged:?}");
    }
    // The reader follows short chains, and so finds a program at their end.
    assert!(judged_in_time(&rules, &format!("{}curl", "sudo --odd ".repeat(6))).is_err());
}

#[test]
fn a_pattern_of_many_stars_is_matched_in_time() {
    let rules = deny(&[&format!("{}b", "a*".repeat(500))]);
    assert_eq!(judged_in_time(&rules, &"a".repeat(16_000)), Ok(()));
    let long = "a".repeat(1025);
    assert!(CommandRules::parse([], [long.as_str()], None).is_err());
}

/// Pieces of commands.
fn some_piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "curl",
        "a",
        "x=1",
        "env",
        "sudo",
        "xargs",
        "sh -c",
        "eval",
        "find . -exec",
        "\\;",
        "{}",
        "(",
        ")",
        "((",
        "))",
        "{ ",
        "; }",
        "$(",
        "`",
        "\"",
        "'",
        "$'",
        "\\",
        "\n",
        " ",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "<<E\n",
        "\nE\n",
        "<<<",
        "<(",
        ">",
        "2>&1",
        "if ",
        "; then ",
        "; fi",
        "case x in ",
        "x) ",
        ";; ",
        "esac",
        "for i in ",
        "; do ",
        "; done",
        "while ",
        "f() ",
        "function ",
        "coproc ",
        "time ",
        "! ",
        "${x:-",
        "}",
        "$((",
        "$x",
        "\"$@\"",
        "*",
        "[",
        "]",
        "[[ ",
        " ]]",
        "{a,b}",
        "#",
        "-S",
        "--",
        "-",
        "-I",
        "alias a=",
        "trap ",
        "\u{e4}",
        "\u{0}",
        "\t",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn generated_command_is_judged_in_time(pieces in prop::collection::vec(some_piece(), 0..40)) {
        let command = pieces.concat();
        let _ = judged_in_time(&deny(&["curl", "rm -rf *"]), &command);
        let _ = judged_in_time(&allow(&["a", "env"]), &command);
    }

    #[test]
    fn more_rules_never_let_more_through(pieces in prop::collection::vec(some_piece(), 0..12)) {
        let command = pieces.concat();
        let less = CommandRules::parse(["a", "env", "sh", "sudo"], ["curl"], None).expect("rules");
        for rules in [
            CommandRules::parse(["a", "env", "sh", "sudo"], ["curl", "a"], None),
            CommandRules::parse(["a", "env", "sh"], ["curl"], None),
            CommandRules::parse(["a", "env", "sh", "sudo"], ["curl"], Some(&["|", ";"])),
        ] {
            let more = rules.expect("rules");
            prop_assert!(more.judge(&command).is_err() || less.judge(&command).is_ok(), "{:?}", command);
        }
    }

    #[test]
    fn deny_beats_allow_whatever_the_command(pieces in prop::collection::vec(some_piece(), 0..12)) {
        let command = pieces.concat();
        let both = CommandRules::parse(["*"], ["curl", "env"], None).expect("rules");
        if deny(&["curl", "env"]).judge(&command).is_err() {
            prop_assert!(both.judge(&command).is_err(), "{:?}", command);
        }
    }
}
