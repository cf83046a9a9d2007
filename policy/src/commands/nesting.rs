//! Bounds the nesting of a command: the parser backtracks at each level of some constructs. Where the inner
//! text is not a command, each level doubles the time.

use brush_parser::Token;

/// The most brackets and `case` clauses within one another.
const MAX_DEPTH: usize = 6;

/// The most substitutions of a text. The tokenizer's recursion is as deep as their number, closed or not.
const MAX_SUBSTITUTIONS: usize = 256;

/// The most `[` of a word: the parser searches for the end of each.
const MAX_INDEXES: usize = 512;

/// An open construct.
#[derive(PartialEq, Eq)]
enum OpenConstruct {
    Bracket,
    Case,
}

/// Checks that a text can be tokenized without deep recursion.
///
/// # Errors
/// A message if it has too many substitutions.
pub(super) fn ensure_few_substitutions(command: &str) -> Result<(), String> {
    if command.matches("$(").count() > MAX_SUBSTITUTIONS {
        return Err(format!("more than {MAX_SUBSTITUTIONS} substitutions"));
    }
    Ok(())
}

/// Checks that the tokens of a text are nested shallowly enough to be parsed.
///
/// A closing token counts only where the parser would take it as one: to go deeper the parser must have
/// passed it, so look-alike words do not lower the count.
///
/// # Errors
/// A message if they are nested too deeply.
pub(super) fn ensure_shallow(tokens: &[Token]) -> Result<(), String> {
    let mut open = Vec::new();
    let mut before: Option<&Token> = None;
    for token in tokens {
        let starts_command = match before {
            None => true,
            // After `<` or `>` stands the name of a file.
            Some(Token::Operator(sign, _)) => !sign.starts_with(['<', '>']),
            Some(Token::Word(word, _)) => RESERVED.contains(&word.as_str()),
        };
        match token {
            Token::Operator(sign, _) if sign.starts_with('(') => {
                open.extend(sign.matches('(').map(|_| OpenConstruct::Bracket));
            }
            Token::Operator(sign, _) if sign.starts_with(')') => {
                for _ in sign.matches(')') {
                    // A `)` that closes no bracket ends a pattern of `case`.
                    if open.last() == Some(&OpenConstruct::Bracket) {
                        open.pop();
                    }
                }
            }
            Token::Word(word, _) if word == "case" && starts_command => open.push(OpenConstruct::Case),
            Token::Word(word, _) if word == "esac" && starts_command => {
                if let Some(at) = open.iter().rposition(|it| *it == OpenConstruct::Case) {
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

/// Checks that the indexes of a word are names or numbers: the parser parses the index of `${x[…]}` again at
/// every level.
///
/// # Errors
/// A message if one is not.
pub(super) fn ensure_plain_indexes(word: &str) -> Result<(), String> {
    for (at, _) in word.match_indices("${") {
        // `${!x[…]}` and `${#x[…]}` have an index too.
        let name = word[at + 2..].trim_start_matches(['!', '#']);
        let after = name.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        let Some(index) = after.strip_prefix('[') else { continue };
        let plain = |char: char| char.is_alphanumeric() || "_@*$+-".contains(char);
        if !index.trim_start_matches(plain).starts_with(']') {
            return Err("the index of a list is more than a name or a number".to_owned());
        }
    }
    Ok(())
}

/// Reserved words after which a command begins.
const RESERVED: &[&str] =
    &["if", "then", "else", "elif", "while", "until", "do", "{", "!", "time", "coproc", "in"];
