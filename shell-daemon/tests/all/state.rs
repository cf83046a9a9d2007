//! The state that the next command keeps, and the state that it does not keep.

use portcullis_shell_daemon::{Ending, ShellSession, StateOutcome};

use crate::fixture::{Fixture, Session, request};

/// Bash warns, for example, if the policy allows `LC_ALL` and the locale is not installed.
#[test]
fn a_bash_that_warns_at_its_start_is_a_bash() {
    Fixture::for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.environment.push(("LC_ALL".to_owned(), "xx_XX.UTF-8".to_owned()));
        let mut session = Session(ShellSession::start(&spec).unwrap());
        assert!(session.run("true").stderr.contains("LC_ALL"), "it warns");
        session.0.prove_shell().unwrap();
    });
}

#[test]
fn folder_variables_functions_aliases_and_options_carry_over() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output(
        "mkdir -p 'a b/c'; cd 'a b/c'\nplain='x  y'\nexport OUT=$'tab\\t, \\'quote\\' and\\nline'\ndeclare -i number=4\n\
         declare -a list=(one 'two three'); declare -A map=([k]='v w')\ngreet() { echo \"hello $1\"; }\n\
         alias shout='echo LOUD'\nset -o pipefail; shopt -s nullglob extglob; set -f\nempty=()",
    );
        let out = session.output(
        "pwd; echo \"$plain|$number|${list[1]}|${map[k]}\"; printf '%s' \"$OUT\"; echo; printenv OUT | tail -1\n\
         greet you; shout; [[ -o pipefail ]] && echo pipefail; [[ -o noglob ]] && echo noglob; shopt -q nullglob && echo nullglob; number+=2; echo $number",
    );
        let expected = format!(
            "{}\nx  y|4|two three|v w\ntab\t, 'quote' and\nline\nline\nhello you\nLOUD\npipefail\nnoglob\nnullglob\n6\n",
            fixture.inside("shared/a b/c").display()
        );
        assert_eq!(out, expected);
        // Options that are switched off stay off, including options that are on from the start.
        session.output(
            "set +f +o pipefail; shopt -u nullglob sourcepath; unset plain; unset -f greet; unalias shout",
        );
        let out = session.output(
        "[[ -o noglob || -o pipefail ]] || shopt -q nullglob || shopt -q sourcepath || type greet || alias shout || echo \"gone:$plain\"",
    );
        assert_eq!(out, "gone:\n");
    });
}

#[test]
fn functions_with_extglob_and_exported_ones_are_restored() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("shopt -s extglob");
        session.output("match() { [[ $1 == @(a|b) ]]; }; child() { echo from-function; }; export -f child");
        assert_eq!(session.output("match b && bash -c child"), "from-function\n");
    });
}

#[test]
fn strict_options_break_no_later_command_and_no_snapshot() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("set -eu; kept=1");
        let result = session.run("false; echo never");
        assert_eq!((result.end.ending, result.stdout.as_str()), (Ending::Code(1), ""));
        assert_eq!(result.end.state, StateOutcome::Carried);
        let result = session.run("echo $missing");
        assert!(matches!(result.end.ending, Ending::Code(code) if code != 0), "{result:?}");
        assert_eq!(session.output("set +eu; echo $kept$missing"), "1\n");
        let result = session.run("set -x; echo traced");
        assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("traced\n", "++ echo traced\n"));
        session.run("set +x; IFS=:; set -o posix");
        assert_eq!(session.output("v=a:b; printf '<%s>' $v; set +o posix; IFS=$' \\t\\n'"), "<a><b>");
    });
}

#[test]
fn readonly_names_and_those_of_bash_are_left_out() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output(
            "readonly fixed=1; readonly -a fixed_list=(a b); BASH_ENV=/nowhere; BASH_OWN=2; SECONDS=1000",
        );
        assert_eq!(
            session.output("echo \"$fixed|$fixed_list|$BASH_ENV|$BASH_OWN|$((SECONDS < 900))\"; fixed=2"),
            "||||1\n"
        );
    });
}

