//! A word of a command: what of it stands in the text, and the commands within it.

use brush_parser::{
    ParserOptions,
    word::{self, WordPiece, WordPieceWithSource},
};

use super::text;

/// Stands for a part of a word that is not in the text, such as the value of a variable.
const UNKNOWN: char = '\u{fffc}';

/// A word that a program is given, its own name first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Argument {
    text: String,
    /// Whether the shell may make several words of it, or none.
    pub(super) may_be_several: bool,
}

/// A word, and the commands within it.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) argument: Argument,
    /// The texts of command substitutions.
    pub(super) substitutions: Vec<String>,
}

impl Argument {
    /// A word that stands in the text as it is.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), may_be_several: false }
    }

    /// The word, where all of it is in the text.
    pub(super) fn literal(&self) -> Option<&str> {
        (!self.may_be_several && !self.text.contains(UNKNOWN)).then_some(&self.text)
    }

    /// The name of the program that it is as a command's first word: what follows the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        let name = self.text.rsplit('/').next()?;
        (!self.may_be_several && !name.is_empty() && !name.contains(UNKNOWN)).then_some(name)
    }
}

/// Reads a word as the parser hands it on, with its quotes.
///
/// # Errors
/// What in it cannot be judged.
pub(super) fn read(raw: &str) -> Result<Word, String> {
    let pieces = word::parse(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = Reader { raw, text: String::new(), may_be_several: false, substitutions: Vec::new() };
    reader.pieces(&pieces, false)?;
    let Reader { text, may_be_several, substitutions, .. } = reader;
    Ok(Word { argument: Argument { text, may_be_several }, substitutions })
}

/// Reads a here-document, in which quotes mean nothing; its commands.
///
/// # Errors
/// As [`read`].
pub(super) fn read_document(raw: &str) -> Result<Vec<String>, String> {
    let pieces = word::parse_heredoc(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = Reader { raw, text: String::new(), may_be_several: false, substitutions: Vec::new() };
    reader.pieces(&pieces, true)?;
    Ok(reader.substitutions)
}

struct Reader<'a> {
    raw: &'a str,
    text: String,
    may_be_several: bool,
    substitutions: Vec<String>,
}

impl Reader<'_> {
    fn pieces(&mut self, pieces: &[WordPieceWithSource], quoted: bool) -> Result<(), String> {
        pieces.iter().try_for_each(|piece| self.piece(piece, quoted))
    }

    fn piece(&mut self, piece: &WordPieceWithSource, quoted: bool) -> Result<(), String> {
        match &piece.piece {
            WordPiece::Text(text) => {
                // Names of files, or several words, come of these.
                self.may_be_several |= !quoted && text.contains(['*', '?', '[', '{']);
                self.text.push_str(text);
            }
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            WordPiece::AnsiCQuotedText(text) if text.contains('\\') => self.text.push(UNKNOWN),
            WordPiece::AnsiCQuotedText(text) => self.text.push_str(text),
            WordPiece::EscapeSequence(escaped) => {
                // A backslash before a line's end joins the lines.
                self.text.push_str(escaped.trim_start_matches('\\').trim_start_matches('\n'));
                if escaped == "\\\\" {
                    self.text.push('\\');
                }
            }
            WordPiece::DoubleQuotedSequence(pieces) | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.pieces(pieces, true)?;
            }
            WordPiece::TildeExpansion(_) => self.text.push(UNKNOWN),
            WordPiece::ParameterExpansion(_) => {
                let source = self.raw.get(piece.start_index..piece.end_index).unwrap_or(self.raw);
                ensure_no_command(source)?;
                self.unknown(quoted);
            }
            WordPiece::ArithmeticExpression(expression) => {
                let source = self.raw.get(piece.start_index..piece.end_index).unwrap_or(self.raw);
                match source.strip_prefix("$(").and_then(|text| text.strip_suffix(')')) {
                    // To bash this is a substitution that begins with a subshell.
                    Some(command) if source.starts_with("$((") && !text::is_arithmetic(&source[1..]) => {
                        self.substitutions.push(command.to_owned());
                    }
                    _ => ensure_no_command(&expression.value)?,
                }
                self.unknown(quoted);
            }
            WordPiece::CommandSubstitution(command) => {
                self.substitutions.push(command.clone());
                self.unknown(quoted);
            }
            WordPiece::BackquotedCommandSubstitution(command) => {
                self.substitutions.push(text::without_backslashes(command));
                self.unknown(quoted);
            }
        }
        Ok(())
    }

    fn unknown(&mut self, quoted: bool) {
        self.text.push(UNKNOWN);
        self.may_be_several |= !quoted;
    }
}

/// Commands can stand within `${…}` and `$((…))` as well, and `${x@P}` runs what a variable holds.
fn ensure_no_command(source: &str) -> Result<(), String> {
    if source.contains("$(") || source.contains('`') || source.contains("<(") || source.contains("@P}") {
        return Err("a command within `${…}` or `$((…))`; give it to a variable first".to_owned());
    }
    Ok(())
}
