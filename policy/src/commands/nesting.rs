//! How deep a command may be nested: the parser goes back and tries again at each level of some constructs, and
//! takes twice the time for each of them if what is within is no command.

use brush_parser::Token;

/// How many brackets and `case` clauses may stand within one another.
const MAX_DEPTH: usize = 6;

/// How many substitutions a text may have. The tokenizer's depth is that of the substitutions, closed or not.
const MAX_SUBSTITUTIONS: usize = 256;

/// How many `[` a word may have: the parser looks for the end of each.
const MAX_INDEXES: usize = 512;

/// What is open.
#[derive(PartialEq, Eq)]
enum Open {
    Bracket,
    Case,
}

/// Whether a text can be taken apart without end.
///
/// # Errors
/// That it has too many substitutions.
pub(super) fn ensure_few_substitutions(command: &str) -> Result<(), String> {
    if command.matches("$(").count() > MAX_SUBSTITUTIONS {
        return Err(format!("more than {MAX_SUBSTITUTIONS} substitutions"));
    }
    Ok(())
}

/// Whether the tokens of a text are nested so little that they can be parsed.
///
/// Closing ones count where the parser takes them for that: it must have got there to go deeper, so that words
/// which only look like them do not help.
///
/// # Errors
/// That they are nested too deeply.
pub(super) fn ensure_shallow(tokens: &[Token]) -> Result<(), String> {
    let mut open = Vec::new();
    let mut before: Option<&Token> = None;
    for token in tokens {
        let starts_command = match before {
            None => true,
            Some(Token::Operator(sign, _)) => !sign.starts_with(['<', '>']),
            Some(Token::Word(word, _)) => RESERVED.contains(&word.as_str()),
        };
        match token {
            Token::Operator(sign, _) if sign.starts_with('(') => {
                open.extend(sign.matches('(').map(|_| Open::Bracket));
            }
            Token::Operator(sign, _) if sign.starts_with(')') => {
                for _ in sign.matches(')') {
                    // One that closes nothing ends a pattern of `case`.
                    if open.last() == Some(&Open::Bracket) {
                        open.pop();
                    }
                }
            }
            Token::Word(word, _) if word == "case" && starts_command => open.push(Open::Case),
            Token::Word(word, _) if word == "esac" && starts_command => {
                if let Some(at) = open.iter().rposition(|it| *it == Open::Case) {
                    open.truncate(at);
                }
            }
            Token::Word(word, _) if word.matches('[').count() > MAX_INDEXES => {
                return Err(format!("more than {MAX_INDEXES} `[` in one word"));
            }
            Token::Operator(..) | Token::Word(..) => {}
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("brackets or `case` within one another, more than {MAX_DEPTH} deep"));
        }
        before = Some(token);
    }
    Ok(())
}

/// Whether the indexes of a word are names or numbers: what stands in the index of `${x[…]}` is parsed again for
/// every level.
///
/// # Errors
/// That one is not.
pub(super) fn ensure_plain_indexes(word: &str) -> Result<(), String> {
    for (at, _) in word.match_indices("${") {
        let name = word[at + 2..].trim_start_matches(['!', '#']);
        let after = name.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        let Some(index) = after.strip_prefix('[') else { continue };
        let plain = |char: char| char.is_alphanumeric() || "_@*$+-".contains(char);
        if !index.trim_start_matches(plain).starts_with(']') {
            return Err("an index of a list that is more than a name or a number".to_owned());
        }
    }
    Ok(())
}

/// Words after which a command begins.
const RESERVED: &[&str] =
    &["if", "then", "else", "elif", "while", "until", "do", "{", "!", "time", "coproc", "in"];
