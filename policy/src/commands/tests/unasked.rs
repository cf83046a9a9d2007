//! Commands that the rules of `unasked` cover, and the many that they do not.

use super::super::CommandRules;

fn rules() -> CommandRules {
    let mut rules = CommandRules::default();
    let texts = ["git status", "git diff *", "git log -n 5", "cargo test *", "ls *", "cat *", "make c*k"];
    rules.set_unasked(texts.iter().map(|text| text.parse().expect("a rule")).collect());
    rules
}

#[test]
fn covered_calls_need_no_approval() {
    let rules = rules();
    for (command, expected) in [
        ("git status", &["git status"][..]),
        ("  git   status  ", &["git status"]),
        ("git status # and a comment", &["git status"]),
        ("'git' \"status\"", &["git status"]),
        ("g\\it sta\\\ntus", &["git status"]),
        ("/usr/bin/git status", &["git status"]),
        ("git diff", &["git diff *"]),
        ("git diff --stat -- 'a b' \"c\"", &["git diff *"]),
        ("git log -n 5", &["git log -n 5"]),
        ("ls", &["ls *"]),
        ("ls -la *.rs src/[ab]?", &["ls *"]),
        ("ls {a,b}", &["ls *"]),
        ("make check", &["make c*k"]),
        ("cargo test && git status", &["cargo test *", "git status"]),
        ("git diff | cat || ls; ls\nls", &["git diff *", "cat *", "ls *"]),
        ("! ls", &["ls *"]),
        ("cargo test 2>&1 | cat", &["cargo test *", "cat *"]),
        ("ls >/dev/null 2>/dev/null </dev/null", &["ls *"]),
        ("cat $'a b'", &["cat *"]),
    ] {
        let found = rules.unasked_rules(command).unwrap_or_else(|reason| panic!("{command}: {reason}"));
        assert_eq!(found, expected, "{command}");
    }
}

#[test]
fn an_exact_rule_covers_its_command_and_no_other() {
    for (command, expected) in [
        ("cargo test -p x", &["cargo test -p x"][..]),
        ("/usr/bin/ls -l | 'wc' -l && ls -l", &["ls -l", "wc -l"]),
        ("git log --format=%H 2>/dev/null", &["git log --format=%H"]),
    ] {
        let exact = CommandRules::exact_rules(command).expect(command);
        assert_eq!(exact, expected, "{command}");
        let mut rules = CommandRules::default();
        rules.set_unasked(exact.iter().map(|rule| rule.parse().expect("a rule")).collect());
        assert_eq!(rules.unasked_rules(command).expect(command), expected, "{command}");
        assert!(rules.unasked_rules(&format!("{command} more")).is_err(), "{command}");
    }
    for command in [
        "",
        "ls $x",
        "ls *",
        "ls 'a b'",
        "ls ''",
        "./ls",
        "x=1 ls",
        "ls > f",
        "ls; ls &",
        "ls 'a$b'",
        "find ? ",
        "echo $(ls)",
        "ls \"a;b\"",
        "rm '*'",
    ] {
        assert_eq!(CommandRules::exact_rules(command), None, "{command}");
    }
}

#[test]
fn any_other_command_needs_an_approval() {
    let rules = rules();
    for command in [
        // Other calls and other words.
        "",
        " # git status",
        ":",
        "rm -rf .",
        "git",
        "git push",
        "git status --porcelain",
        "git -c core.pager=x status",
        "git --no-pager diff",
        "git log -n 50",
        "git log -n 5 --all",
        "git logs -n 5",
        "gitdiff",
        "Git status",
        "make clean",
        "make check install",
        "make c$x",
        "make c?k",
        "./ls",
        "../ls",
        "bin/git status",
        "/tmp/git status",
        "~/bin/ls",
        "$HOME/ls",
        "$LS",
        "${LS:-ls}",
        "l$empty",
        "$(echo ls)",
        "`echo ls`",
        "{ls,rm}",
        "l[s]",
        "git $x",
        "git {status,push}",
        "git stat*",
        // A further call that no rule covers, at any place in the command.
        "ls; rm x",
        "ls & rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | sh",
        "ls | xargs rm",
        "ls |& rm",
        "ls\nrm x",
        "ls # comment\nrm x",
        "ls \\\n; rm x",
        "rm x; ls",
        "! rm x",
        // Programs that run other programs.
        "env ls",
        "env X=1 git status",
        "command ls",
        "builtin cd ..",
        "exec ls",
        "sudo ls",
        "nice ls",
        "timeout 1 ls",
        "xargs ls",
        "find . -exec ls {} +",
        "sh -c ls",
        "bash -c 'git status'",
        "eval ls",
        "eval 'git status'",
        "source x",
        ". x",
        "trap ls EXIT",
        "watch git status",
        "busybox ls",
        // Changes of the meaning of a name, or of a program's behaviour.
        "PATH=. ls",
        "GIT_EXTERNAL_DIFF=x git diff",
        "LD_PRELOAD=./x.so ls",
        "X=1 ls",
        "X=1",
        "X=1; ls",
        "export X=1; ls",
        "ls() { rm x; }; ls",
        "function ls { rm x; }\nls",
        "ls() { git status; }",
        "alias ls='rm x'; ls",
        "alias ls=cat",
        "hash -p ./x ls; ls",
        "shopt -s expand_aliases; ls",
        "set -o posix; ls",
        "enable -f ./x ls",
        "unset -f ls; ls",
        // Values that are not in the text.
        "ls $HOME",
        "ls \"$x\"",
        "ls ${x}",
        "ls ${x:=y}",
        "ls ~",
        "ls ~root",
        "ls $((1+1))",
        "ls $[1+1]",
        "ls $'\\x2d\\x6c'",
        "ls \"$@\"",
        "ls $!",
        // Substitutions.
        "ls $(git status)",
        "ls \"$(git status)\"",
        "ls `git status`",
        "cat <(git status)",
        "cat >(git status)",
        // Redirections.
        "cat < file",
        "cat > file",
        "cat >> file",
        "cat >| file",
        "cat &> file",
        "cat <> file",
        "cat >& file",
        "cat 2> file",
        "> file",
        "cat <<E\nx\nE",
        "cat <<'E'\nx\nE",
        "cat <<< x",
        "ls > /dev/tcp/127.0.0.1/80",
        "ls > /dev/null/../x",
        "ls > \"/dev/null\"x",
        "exec 3> /dev/null",
        // Other forms of the grammar.
        "(ls)",
        "{ ls; }",
        "((1))",
        "[[ -e x ]]",
        "[ -e x ]",
        "if ls; then ls; fi",
        "while ls; do ls; done",
        "until ls; do ls; done",
        "for x in a; do ls; done",
        "for ((;;)); do ls; done",
        "case x in x) ls;; esac",
        "select x in a; do ls; done",
        "coproc ls",
        "ls &",
        // Commands that cannot be read.
        "ls 'x",
        "ls \"x",
        "ls $(",
        "ls )",
        "ls\0",
        "ls &&",
    ] {
        assert!(rules.unasked_rules(command).is_err(), "{command}: {:?}", rules.unasked_rules(command));
    }
    let long = format!("ls {}", "a".repeat(20_000));
    assert!(rules.unasked_rules(&long).is_err());
    assert!(CommandRules::default().unasked_rules("ls").is_err());
}
