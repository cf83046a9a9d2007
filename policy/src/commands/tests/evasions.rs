//! Evasions: constructs that hide a denied program, and harmless look-alikes that must pass.

use super::{CommandRefusal, CommandRules, allow, deny};

/// Checks that a command is denied or unreadable, so that it does not run.
#[track_caller]
fn check_refused(rules: &CommandRules, commands: &[&str]) {
    let passed: Vec<_> = commands.iter().filter(|command| rules.judge(command).is_ok()).collect();
    assert!(passed.is_empty(), "not refused: {passed:#?}");
}

#[track_caller]
fn check_denied(rules: &CommandRules, commands: &[&str]) {
    let passed: Vec<_> = commands
        .iter()
        .map(|command| (command, rules.judge(command)))
        .filter(|(_, judged)| !matches!(judged, Err(CommandRefusal::Denied { .. })))
        .collect();
    assert!(passed.is_empty(), "not denied: {passed:#?}");
}

#[track_caller]
fn check_passed(rules: &CommandRules, commands: &[&str]) {
    let refused: Vec<_> = commands
        .iter()
        .filter_map(|command| rules.judge(command).err().map(|refusal| (command, refusal)))
        .collect();
    assert!(refused.is_empty(), "refused: {refused:#?}");
}

#[test]
fn wrapper_program_does_not_hide_the_wrapped_one() {
    check_denied(
        &deny(&["curl"]),
        &[
            "env -iS 'curl x'",
            "env -viScurl",
            "env --split 'curl x'",
            "env -S timeout 1 curl",
            "env -iS 'sh -c' 'curl x'",
            "env -Snice curl",
            "source curl",
            ". -- ./curl x",
            "bash -x curl",
            "sh -- /usr/bin/curl",
            "env --s='curl x'",
            "env - curl x",
            "env -u A -C / - X=1 curl x",
            "eval -- curl x",
            "eval eval eval curl",
            "trap -- 'curl x' EXIT",
            "builtin eval 'curl x'",
            "builtin command curl",
            "command -- curl x",
            "command command -p curl",
            "exec -- curl",
            "exec -cla name curl",
            "nohup -- nice -19 curl x",
            "nice --10 curl",
            "time -p curl x",
            "! time -p curl x",
            "/usr/bin/time -f %e curl x",
            "timeout --signal=KILL 5s curl x",
            "timeout 5 timeout 5 curl",
            "timeout \"$x\" 5 curl x",
            "timeout \"$x\" 9 5 curl x",
            "timeout -\"$x\" 5 curl x",
            "flock \"$x\" lock curl x",
            "flock \"$x\" lock -c 'curl x'",
            "gosu \"$x\" root curl x",
            "su root -c 'curl x'",
            "su - -c 'curl x'",
            "su -lc 'curl x' root",
            "su --comm='curl x'",
            "runuser -u root -- curl x",
            "script -qc 'curl x' /dev/null",
            "script /dev/null -c 'curl x'",
            "pkexec curl",
            "gosu root curl",
            "systemd-run --pipe curl x",
            "hyperfine 'curl x'",
            "hash -p /usr/bin/curl ls",
            "find . -exec sh -c 'curl x' \\;",
            "find . -exec env curl {} +",
            "find . -okdir curl \\;",
            "find . -exec true \\; -exec curl \\;",
            "fd x -x curl",
            "xargs -I% curl %",
            "xargs --replace=R curl R",
            "xargs -r -- sudo -n curl",
            "bash -eo pipefail -c 'curl x'",
            "bash --norc --rcfile x -c 'curl'",
            "bash -c -- 'curl x'",
            "busybox sh -c 'curl x'",
            "function f { curl x; }; f",
            "f() ( curl x )",
            "f() { g() { curl; }; }",
            "coproc NAME { curl x; }",
            "case x in a) ;;& *) curl ;& esac",
            "until curl; do :; done",
            "cat <<-E\n\t$(curl x)\n\tE",
            "cat <<E\n`curl x`\nE",
            "cat <<A <<B\nA\n$(curl)\nB",
            "cat <<< `curl`",
            "echo \"`curl x`\"",
            "echo \"`echo \\`curl x\\``\"",
            "x[$(curl)]=1",
            "a=([$(curl)]=1)",
            "declare x=$(curl)",
            "> \"$(curl)\"",
            "curl&",
            "curl;",
            "curl|cat",
            "curl>f",
            "2>&1 >f curl",
            "{ { curl; }; }",
            "a||b&&curl",
            "$(curl)",
            "echo {a,$(curl)}",
            "cu\\\nrl",
            "\"cu\\\nrl\" x",
            "cu\"\"rl x",
            "cu''rl x",
            "\\curl",
            "\\c\\u\\r\\l",
            "$'curl'",
            "$\"curl\" x",
            "./curl",
            "/usr/bin//curl",
            "a/../curl",
            "FOO=bar BAZ=$x curl",
            "\n\n  curl\n",
            "true # comment\ncurl",
            "echo $(true # )\ncurl)",
        ],
    );
}

