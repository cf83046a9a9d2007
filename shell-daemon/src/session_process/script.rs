//! Makes the script that bash runs: restore the last state, wait, read the command, run it in that state, write the new
//! state.
//!
//! The script is one line, so that the command's error messages show the line numbers that users expect. Its names
//! start with `__portcullis_`. Once the state is restored, a function of the session may have any name, so the script
//! calls later commands with `builtin`. Bash has parsed the whole script before any alias is defined.

use super::snapshot::END;

/// The descriptors of a command's shell besides the standard ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptDescriptors {
    /// The command's folder and text, which are complete once `start_signal` has a line.
    pub(super) command: i32,
    /// Gives a line when the command starts. If it ends without a line, there is no command.
    pub(super) start_signal: i32,
    /// The last good snapshot, if there is one.
    pub(super) state: Option<i32>,
    /// The file for the next snapshot.
    pub(super) snapshot: i32,
}

/// Makes the script for bash.
///
/// The slow steps that need no current data come before the wait. The folder is entered after the wait: it
/// may be made or removed during the wait, and a waiting shell must not keep a folder in use.
pub(super) fn script(descriptors: ScriptDescriptors) -> String {
    let ScriptDescriptors { command, start_signal, state, snapshot } = descriptors;
    // Drop the errors of a partial restore, such as a folder that is gone: they are not the command's errors.
    let (restore, enter) = state.map_or_else(Default::default, |state| {
        (
            format!(
                "IFS= read -r -d '' -u {state} __portcullis_state; IFS= read -r -d '' -u {state} __portcullis_state; \
                 exec {state}<&-; eval \"$__portcullis_state\" 2>/dev/null; "
            ),
            "__portcullis_old=${OLDPWD-}; builtin cd -- \"$__portcullis_folder\" 2>/dev/null; \
             if [[ $__portcullis_old ]]; then OLDPWD=$__portcullis_old; else builtin unset OLDPWD; fi; ",
        )
    });
    format!(
        "shopt -s expand_aliases; __portcullis_usual=$BASHOPTS; {save}{restore}\
         builtin read -r -u {start_signal} __portcullis_go || builtin exit; \
         IFS= builtin read -r -d '' -u {command} __portcullis_workdir; \
         IFS= builtin read -r -d '' -u {command} __portcullis_command; \
         command exec {command}<&- {start_signal}<&-; SECONDS=0; {enter}\
         builtin trap '{{ \\__portcullis_save; }} 2>/dev/null || :' EXIT; \
         if [[ $__portcullis_workdir ]]; then CDPATH= builtin cd -- \"$__portcullis_workdir\" || builtin exit; fi; \
         builtin eval \"${{__portcullis_options-}}\" 2>/dev/null; builtin eval \"$__portcullis_command\"",
        save = save(snapshot),
    )
}

