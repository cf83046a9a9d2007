//! A word of a command: what of it stands in the text, and the commands within it.

use brush_parser::{
    ParserOptions,
    word::{self, WordPiece, WordPieceWithSource},
};

use super::{nesting, text};

/// Stands for a part of a word that is not in the text, such as the value of a variable.
const UNKNOWN: char = '\u{fffc}';

/// Where a system keeps its programs.
const PROGRAM_FOLDERS: &[&str] =
    &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

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

    /// A word that is not in the text, or several, or none.
    pub(super) fn unknown() -> Self {
        Self { text: UNKNOWN.to_string(), may_be_several: true }
    }

    /// The name of the program that it is as a command's first word: what follows the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        let name = self.text.rsplit('/').next()?;
        (!self.may_be_several && !name.is_empty() && !name.contains(UNKNOWN)).then_some(name)
    }

    /// Whether the program is looked up by its name, or named where a system keeps its programs: elsewhere
    /// anything may have the name of another.
    pub(super) fn is_of_the_system(&self) -> bool {
        match self.text.rsplit_once('/') {
            None => true,
            Some((folder, _)) => PROGRAM_FOLDERS.contains(&folder),
        }
    }

    /// The same word with something that is not in the text in place of a part.
    pub(super) fn with_unknown(&self, part: &str) -> Self {
        Self { text: self.text.replace(part, &UNKNOWN.to_string()), ..self.clone() }
    }

    /// Whether the part of the word that is in the text contains something.
    pub(super) fn contains(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

/// Reads a word as the parser hands it on, with its quotes.
///
/// # Errors
/// What in it cannot be judged.
pub(super) fn read(raw: &str) -> Result<Word, String> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(raw);
    reader.pieces(&pieces, false)?;
    let Reader { text, mut may_be_several, substitutions, brace, list, .. } = reader;
    may_be_several |= brace && list;
    // The program of that name, which is often written, is no pattern.
    may_be_several &= raw != "[";
    Ok(Word { argument: Argument { text, may_be_several }, substitutions })
}

/// Reads a here-document, in which quotes mean nothing; its commands.
///
/// # Errors
/// As [`read`].
pub(super) fn read_document(raw: &str) -> Result<Vec<String>, String> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse_heredoc(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(raw);
    reader.pieces(&pieces, true)?;
    Ok(reader.substitutions)
}

struct Reader<'a> {
    raw: &'a str,
    text: String,
    may_be_several: bool,
    substitutions: Vec<String>,
    /// Whether a brace opens outside of quotes.
    brace: bool,
    /// Whether there is something outside of quotes that makes several words of what is in braces.
    list: bool,
}

impl<'a> Reader<'a> {
    fn new(raw: &'a str) -> Self {
        let (text, substitutions) = (String::new(), Vec::new());
        Self { raw, text, may_be_several: false, substitutions, brace: false, list: false }
    }
    fn pieces(&mut self, pieces: &[WordPieceWithSource], quoted: bool) -> Result<(), String> {
        pieces.iter().try_for_each(|piece| self.piece(piece, quoted))
    }

    fn piece(&mut self, piece: &WordPieceWithSource, quoted: bool) -> Result<(), String> {
        match &piece.piece {
            WordPiece::Text(text) => {
                // Names of files, or several words, come of these.
                self.may_be_several |= !quoted && text.contains(['*', '?', '[', '(']);
                self.brace |= !quoted && text.contains('{');
                self.list |= !quoted && (text.contains(',') || text.contains(".."));
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
                // `"$@"` and `"${x[@]}"` are several words in quotes too.
                self.unknown(quoted && !source.contains('@'));
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
