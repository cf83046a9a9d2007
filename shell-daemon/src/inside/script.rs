//! What bash is given: read the command and the last state, run the one in the other, write the state.
//!
//! It is one line, so that messages of the command name the line that people expect. All names of its own
//! begin with `__portcullis_`.

use super::snapshot::END;

/// The descriptors that a command's shell has besides the standard ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors {
    /// The command's folder and text.
    pub(super) command: i32,
    /// The last good snapshot, if there is one.
    pub(super) state: Option<i32>,
    /// Where the next snapshot goes.
    pub(super) snapshot: i32,
}

/// The script for bash.
pub(super) fn script(descriptors: Descriptors) -> String {
    let Descriptors { command, state, snapshot } = descriptors;
    let restore = state.map_or_else(String::new, |state| {
        format!(
            "IFS= read -r -d '' -u {state} __portcullis_state; exec {state}<&-; \
             eval \"$__portcullis_state\" 2>/dev/null; unset __portcullis_state; "
        )
    });
    // Errors of a state that cannot be restored whole (a folder that is gone) are not the command's.
    format!(
        "shopt -s expand_aliases; IFS= read -r -d '' -u {command} __portcullis_workdir; \
         IFS= read -r -d '' -u {command} __portcullis_command; \
         exec {command}<&-; {restore}trap '{save}' EXIT; \
         if [[ $__portcullis_workdir ]]; then builtin cd -- \"$__portcullis_workdir\" || exit; fi; eval \"$__portcullis_command\"",
        save = save(snapshot),
    )
}

/// What the shell does as it exits. The order is that of restoring: options that change how text is read,
/// the folder, variables, functions, then aliases and options that would change all of this.
///
/// Names come by one more process, and are split by the parser, whatever `IFS` is: asking for them letter by
/// letter, which needs no process, takes three times as long. Without them, when no process
/// can be had, the snapshot is not finished. It holds no single quote. Its errors, and its trace if the command traces, go nowhere; the `||` keeps
/// `errexit` from ending it.
fn save(snapshot: i32) -> String {
    format!(
        "{{ __portcullis_options=$SHELLOPTS; __portcullis_shopt=$BASHOPTS; set +eux +o posix; \
         echo \"shopt -u {SHOPT_DEFAULTS}\"; echo \"shopt -s ${{__portcullis_shopt//:/ }}\"; \
         printf \"builtin cd -- %q\\n\" \"$PWD\"; \
         __portcullis_lines=$(compgen -v); printf -v __portcullis_newline \"\\n\"; \
         eval \"__portcullis_names=(${{__portcullis_lines//$__portcullis_newline/ }})\"; \
         for __portcullis_name in \"${{__portcullis_names[@]}}\"; do \
         case $__portcullis_name in {LEFT_OUT}) continue ;; esac; \
         case ${{!__portcullis_name@a}} in *r*) continue ;; esac; \
         declare -p \"$__portcullis_name\"; done; \
         declare -f; declare -Fx; alias -p; \
         echo \"set {SET_DEFAULTS}${{__portcullis_options:+ -o ${{__portcullis_options//:/ -o }}}}\"; \
         [[ ${{__portcullis_names-}} ]] && echo \"{END}\"; }} >&{snapshot} 2>/dev/null || :",
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
    fn the_script_is_one_line_and_closes_its_quotes() {
        for state in [None, Some(201)] {
            let script = script(Descriptors { command: 200, state, snapshot: 202 });
            assert!(!script.contains('\n'), "{script}");
            assert!(!save(202).contains('\''), "{script}");
        }
    }
}
