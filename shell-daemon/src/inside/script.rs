//! What bash is given: restore the last state, wait, read the command, run the one in the other, write the
//! state.
//!
//! It is one line, so that messages of the command name the line that people expect. All names of its own
//! begin with `__portcullis_`. After the state is there, a function of the session may have any name: what is
//! needed from then on is asked for as a builtin, and the whole script was read before an alias was known.

use super::snapshot::END;

/// The descriptors that a command's shell has besides the standard ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    /// The command's folder and text, complete once a line has come by `go`.
    pub(super) command: i32,
    /// Says when the command begins. Without a line before its end there is none.
    pub(super) go: i32,
    /// The last good snapshot, if there is one.
    pub(super) state: Option<i32>,
    /// Where the next snapshot goes.
    pub(super) snapshot: i32,
}

/// The script for bash.
///
/// All that takes time and does not depend on the moment happens before it waits. The folder is entered
/// after that: it may come and go in the meantime, and a waiting shell holds nobody's folder.
pub(super) fn script(descriptors: Descriptors) -> String {
    let Descriptors { command, go, state, snapshot } = descriptors;
    // Errors of a state that cannot be restored whole (a folder that is gone) are not the command's.
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
        "shopt -s expand_aliases; {save}{restore}\
         builtin read -r -u {go} __portcullis_go || builtin exit; \
         IFS= builtin read -r -d '' -u {command} __portcullis_workdir; \
         IFS= builtin read -r -d '' -u {command} __portcullis_command; \
         command exec {command}<&- {go}<&-; SECONDS=0; {enter}\
         builtin trap '{{ __portcullis_save; }} 2>/dev/null || :' EXIT; \
         if [[ $__portcullis_workdir ]]; then CDPATH= builtin cd -- \"$__portcullis_workdir\" || builtin exit; fi; \
         builtin eval \"${{__portcullis_options-}}\" 2>/dev/null; builtin eval \"$__portcullis_command\"",
        save = save(snapshot),
    )
}

/// What the shell does as it exits, as a function that is gone when functions are listed. The order is that of
/// restoring: options that change how text is read, variables, functions, then aliases and options that would
/// change all of this.
///
/// A list of all names can be had from bash only as output. It goes to the snapshot's file, in front of the
/// state, and is read from there: another process for it would take longer than all the rest. Where the
/// file cannot be opened once more, that process is what remains. Names are split by the parser, whatever `IFS`
/// is. Without them the snapshot is not finished. Errors, and the trace if the command traces, go nowhere.
fn save(snapshot: i32) -> String {
    format!(
        "__portcullis_save() {{ __portcullis_options=$SHELLOPTS; __portcullis_shopt=$BASHOPTS; \
         builtin set +eEfuvxT +o posix; builtin shopt -u extdebug nocasematch xpg_echo; builtin unset -f __portcullis_save; \
         {{ builtin compgen -v; builtin printf '\\0'; \
         IFS= builtin read -r -d '' __portcullis_lines </proc/self/fd/{snapshot} || __portcullis_lines=$(builtin compgen -v); \
         builtin printf -v __portcullis_newline '\\n'; \
         builtin eval \"__portcullis_names=(${{__portcullis_lines//$__portcullis_newline/ }})\"; __portcullis_kept=(); \
         for __portcullis_name in \"${{__portcullis_names[@]}}\"; do \
         case $__portcullis_name in {LEFT_OUT}) continue ;; esac; \
         __portcullis_all=\"$__portcullis_name[@]\"; case ${{!__portcullis_all@a}} in *r*) continue ;; esac; \
         __portcullis_kept+=(\"$__portcullis_name\"); done; \
         builtin printf '%s\\n' \"shopt -u {SHOPT_DEFAULTS}\" \"shopt -s ${{__portcullis_shopt//:/ }}\"; \
         builtin printf '__portcullis_folder=%q\\n__portcullis_options=%q\\n' \"$PWD\" \
         \"set {SET_DEFAULTS}${{__portcullis_options:+ -o ${{__portcullis_options//:/ -o }}}}\"; \
         builtin declare -p \"${{__portcullis_kept[@]}}\"; \
         builtin declare -f; builtin declare -Fx; builtin alias -p; \
         [[ ${{__portcullis_names-}} ]] && builtin printf '%s\\n' '{END}'; }} >&{snapshot}; }}; ",
    )
}

/// Bash's own, which it sets itself or which mean something only while they are set.
const LEFT_OUT: &str = "__portcullis_*|BASH*|_|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|\
    OPTERR|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID";

/// On from the start.
const SHOPT_DEFAULTS: &str = "checkwinsize cmdhist complete_fullquote extquote force_fignore globasciiranges \
    globskipdots hostcomplete interactive_comments patsub_replacement progcomp promptvars sourcepath";

/// Likewise.
const SET_DEFAULTS: &str = "+o braceexpand +o hashall +o interactive-comments";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_line() {
        for state in [None, Some(201)] {
            let script = script(Descriptors { command: 200, go: 203, state, snapshot: 202 });
            assert!(!script.contains('\n'), "{script}");
        }
    }
}