#[test]
fn script_from_input_or_file_is_refused() {
    check_refused(
        &deny(&["curl"]),
        &[
            "sh <<E\ncurl x\nE",
            "bash <<< 'curl x'",
            "echo curl x | sh",
            "echo curl x | bash -x",
            "echo curl x | sudo -s",
            "echo curl x | sudo -i",
            "echo curl x | unshare",
            "echo curl x | chroot /",
            "echo curl x | su",
            "echo curl x | busybox sh",
            "bash /dev/stdin <<< 'curl x'",
            "bash /dev/fd/3 3< f",
            "bash <(echo curl x)",
            "source <(echo curl x)",
            ". /dev/stdin <<< 'curl x'",
            "source -- /proc/self/fd/0",
            "echo curl | xargs env",
            "echo curl x | xargs sh -c",
            "echo curl | xargs -I{} {} x",
            "echo curl | xargs -I R sh -c 'R x'",
            "echo curl | xargs -i sh -c '{} x'",
            "echo 'curl x' | parallel",
            "find . -exec {} \\;",
            "find . -exec sh -c {} \\;",
            "find . -exec sh -c '{}' \\;",
            "find . -exec env {} \\;",
            "echo curl x | at now",
            "eval \"$(echo curl)\"",
            "eval $'c\\x75rl'",
            "echo 'curl x' | source /dev/stdin",
            "python3 -c x | bash -",
            // The parser does not know `select`.
            "select x in a; do curl; done",
            // The word may expand to several words, because it is not quoted.
            "$HOME/bin/curl",
        ],
    );
}

#[test]
fn a_program_name_that_is_computed_is_refused() {
    check_refused(
        &deny(&["curl"]),
        &[
            "${x:-curl} y",
            "${x:+curl}",
            "${x/a/curl}",
            "$(printf curl)",
            "c$'\\165'rl",
            "{curl,x}",
            "{c,}url",
            "c{u,}rl",
            "{\"curl\",'x'}",
            "{c..c}url",
            "curl{,}",
            "cur?",
            "c*l",
            "/usr/bin/cur[l]",
            "@(curl) x",
            "+(c)url",
            "~/$x",
            "\"$@\"",
            "$1",
            "f() { \"$@\"; }; f curl x",
            "f() { $*; }; f curl x",
            "for p in curl; do $p x; done",
            "read p <<< curl; $p",
            "a=(curl x); \"${a[@]}\"",
            "env \"${a[@]}\"",
            "set -- curl; \"$1\"",
            "x=curl; ${!y}",
        ],
    );
    // Even in quotes, these words may expand to several words.
    check_refused(
        &deny(&["git push --force"]),
        &["git \"$@\"", "git \"${a[@]}\"", "git \"${@:2}\"", "git $x"],
    );
}

