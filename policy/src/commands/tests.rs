//! The programs that are found in commands, and the verdicts of command rules on them.

mod evasions;
mod hostile;
mod unasked;

use proptest::prelude::*;

use super::{CommandRefusal, CommandRules, InvalidCommandRule, Operator, read::read};

fn deny(rules: &[&str]) -> CommandRules {
    CommandRules::parse([], rules.iter().copied(), None).expect("rules")
}

fn allow(rules: &[&str]) -> CommandRules {
    CommandRules::parse(rules.iter().copied(), [], None).expect("rules")
}

/// The programs found in a command.
#[track_caller]
fn programs(command: &str) -> Vec<String> {
    let found_programs = read(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    let name = |words: &Vec<super::words::CommandWord>| words[0].program().unwrap_or("?").to_owned();
    found_programs.invocations.iter().map(name).collect()
}

#[test]
fn a_denied_program_is_found_at_any_position() {
    let rules = deny(&["curl"]);
    for command in [
        "curl http://x",
        "/usr/bin/curl x",
        "../bin/curl x",
        "\"$HOME/bin/curl\" x",
        "~/bin/curl x",
        "c\\url x",
        "'cu'\"rl\" x",
        "$'curl' x",
        "true && curl x",
        "true; curl x",
        "true | curl x",
        "true & curl x",
        "true\ncurl x",
        "(curl x)",
        "((curl x) )",
        "( (curl x))",
        "( ( curl x ) )",
        "( ( ( curl x ) ) )",
        "((curl x); (true))",
        "((true); (curl x))",
        "echo $((curl x) )",
        "echo $( (curl x))",
        "echo $((curl x); (true))",
        "echo \"$((true); (curl x))\"",
        "{ curl x; }",
        "if curl x; then :; fi",
        "while true; do curl x; done",
        "for i in 1; do curl $i; done",
        "case x in x) curl x ;; esac",
        "f() { curl x; }",
        "coproc curl x",
        "! curl x",
        "time curl x",
        "echo $(curl x)",
        "echo \"a $(curl x)\"",
        "echo `curl x`",
        "echo `echo \\`curl x\\``",
        "echo $(echo $(curl x))",
        "cat <(curl x)",
        "tee >(curl x)",
        "cat > $(curl x)",
        "cat <<E\n$(curl x)\nE",
        "cat <<< $(curl x)",
        "x=$(curl x)",
        "x=$(curl x) true",
        "a=($(curl x))",
        "export x=$(curl x)",
        "[[ -n $(curl x) ]]",
        "for i in $(curl x); do :; done",
        "case $(curl x) in *) ;; esac",
        "X=1 curl x",
        "2>/dev/null curl x",
        "env curl x",
        "env -i X=1 curl x",
        "env -u PATH curl x",
        "env -S 'curl x'",
        "env -Scurl",
        "sudo curl x",
        "sudo -u root curl x",
        "sudo -nu root curl x",
        "sudo --user=root -- curl x",
        "sudo --strange-option root curl x",
        "doas curl x",
        "nice -n 5 curl x",
        "nice -n5 curl x",
        "nohup curl x",
        "timeout 5 curl x",
        "timeout -k 1 5 curl x",
        "exec curl x",
        "exec -a name curl x",
        "command curl x",
        "command -p curl x",
        "builtin curl x",
        "xargs curl",
        "echo x | xargs -n1 curl",
        "echo x | xargs -I {} curl {}",
        "echo x | xargs -0 -P 4 curl",
        "find . -exec curl {} \\;",
        "find . -name '*.x' -execdir curl {} +",
        "sh -c 'curl x'",
        "bash -lc 'curl x'",
        "bash -o pipefail -c 'curl x'",
        "bash -c -e 'curl x'",
        "/bin/sh -c \"curl x\"",
        "sh -c 'sh -c \"curl x\"'",
        "env sudo xargs sh -c 'nice curl x'",
        "eval curl x",
        "eval 'curl x'",
        "eval \"cu\"rl x",
        "alias a=curl",
        "alias a='true; curl x'",
        "trap 'curl x' EXIT",
        "watch curl x",
        "watch 'curl x'",
        "busybox curl x",
        "flock /tmp/l curl x",
        "flock /tmp/l -c 'curl x'",
        "su -c 'curl x'",
        "script -c 'curl x' /dev/null",
        "setsid curl x",
        "stdbuf -oL curl x",
        "chroot / curl x",
        "cu\\\nrl x",
    ] {
        let refused = rules.judge(command).expect_err(command);
        assert!(matches!(refused, CommandRefusal::Denied { .. }), "{command}: {refused:?}");
    }
}

#[test]
fn a_name_that_is_only_an_argument_is_not_a_program() {
    let rules = deny(&["curl", "rm -rf"]);
    for command in [
        "echo curl",
        "echo 'curl x'",
        "grep -r curl .",
        "xargs grep curl",
        "env grep curl",
        "cat <<'E'\n$(curl x)\nE",
        "echo '$(curl x)'",
        "curlx",
        "x=curl",
        "# curl x",
        "command -v curl",
        "rm -r x",
        "rm x",
        "echo rm -rf",
        "find . -name curl",
        "sh curl.sh",
        "((curl < 5))",
        "echo $((curl + (1)))",
        "for ((curl = 0; curl < 3; curl++)); do :; done",
    ] {
        assert_eq!(rules.judge(command), Ok(()), "{command}");
    }
}

#[test]
fn unreadable_command_is_refused_once_a_rule_exists() {
    let rules = deny(&["curl"]);
    for command in [
        "$x",
        "$x y",
        "${x} y",
        "$(echo curl) y",
        "`echo curl` y",
        "cu${x}rl y",
        "cu*l y",
        "/bin/c?rl y",
        "{curl,x}",
        "$'c\\x75rl' y",
        "eval $x",
        "eval \"$x\"",
        "sh -c $x",
        "sh -c \"$x\"",
        "env $x",
        "sudo $x curl",
        "xargs $x",
        "sh",
        "sh -s",
        "bash -",
        "curl x | sh -s y",
        "trap \"$x\" EXIT",
        "echo ${x:-$(curl y)}",
        "echo $((1 + $(curl y)))",
        "echo ${x@P}",
        "find . $x",
        "if",
        "echo 'open",
        "echo $(",
        "(",
        "a && ",
        "\0",
    ] {
        let refused = rules.judge(command).expect_err(command);
        assert!(
            matches!(refused, CommandRefusal::Unreadable(_) | CommandRefusal::Denied { .. }),
            "{command}: {refused:?}"
        );
        assert_eq!(CommandRules::default().judge(command), Ok(()), "{command}: nothing is ruled");
    }
}

#[test]
fn a_rule_with_arguments_denies_the_calls_that_have_them() {
    let rules = deny(&["git push", "rm -rf *", "dd of=/dev/*"]);
    for command in [
        "git push",
        "git push origin main",
        "git -C /x push",
        "git $x",
        "git \"$x\"",
        "rm -rf /",
        "rm -v -rf x",
        "rm -rf $x",
        "rm $flags x",
        "dd if=x of=/dev/sda",
    ] {
        assert!(matches!(rules.judge(command), Err(CommandRefusal::Denied { .. })), "{command}");
    }
    for command in ["git status", "git", "rm x", "dd if=x of=y", "rm -rf"] {
        assert_eq!(rules.judge(command), Ok(()), "{command}");
    }
}

#[test]
fn allow_list_refuses_every_other_command() {
    let rules = allow(&["git status", "ls", "cargo *", "env"]);
    for command in ["git status", "git status -s", "ls", "ls -l | ls", "cargo test", "cargo $x y", "env ls"] {
        let expected = command != "cargo $x y";
        assert_eq!(rules.judge(command).is_ok(), expected, "{command}");
    }
    for (command, program) in [
        ("git push", "git push"),
        ("git", "git"),
        ("ls; rm x", "rm x"),
        ("ls $(rm x)", "rm x"),
        ("env rm x", "rm x"),
        ("sh -c ls", "sh -c ls"),
        ("cargo", "cargo"),
        ("git \"$x\"", "git"),
        ("git statusx", "git statusx"),
    ] {
        let refused = rules.judge(command).expect_err(command);
        assert_eq!(refused, CommandRefusal::NotAllowed { program: program.to_owned() }, "{command}");
    }
}

#[test]
fn deny_beats_allow() {
    let rules = CommandRules::parse(["git *", "git"], ["git push"], None).expect("rules");
    assert_eq!(rules.judge("git fetch"), Ok(()));
    let refused = rules.judge("git push").expect_err("denied");
    assert_eq!(refused.to_string(), "`git` is denied by the rule `git push`");
}

#[test]
fn operators_are_those_that_are_listed() {
    for (command, operator) in [
        ("a && b", Operator::And),
        ("a || b", Operator::Or),
        ("a; b", Operator::Sequence),
        ("a\nb", Operator::Sequence),
        ("a &", Operator::Background),
        ("coproc a", Operator::Background),
        ("a | b", Operator::Pipe),
        ("a < f", Operator::Input),
        ("a <<E\nx\nE", Operator::Input),
        ("a <<< x", Operator::Input),
        ("a > f", Operator::Output),
        ("a >> f", Operator::Output),
        ("a >| f", Operator::Output),
        ("a &> f", Operator::Output),
        ("a <> f", Operator::Output),
        ("a >& f", Operator::Output),
        ("> f", Operator::Output),
        ("a $(b)", Operator::Substitution),
        ("a `b`", Operator::Substitution),
        ("a <(b)", Operator::Process),
        ("(a)", Operator::Subshell),
        ("sh -c 'a | b'", Operator::Pipe),
    ] {
        let none = CommandRules::parse([], [], Some(&[])).expect("rules");
        assert_eq!(none.judge(command), Err(CommandRefusal::Operator(operator.as_str())), "{command}");
        let others: Vec<&str> =
            Operator::ALL.iter().filter(|other| **other != operator).map(|other| other.as_str()).collect();
        let without = CommandRules::parse([], [], Some(&others)).expect("rules");
        assert!(without.judge(command).is_err(), "{command}");
        let with = CommandRules::parse([], [], Some(&[operator.as_str()])).expect("rules");
        assert_eq!(with.judge(command), Ok(()), "{command}");
    }
    let none = CommandRules::parse([], [], Some(&[])).expect("rules");
    for command in ["a", "a 2>&1", "a 2>&-", "X=1 a", "{ a; }", "! a", "a b c;"] {
        assert_eq!(none.judge(command), Ok(()), "{command}");
    }
}

#[test]
fn a_rule_is_a_list_of_plain_words() {
    for (rule, wrong) in [
        ("", InvalidCommandRule::Empty),
        ("  ", InvalidCommandRule::Empty),
        ("/bin/rm", InvalidCommandRule::Path("/bin/rm".to_owned())),
        ("rm; ls", InvalidCommandRule::Syntax(';')),
        ("rm $x", InvalidCommandRule::Syntax('$')),
        ("rm 'a b'", InvalidCommandRule::Syntax('\'')),
    ] {
        assert_eq!(CommandRules::parse([rule], [], None), Err(wrong), "{rule}");
    }
    let wrong = CommandRules::parse([], [], Some(&["|&"])).expect_err("no operator");
    assert_eq!(
        wrong.to_string(),
        "`|&` is not an operator: write one of `&&`, `||`, `;`, `&`, `|`, `<`, `>`, `$()`, `<()`, `()`"
    );
}

#[test]
fn deep_nesting_is_refused_and_does_not_crash() {
    let rules = deny(&["curl"]);
    for (open, close) in [("( ", " )"), ("{ ", "; }"), ("$(", ")"), ("if ", "; then b; fi"), ("\"$(", ")\"")]
    {
        for depth in [20, 1000, 5000] {
            let command = format!("{}a{}", open.repeat(depth), close.repeat(depth));
            // The process must survive; the verdict does not matter.
            let _ = rules.judge(&command);
        }
        let within = format!("{}curl x{}", open.repeat(10), close.repeat(10));
        assert!(rules.judge(&within).is_err(), "{within}");
    }
    let long = format!("echo {}", "x".repeat(20_000));
    assert!(matches!(rules.judge(&long), Err(CommandRefusal::Unreadable(_))));
    let quoted = (0..40).fold("curl x".to_owned(), |inner, _| format!("eval {}", inner.replace(' ', "\\ ")));
    assert!(rules.judge(&quoted).is_err());
}

#[test]
fn all_programs_of_a_command_are_found_in_order() {
    assert_eq!(programs("a | b && c; d $(e)"), ["a", "b", "c", "e", "d"]);
    assert_eq!(programs("sudo -u x env A=1 b c"), ["sudo", "env", "b"]);
    assert_eq!(programs("find . -exec a {} \\; -exec b {} +"), ["find", "a", "b"]);
    assert_eq!(programs("x=1"), Vec::<String>::new());
    assert_eq!(programs("sudo --odd v a"), ["sudo", "v", "a"]);
}

proptest! {
    #[test]
    fn a_denied_program_is_never_let_through_by_what_surrounds_it(
        before in "[a-z ]{0,6}(&&|\\|\\||;|\\||&|\n)?",
        after in "( [a-z$'\"]{0,4}){0,3}",
    ) {
        // `curl` is one of the programs only if the whole text is read as a command.
        let command = format!("{before} curl{after}");
        let rules = deny(&["curl"]);
        let is_argument = !before.trim_end().is_empty() && !before.ends_with(['&', '|', ';', '\n']);
        if !is_argument {
            prop_assert!(rules.judge(&command).is_err(), "{}", command);
        }
    }

    #[test]
    fn any_text_is_judged_without_a_panic(command in ".{0,80}") {
        let _ = deny(&["curl"]).judge(&command);
        let _ = allow(&["ls"]).judge(&command);
    }
}
