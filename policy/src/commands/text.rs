//! Operations on the source text of commands.

/// Returns the text of a command in backquotes as the shell reads it: a backslash is an escape only before
/// `$`, `` ` `` and another backslash (POSIX, "Command Substitution").
pub(super) fn without_backslashes(command: &str) -> String {
    let mut plain = String::with_capacity(command.len());
    let mut chars = command.chars().peekable();
    while let Some(char) = chars.next() {
        let is_escape = char == '\\' && chars.peek().is_some_and(|next| matches!(next, '$' | '`' | '\\'));
        plain.push(if is_escape { chars.next().unwrap_or(char) } else { char });
    }
    plain
}

/// Returns whether bash reads a text in two pairs of brackets as arithmetic instead of a subshell within a
/// subshell. In arithmetic, the two pairs open and close side by side, as in `((a + (b)))`. A text with
/// quotes is undecided and counts as a subshell.
pub(super) fn is_arithmetic(bracketed: &str) -> bool {
    let Some(inner) = bracketed.strip_prefix("((").and_then(|text| text.strip_suffix("))")) else {
        return false;
    };
    let mut depth = 0_usize;
    for char in inner.chars() {
        match char {
            '(' => depth += 1,
            // The inner of the two outer brackets would close here, before the end.
            ')' if depth == 0 => return false,
            ')' => depth -= 1,
            '\'' | '"' | '\\' | '`' => return false,
            _ => {}
        }
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_has_matching_double_brackets() {
        for text in ["((1))", "((a + (b)))", "(((1)))", "((i < 5))"] {
            assert!(is_arithmetic(text), "{text}");
        }
        for text in ["( (a) )", "((a) )", "( (a))", "((a); (b))", "((a 'b))'))", "(a)", ""] {
            assert!(!is_arithmetic(text), "{text}");
        }
    }

    #[test]
    fn a_backslash_in_backquotes_hides_three_signs() {
        assert_eq!(without_backslashes(r"a \`b\` \$c \\ \d"), r"a `b` $c \ \d");
    }
}
