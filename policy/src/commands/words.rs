//! Reads a word of a command: its literal text, and the commands within it.

use brush_parser::{
    ParserOptions,
    word::{self, WordPiece, WordPieceWithSource},
};

use super::{nesting, text};

/// Placeholder for a part of a word that is not in the text, such as the value of a variable.
const UNKNOWN: char = '\u{fffc}';

/// The system's folders of programs.
const PROGRAM_FOLDERS: &[&str] =
    &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// A word of a program's call; the first is the program's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandWord {
    text: String,
    /// Whether the shell may expand it to several words or to none.
    pub(super) may_be_several: bool,
}

/// A word, and the commands within it.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) argument: CommandWord,
    /// The texts of command substitutions.
    pub(super) substitutions: Vec<String>,
}

impl CommandWord {
    /// A word that is literal text.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), may_be_several: false }
    }

    /// The word, if all of it is in the text.
    pub(super) fn literal(&self) -> Option<&str> {
        (!self.may_be_several && !self.text.contains(UNKNOWN)).then_some(&self.text)
    }

    /// An unknown word, or several, or none.
    pub(super) fn unknown() -> Self {
        Self { text: UNKNOWN.to_string(), may_be_several: true }
    }

    /// The program's name if this is the first word: the part after the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        let name = self.text.rsplit('/').next()?;
        (!self.may_be_several && !name.is_empty() && !name.contains(UNKNOWN)).then_some(name)
    }

    /// Whether the program is looked up by its name or lies in a system folder. Elsewhere a program can have
    /// any name.
    pub(super) fn is_of_the_system(&self) -> bool {
        match self.text.rsplit_once('/') {
            None => true,
            Some((folder, _)) => PROGRAM_FOLDERS.contains(&folder),
        }
    }

    /// The same word with a part of it replaced by an unknown text.
    pub(super) fn with_unknown(&self, part: &str) -> Self {
        Self { text: self.text.replace(part, &UNKNOWN.to_string()), ..self.clone() }
    }

    /// Whether a program may take the word for an option.
    pub(super) fn may_be_option(&self) -> bool {
        self.text.starts_with(['-', UNKNOWN])
    }

    /// Whether the literal part of the word contains a text.
    pub(super) fn contains(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

/// Reads a word from the parser, with its quotes.
///
/// # Errors
/// The reason why it cannot be judged.
pub(super) fn read(raw: &str) -> Result<Word, String> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = WordReader::new(raw);
    reader.pieces(&pieces, false)?;
    let WordReader { text, mut may_be_several, substitutions, brace, list, .. } = reader;
    // `{a,b}` and `{1..3}` expand; a brace alone is text.
    may_be_several |= brace && list;
    // The word `[` names the program `test`; it is not a pattern.
    may_be_several &= raw != "[";
    Ok(Word { argument: CommandWord { text, may_be_several }, substitutions })
}

/// The commands in a here-document, in which quotes have no meaning.
///
/// # Errors
/// As [`read`].
pub(super) fn read_document(raw: &str) -> Result<Vec<String>, String> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse_heredoc(raw, &ParserOptions::default()).map_err(|error| error.to_string())?;
    let mut reader = WordReader::new(raw);
    reader.pieces(&pieces, true)?;
    Ok(reader.substitutions)
}

struct WordReader<'a> {
    raw: &'a str,
    text: String,
    may_be_several: bool,
    substitutions: Vec<String>,
    /// Whether a brace opens outside of quotes.
    brace: bool,
    /// Whether text outside of quotes makes the braces expand to several words.
    list: bool,
}

impl<'a> WordReader<'a> {
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
                // These may expand to file names or to several words.
                self.may_be_several |= !quoted && text.contains(['*', '?', '[', '(']);
                self.brace |= !quoted && text.contains('{');
                self.list |= !quoted && (text.contains(',') || text.contains(".."));
                self.text.push_str(text);
            }
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            // The escapes (`$'\x72m'`) are not decoded, so the text counts as unknown.
            WordPiece::AnsiCQuotedText(text) if text.contains('\\') => self.text.push(UNKNOWN),
            WordPiece::AnsiCQuotedText(text) => self.text.push_str(text),
            WordPiece::EscapeSequence(escaped) => {
                // A backslash before a line's end joins the lines.
                self.text.push_str(escaped.trim_start_matches('\\').trim_start_matches('\n'));
                // Both backslashes of `\\` were trimmed above.
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
                // `"$@"` and `"${x[@]}"` may expand to several words even in quotes.
                self.unknown(quoted && !source.contains('@'));
            }
            WordPiece::ArithmeticExpression(expression) => {
                let source = self.raw.get(piece.start_index..piece.end_index).unwrap_or(self.raw);
                match source.strip_prefix("$(").and_then(|text| text.strip_suffix(')')) {
                    // To bash this is a command substitution that begins with a subshell.
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

/// Checks for commands within `${…}` and `$((…))`, where they can stand too; `${x@P}` runs a variable's
/// value.
fn ensure_no_command(source: &str) -> Result<(), String> {
    if source.contains("$(") || source.contains('`') || source.contains("<(") || source.contains("@P}") {
        return Err("a command within `${…}` or `$((…))`; give it to a variable first".to_owned());
    }
    Ok(())
}