/// Defines the function that the shell runs when it exits. The function removes itself before functions are listed.
///
/// The state is in the order of restoring: options that change how text is parsed, aliases (none of them active yet),
/// variables, and functions, which may have the name of any command that the restoring uses. Options that would disturb
/// the restoring stay in a variable until the command starts.
///
/// Bash gives a list of all names only as output. The list is written into the snapshot's file, in front of the
/// state, and read from there: a subprocess for the list would take longer than all the rest. If the file cannot be
/// opened again, a subprocess is used. Without names the snapshot stays unfinished. Errors are dropped, and so is the
/// trace of `set -x`.
fn save(snapshot: i32) -> String {
    format!(
        "__portcullis_save() {{ __portcullis_options=$SHELLOPTS; __portcullis_shopt=$BASHOPTS; \
         builtin set +eEfuvxT +o posix; builtin shopt -u extdebug nocasematch; builtin unset -f __portcullis_save; \
         builtin shopt -s extglob; \
         {{ builtin compgen -v -X '@({LEFT_OUT})'; builtin printf '\\0'; \
         IFS=$'\\n' builtin read -r -d '' -a __portcullis_names </proc/self/fd/{snapshot} || \
         IFS=$'\\n' builtin read -r -d '' -a __portcullis_names <<<\"$(builtin compgen -v -X '@({LEFT_OUT})')\"; \
         __portcullis_kept=(); for __portcullis_name in \"${{__portcullis_names[@]}}\"; do \
         case ${{!__portcullis_name@a}} in *r*) continue ;; esac; \
         __portcullis_kept+=(\"$__portcullis_name\"); done; \
         __portcullis_last='builtin shopt -u expand_aliases'; \
         if [[ :$__portcullis_shopt: == *:expand_aliases:* ]]; then __portcullis_last='builtin shopt -s expand_aliases'; fi; \
         __portcullis_last+=\"; builtin set {SET_DEFAULTS}${{__portcullis_options:+ -o ${{__portcullis_options//:/ -o }}}}\"; \
         if [[ $__portcullis_shopt != \"$__portcullis_usual\" ]]; then \
         builtin printf '%s\\n' \"shopt -u {SHOPT_DEFAULTS}\" \"shopt -s ${{__portcullis_shopt//:/ }}\"; fi; \
         builtin printf 'shopt -u expand_aliases\\n'; \
         builtin printf '__portcullis_folder=%q\\n__portcullis_options=%q\\n' \"$PWD\" \"$__portcullis_last\"; \
         builtin alias -p; builtin declare -p \"${{__portcullis_kept[@]}}\"; builtin declare -f; builtin declare -Fx; \
         [[ ${{__portcullis_names-}} ]] && builtin printf '%s\\n' '{END}'; }} >&{snapshot}; }}; ",
    )
}

/// Bash's own variables, which are not saved: bash sets them itself, or they have a meaning only in the shell that set
/// them.
const LEFT_OUT: &str = "__portcullis_*|BASH*|_|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|\
    OPTERR|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID";

/// Options of `shopt` that are on from the start.
const SHOPT_DEFAULTS: &str = "checkwinsize cmdhist complete_fullquote extquote force_fignore globasciiranges \
    globskipdots hostcomplete interactive_comments patsub_replacement progcomp promptvars sourcepath";

/// Options of `set` that are on from the start, as arguments that turn them off.
const SET_DEFAULTS: &str = "+o braceexpand +o hashall +o interactive-comments";

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    const DESCRIPTORS: ScriptDescriptors =
        ScriptDescriptors { command: 201, start_signal: 202, state: None, snapshot: 200 };

    #[test]
    fn the_script_is_one_line() {
        for state in [None, Some(203)] {
            let script = script(ScriptDescriptors { state, ..DESCRIPTORS });
            assert!(!script.contains('\n'), "{script}");
        }
    }

    /// Runs a script on files instead of pipes, and returns its snapshot without the names.
    #[expect(clippy::disallowed_methods, reason = "the script is for bash")]
    fn run(script: &str, start_line: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("text", "\0v='1  2'; w=3\0"), ("go", start_line), ("state", "")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let started = Command::new("/bin/bash")
            .args(["-c", "exec bash -c \"$0\" 200<>state 201<text 202<go", script])
            .current_dir(folder.path())
            .status();
        started.unwrap();
        let snapshot = fs::read_to_string(folder.path().join("state")).unwrap();
        snapshot.split_once('\0').map_or_else(String::new, |(_, state)| state.to_owned())
    }

    #[test]
    fn the_state_is_written_even_if_its_file_cannot_be_reopened() {
        let usual_script = script(DESCRIPTORS);
        let broken_script = usual_script.replace("/proc/self/fd/200", "/nowhere/200");
        assert_ne!(usual_script, broken_script);
        for script in [usual_script, broken_script] {
            let state = run(&script, "\n");
            assert!(state.contains("declare -- v=\"1  2\"\ndeclare -- w=\"3\"\n"), "{state}");
            assert!(state.ends_with(&format!("\n{END}\n")), "{state}");
            assert!(!state.contains("__portcullis_save"), "{state}");
        }
    }

    #[test]
    fn without_a_line_there_is_no_command() {
        assert_eq!(run(&script(DESCRIPTORS), ""), "");
    }
}
