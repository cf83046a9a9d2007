//! Limits the nesting of a command. The parser backtracks at each level of some constructs: if the inner text
//! is not a command, each level doubles the parsing time.

use brush_parser::Token;

use super::UnreadableCommand;

/// The maximum nesting depth of brackets and `case` clauses.
pub(super) const MAX_DEPTH: usize = 6;

/// The maximum number of substitutions of a text. The tokenizer recurses once for each `$(`, closed or not.
pub(super) const MAX_SUBSTITUTIONS: usize = 256;

/// The maximum number of `[` in a word. The parser searches for the end of each one.
pub(super) const MAX_INDEXES: usize = 512;

/// An open construct.
#[derive(PartialEq, Eq)]
enum OpenConstruct {
    Bracket,
    Case,
}

/// Checks that a text can be tokenized without deep recursion.
///
/// # Errors
/// [`UnreadableCommand::ManySubstitutions`] if the text has more `$(` than the parser can take.
pub(super) fn ensure_few_substitutions(command: &str) -> Result<(), UnreadableCommand> {
    if command.matches("$(").count() > MAX_SUBSTITUTIONS {
        return Err(UnreadableCommand::ManySubstitutions);
    }
    Ok(())
}

/// Checks that the tokens of a text are nested shallowly enough for the parser.
///
/// A closing token lowers the count only where the parser accepts it as a closing token. Words that merely
/// look like one, such as an argument `esac`, must not hide the real depth.
///
/// # Errors
/// [`UnreadableCommand::ManyIndexes`], [`UnreadableCommand::DeepBrackets`].
pub(super) fn ensure_shallow(tokens: &[Token]) -> Result<(), UnreadableCommand> {
    let mut open_constructs = Vec::new();
    let mut previous_token: Option<&Token> = None;
    for token in tokens {
        let starts_command = match previous_token {
            None => true,
            // The word after `<` or `>` is the name of a file.
            Some(Token::Operator(sign, _)) => !sign.starts_with(['<', '>']),
            Some(Token::Word(word, _)) => RESERVED.contains(&word.as_str()),
        };
        match token {
            Token::Operator(sign, _) if sign.starts_with('(') => {
                open_constructs.extend(sign.matches('(').map(|_| OpenConstruct::Bracket));
            }
            Token::Operator(sign, _) if sign.starts_with(')') => {
                for _ in sign.matches(')') {
                    // A `)` that closes no bracket ends a pattern of `case`.
                    if open_constructs.last() == Some(&OpenConstruct::Bracket) {
                        open_constructs.pop();
                    }
                }
            }
            Token::Word(word, _) if word == "case" && starts_command => {
                open_constructs.push(OpenConstruct::Case);
            }
            Token::Word(word, _) if word == "esac" && starts_command => {
                if let Some(case_index) =
                    open_constructs.iter().rposition(|construct| *construct == OpenConstruct::Case)
                {
                    open_constructs.truncate(case_index);
                }
            }
            Token::Word(word, _) if word.matches('[').count() > MAX_INDEXES => {
                return Err(UnreadableCommand::ManyIndexes);
            }
            Token::Operator(..) | Token::Word(..) => {}
        }
        if open_constructs.len() > MAX_DEPTH {
            return Err(UnreadableCommand::DeepBrackets);
        }
        previous_token = Some(token);
    }
    Ok(())
}

/// Checks that the indexes of a word are plain names or numbers, because the parser parses the index of `${x[…]}` again
/// at every level.
///
/// # Errors
/// [`UnreadableCommand::IndexExpression`] if an index is neither a name nor a number.
pub(super) fn ensure_plain_indexes(word: &str) -> Result<(), UnreadableCommand> {
    for (offset, _) in word.match_indices("${") {
        // `${!x[…]}` and `${#x[…]}` have an index too.
        let name = word[offset + 2..].trim_start_matches(['!', '#']);
        let after_name = name.trim_start_matches(|char: char| char.is_alphanumeric() || char == '_');
        let Some(index) = after_name.strip_prefix('[') else { continue };
        let is_plain = |char: char| char.is_alphanumeric() || "_@*$+-".contains(char);
        if !index.trim_start_matches(is_plain).starts_with(']') {
            return Err(UnreadableCommand::IndexExpression);
        }
    }
    Ok(())
}

/// Reserved words after which a command starts.
const RESERVED: &[&str] =
    &["if", "then", "else", "elif", "while", "until", "do", "{", "!", "time", "coproc", "in"];