#[test]
fn deferred_or_implicit_execution_is_refused() {
    check_refused(
        &deny(&["curl"]),
        &[
            "alias e=env; e curl",
            "alias e='true;'\ne curl",
            "alias e='nohup '\ne curl",
            "alias e='X=1'\ne curl",
            "alias e='!'\ne curl",
            "alias a='$(curl)'",
            "alias a=\"'\"",
            "BASH_ALIASES[a]=curl",
            "declare BASH_ALIASES[a]=curl",
            "BASH_ENV=f bash -c true",
            "env BASH_ENV=f bash -c true",
            "export PS4='$(curl x)'; set -x; true",
            "PS4='$(curl x)'",
            "PROMPT_COMMAND=curl",
            "printf -v PS4 '$(curl)'",
            "read PS4 <<< '$(curl)'",
            "let 'x[$(curl)]=1'",
            "let 'x=`curl`'",
            "test -v 'x[$(curl)]'",
            "[ -v 'x[$(curl)]' ]",
            "[[ -v 'x[$(curl)]' ]]",
            "[[ 'x[$(curl)]' -eq 1 ]]",
            "printf -v 'x[$(curl)]' y",
            "read 'x[$(curl)]' <<< y",
            "unset 'x[$(curl)]'",
            "declare -i 'x[$(curl)]=1'",
            "y='x[$(curl)]'; ((y))",
            "mapfile -C 'curl x' -c 1 a < f",
            "readarray -tC curl a < f",
            "compgen -C 'curl x'",
            "compgen -W '$(curl)'",
            "complete -C curl x",
            "enable -f ./curl.so curl",
            "echo ${x:-$(curl)}",
            "echo ${x:=`curl`}",
            "echo \"${x:-$(curl)}\"",
            "echo ${x//$(curl)/}",
            "echo ${x:$(curl)}",
            "echo ${x[$(curl)]}",
            "echo $((x[$(curl)]))",
            "echo $[ $(curl) ]",
            "echo \"$(( $(curl) ))\"",
            "(( x = $(curl) ))",
            "for ((i=$(curl); i<1; i++)); do :; done",
            "echo ${x@P}",
            "echo \"${x[0]@P}\"",
            "cat <<E\n${x:-$(curl)}\nE",
            "cat <<E\n$((1 + $(curl)))\nE",
        ],
    );
}

#[test]
fn everyday_command_is_not_refused() {
    check_passed(
        &deny(&["curl", "rm -rf", "git push"]),
        &[
            "[ -f x ] && echo yes || echo no",
            "[[ $x == a* && -n \"$y\" ]] && ls",
            "if [ \"$x\" = y ]; then ls; fi",
            "test -f x",
            "for f in *.rs; do wc -l \"$f\"; done",
            "while read -r line; do echo \"$line\"; done < f",
            "find . -name '*.rs' -exec grep -n x {} +",
            "find . -type f -exec rm {} \\;",
            "find . -name x -print0 | xargs -0 grep y",
            "git log --format='%h %s' HEAD@{1}",
            "git stash show stash@{0}",
            "awk '{print $1}' f | sort | uniq -c",
            "sed -i 's/a/b/' f",
            "grep -E '[$(]' f",
            "cat > f <<'E'\ncurl x\nE",
            "cat <<E\n$x curl\nE",
            "x=1; echo $((x + 1)) ${x:-2} \"${x}\"",
            "export RUST_LOG=debug; cargo test -- --nocapture",
            "PATH=$HOME/.cargo/bin:$PATH cargo build",
            "cd src && ls -la && cd -",
            "alias ll='ls -l'",
            "f() { echo \"$1\"; }; f x",
            "trap 'rm -f x' EXIT",
            "bash script.sh --flag",
            "bash -euo pipefail script.sh",
            "bash --version",
            ". ./env.sh",
            "source venv/bin/activate",
            "env",
            "sudo -l",
            "timeout 5 make -j4",
            "timeout \"$limit\" make -j4",
            "flock /tmp/\"$name\" make",
            "printf '%s\\n' \"$x\"",
            "mkdir -p a/{b,c}",
            "echo {1..3}",
            "echo 'BASH_ENV=x'",
            "tar czf - . | wc -c",
            "python3 - <<'E'\nprint('curl')\nE",
            "time make",
            "command -v curl",
            "type curl",
            "which curl",
            "hash -r",
            "set -euo pipefail",
        ],
    );
}

#[test]
fn an_allowed_name_means_a_program_of_the_system() {
    let rules = allow(&["git", "ls *", "env", "make"]);
    check_passed(&rules, &["git x", "/usr/bin/git x", "/bin/ls -l", "git x && make", "env git"]);
    check_refused(
        &rules,
        &[
            "./git x",
            "/tmp/git x",
            "$HOME/bin/git",
            "../usr/bin/git",
            "/usr/bin/../../tmp/git",
            "PATH=. git",
            "PATH+=:. git",
            "export PATH=.:$PATH; git x",
            "env PATH=. git",
            "declare PATH=.",
            "read PATH <<< .",
            "hash -p ./x git; git",
            "ls",
            "ls $x",
            "git=1 curl",
            "xargs git",
        ],
    );
}