#[test]
fn readonly_names_without_a_value_are_left_out() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output(
        "declare -ir number; readonly bare; readonly -a list; declare -rA map; declare -ar sparse=([3]=x)",
    );
        let out = session
            .output("number=n; bare=b; list=(l); map=m; sparse[0]=s; echo $number $bare $list $map $sparse");
        assert_eq!(out, "n b l m s\n");
    });
}

#[test]
fn functions_and_aliases_named_like_builtins_do_not_spoil_state() {
    Fixture::for_each_posture(|fixture| {
        let names = "echo printf read eval trap cd unset exec exit declare set shopt alias compgen pwd test";
        let words = "if for case while [[ builtin __portcullis_save";
        for define in [
            format!("for name in {names}; do builtin eval \"$name() {{ builtin echo SPOILT; }}\"; done"),
            format!("for name in {names} {words}; do builtin alias \"$name=printf SPOILT\"; done"),
        ] {
            let mut session = fixture.session();
            session.output("mkdir -p d");
            let result = session.run(&format!("v='a  b'; builtin cd d; {define}"));
            assert_eq!(
                (result.end.state, result.stdout.as_str()),
                (StateOutcome::Carried, ""),
                "{define}: {result:?}"
            );
            let mut last = String::new();
            for _ in 0..2 {
                let (mut command_request, canceller) =
                    request("\\command -v echo > /dev/null; /bin/echo \"$v\" \"$PWD\"");
                command_request.workdir = Some("../d".to_owned());
                let result = session.attempt((command_request, canceller)).unwrap();
                assert_eq!(
                    (result.end.state, result.stderr.as_str()),
                    (StateOutcome::Carried, ""),
                    "{define}: {result:?}"
                );
                last = result.stdout;
            }
            assert_eq!(last, format!("a  b {}\n", fixture.inside("shared/d").display()), "{define}");
        }
    });
}

#[test]
fn parsing_options_of_bash_leave_the_state_intact() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for options in [
            "shopt -s nocasematch",
            "shopt -s failglob nullglob extdebug xpg_echo",
            "shopt -s inherit_errexit lastpipe localvar_inherit localvar_unset dotglob globstar",
            "set -o posix",
            "set -Tabhkmpu -o pipefail",
            "set -e; shopt -u patsub_replacement interactive_comments; IFS=abc",
            "trap 'echo debugged > /dev/null' DEBUG; trap ': err' ERR; trap ': return' RETURN",
        ] {
            let result = session.run(&format!("Uid=u; v='a\\tb*'; {options}"));
            assert_eq!(result.end.state, StateOutcome::Carried, "{options}: {result:?}");
            let result = session.run("printf '%s' \"$v$Uid\"; unset v Uid");
            assert_eq!(
                (result.stdout.as_str(), result.end.state),
                ("a\\tb*u", StateOutcome::Carried),
                "{options}: {result:?}"
            );
        }
        assert_eq!(session.run("[[ -o pipefail ]] && shopt -q nocasematch && echo all").stdout, "all\n");
    });
}

#[test]
fn a_trace_shows_the_command_and_not_the_state() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.run("set -x");
        let result = session.run("echo traced");
        assert_eq!(
            (result.stdout.as_str(), result.stderr.as_str()),
            ("traced\n", "+ builtin eval 'echo traced'\n++ echo traced\n")
        );
    });
}

#[test]
fn a_workdir_is_not_searched_in_cdpath() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("mkdir -p one/two other/two; cd one; CDPATH=../other");
        let (mut command_request, canceller) = request("pwd");
        command_request.workdir = Some("two".to_owned());
        let expected = format!("{}\n", fixture.inside("shared/one/two").display());
        assert_eq!(session.attempt((command_request, canceller)).unwrap().stdout, expected);
        assert_eq!(session.output("echo $CDPATH"), "../other\n", "which is kept");
    });
}

#[test]
fn a_kill_exec_or_replaced_trap_keeps_the_last_good_state() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=good");
        for (command, ending, state) in [
            ("v=bad; kill -9 $$", Ending::Signal(9), StateOutcome::Killed),
            ("v=bad; exec true", Ending::Code(0), StateOutcome::NotWritten),
            ("v=bad; trap 'echo mine' EXIT; exit 3", Ending::Code(3), StateOutcome::NotWritten),
            ("v=bad; trap - EXIT", Ending::Code(0), StateOutcome::NotWritten),
            ("big=$(head -c 1500000 /dev/zero | tr '\\0' x); v=bad", Ending::Code(0), StateOutcome::TooLarge),
            ("v=bad; set -n\nset +n", Ending::Code(0), StateOutcome::NotWritten),
        ] {
            let result = session.run(command);
            assert_eq!((result.end.ending, result.end.state), (ending, state), "{command}: {result:?}");
            assert_eq!(session.output("echo $v"), "good\n", "{command}");
        }
    });
}

#[test]
fn a_command_can_begin_elsewhere() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("mkdir -p -- one/two '-odd dir'; cd one; set -eu");
        for (workdir, expected) in [
            ("two".to_owned(), "shared/one/two"),
            (fixture.inside("shared/-odd dir").display().to_string(), "shared/-odd dir"),
            ("../one".to_owned(), "shared/one"),
        ] {
            let (mut command_request, canceller) = request("pwd");
            command_request.workdir = Some(workdir);
            let result = session.attempt((command_request, canceller)).unwrap();
            assert_eq!(result.stdout, format!("{}\n", fixture.inside(expected).display()));
        }
        let (mut command_request, canceller) = request("echo never");
        command_request.workdir = Some(fixture.inside("absent").display().to_string());
        let result = session.attempt((command_request, canceller)).unwrap();
        assert_eq!(
            (result.end.ending, result.stdout.as_str(), result.end.state),
            (Ending::Code(1), "", StateOutcome::Carried)
        );
        assert_eq!(
            session.output("pwd"),
            format!("{}\n", fixture.inside("shared/one").display()),
            "and stays there"
        );
    });
}

#[test]
fn a_folder_that_is_gone_leaves_the_rest_of_the_state() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("mkdir d; cd d; v=kept");
        std::fs::remove_dir(fixture.path("shared/d")).unwrap();
        assert_eq!(session.output("echo $v; pwd"), format!("kept\n{}\n", fixture.inside("shared").display()));
    });
}

#[test]
fn two_sessions_share_nothing_but_files() {
    Fixture::for_each_posture(|fixture| {
        let (mut first_session, mut second_session) = (fixture.session(), fixture.session());
        first_session.output("v=one; echo text > file");
        assert_eq!(second_session.output("echo \"$v\"; cat file"), "\ntext\n");
    });
}

#[test]
fn the_environment_is_clean() {
    Fixture::for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.environment.push(("DECLARED".to_owned(), "yes".to_owned()));
        let mut session =
            crate::fixture::Session(portcullis_shell_daemon::ShellSession::start(&spec).unwrap());
        let names = session.output("env | cut -d= -f1 | LC_ALL=C sort | tr '\\n' ' '");
        assert_eq!(
            names,
            "CARGO_HOME CARGO_NET_OFFLINE DECLARED GOPATH GOPROXY HOME LANG PATH PIP_NO_INDEX PORTCULLIS_READ \
             PORTCULLIS_SHARED PORTCULLIS_TMP PWD PYTHONUSERBASE SHLVL TERM TMPDIR UV_OFFLINE XDG_CACHE_HOME \
             XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME _ npm_config_cache npm_config_offline "
        );
        let shared_folder = fixture.inside("shared").display().to_string();
        assert_eq!(
            session.output("echo $HOME; pwd; echo $PORTCULLIS_SHARED"),
            format!("{shared_folder}\n{shared_folder}\n{shared_folder}\n")
        );
    });
}
