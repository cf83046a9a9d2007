//! Reads a word of a command: its literal text, and the commands within it.

use brush_parser::{
    ParserOptions,
    word::{self, WordPiece, WordPieceWithSource},
};

use super::{UnreadableCommand, nesting, text};

/// A placeholder for a part of a word whose value is not in the text, such as the value of a variable.
const UNKNOWN: char = '\u{fffc}';

/// The system's folders of programs.
const PROGRAM_FOLDERS: &[&str] =
    &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// A word of a program's call. The first word is the program's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandWord {
    text: String,
    /// Whether the shell may expand the word to several words or to none.
    pub(super) may_be_several: bool,
}

/// A word and the commands within it.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) argument: CommandWord,
    /// The texts of command substitutions.
    pub(super) substitutions: Vec<String>,
}

impl CommandWord {
    /// Creates a word that is literal text.
    pub(super) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), may_be_several: false }
    }

    /// Returns the word, if the text contains its whole value.
    pub(super) fn literal(&self) -> Option<&str> {
        (!self.may_be_several && !self.text.contains(UNKNOWN)).then_some(&self.text)
    }

    /// Returns whether the text contains the whole value, except the names of files that match a pattern.
    pub(super) fn is_known(&self) -> bool {
        !self.text.contains(UNKNOWN)
    }

    /// Creates a word that may expand to any word, to several words, or to none.
    pub(super) fn unknown() -> Self {
        Self { text: UNKNOWN.to_string(), may_be_several: true }
    }

    /// Returns the program's name if this is the first word: the part after the last `/`.
    pub(super) fn program(&self) -> Option<&str> {
        let name = self.text.rsplit('/').next()?;
        (!self.may_be_several && !name.is_empty() && !name.contains(UNKNOWN)).then_some(name)
    }

    /// Returns whether the program is looked up by its name or is in a system folder. In any other folder,
    /// a file can have the name of a system program.
    pub(super) fn is_in_system_folder(&self) -> bool {
        match self.text.rsplit_once('/') {
            None => true,
            Some((folder, _)) => PROGRAM_FOLDERS.contains(&folder),
        }
    }

    /// Returns this word with an unknown text in place of every occurrence of a part.
    pub(super) fn with_unknown(&self, part: &str) -> Self {
        Self { text: self.text.replace(part, &UNKNOWN.to_string()), ..self.clone() }
    }

    /// Returns whether a program may take the word for an option.
    pub(super) fn may_be_option(&self) -> bool {
        self.text.starts_with(['-', UNKNOWN])
    }

    /// Returns whether the literal part of the word contains a text.
    pub(super) fn contains(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

/// Reads a word from the parser, with its quotes.
///
/// # Errors
/// The reason why the word cannot be judged.
pub(super) fn read(raw: &str) -> Result<Word, UnreadableCommand> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse(raw, &ParserOptions::default())
        .map_err(|error| UnreadableCommand::WordSyntax(error.to_string()))?;
    let mut reader = WordReader::new(raw);
    reader.read_pieces(&pieces, false)?;
    let WordReader { text, mut may_be_several, substitutions, has_open_brace, has_brace_separator, .. } =
        reader;
    // `{a,b}` and `{1..3}` expand to several words. A single brace is plain text.
    may_be_several |= has_open_brace && has_brace_separator;
    // The word `[` is the program `test`, not a pattern.
    may_be_several &= raw != "[";
    Ok(Word { argument: CommandWord { text, may_be_several }, substitutions })
}

/// Returns the commands in a here-document, where quotes have no meaning.
///
/// # Errors
/// As in [`read`].
pub(super) fn read_document(raw: &str) -> Result<Vec<String>, UnreadableCommand> {
    nesting::ensure_plain_indexes(raw)?;
    let pieces = word::parse_heredoc(raw, &ParserOptions::default())
        .map_err(|error| UnreadableCommand::WordSyntax(error.to_string()))?;
    let mut reader = WordReader::new(raw);
    reader.read_pieces(&pieces, true)?;
    Ok(reader.substitutions)
}

struct WordReader<'a> {
    raw: &'a str,
    text: String,
    may_be_several: bool,
    substitutions: Vec<String>,
    /// Whether there is an opening brace outside of quotes.
    has_open_brace: bool,
    /// Whether text outside of quotes would make braces expand to several words.
    has_brace_separator: bool,
}

impl<'a> WordReader<'a> {
    fn new(raw: &'a str) -> Self {
        let (text, substitutions) = (String::new(), Vec::new());
        Self {
            raw,
            text,
            may_be_several: false,
            substitutions,
            has_open_brace: false,
            has_brace_separator: false,
        }
    }
    fn read_pieces(&mut self, pieces: &[WordPieceWithSource], quoted: bool) -> Result<(), UnreadableCommand> {
        pieces.iter().try_for_each(|piece| self.read_piece(piece, quoted))
    }

    fn read_piece(&mut self, piece: &WordPieceWithSource, quoted: bool) -> Result<(), UnreadableCommand> {
        match &piece.piece {
            WordPiece::Text(text) => {
                // These characters may make the word expand to file names or to several words.
                self.may_be_several |= !quoted && text.contains(['*', '?', '[', '(']);
                self.has_open_brace |= !quoted && text.contains('{');
                self.has_brace_separator |= !quoted && (text.contains(',') || text.contains(".."));
                self.text.push_str(text);
            }
            WordPiece::SingleQuotedText(text) => self.text.push_str(text),
            // Escapes such as `$'\x72m'` are not decoded, so the text counts as unknown.
            WordPiece::AnsiCQuotedText(text) if text.contains('\\') => self.text.push(UNKNOWN),
            WordPiece::AnsiCQuotedText(text) => self.text.push_str(text),
            WordPiece::EscapeSequence(escaped) => {
                // A backslash before a line end joins the lines.
                self.text.push_str(escaped.trim_start_matches('\\').trim_start_matches('\n'));
                // Both backslashes of `\\` were trimmed above.
                if escaped == "\\\\" {
                    self.text.push('\\');
                }
            }
            WordPiece::DoubleQuotedSequence(pieces) | WordPiece::GettextDoubleQuotedSequence(pieces) => {
                self.read_pieces(pieces, true)?;
            }
            // The home of a session is not known when its command is judged.
            WordPiece::TildeExpansion(_) => self.text.push(UNKNOWN),
            WordPiece::ParameterExpansion(_) => {
                let source = self.raw.get(piece.start_index..piece.end_index).unwrap_or(self.raw);
                ensure_no_command(source)?;
                // `"$@"` and `"${x[@]}"` may expand to several words even in quotes.
                self.push_unknown(quoted && !source.contains('@'));
            }
            WordPiece::ArithmeticExpression(expression) => {
                let source = self.raw.get(piece.start_index..piece.end_index).unwrap_or(self.raw);
                match source.strip_prefix("$(").and_then(|text| text.strip_suffix(')')) {
                    // Bash reads this as a command substitution that starts with a subshell.
                    Some(command) if source.starts_with("$((") && !text::is_arithmetic(&source[1..]) => {
                        self.substitutions.push(command.to_owned());
                    }
                    _ => ensure_no_command(&expression.value)?,
                }
                self.push_unknown(quoted);
            }
            WordPiece::CommandSubstitution(command) => {
                self.substitutions.push(command.clone());
                self.push_unknown(quoted);
            }
            WordPiece::BackquotedCommandSubstitution(command) => {
                self.substitutions.push(text::without_backslashes(command));
                self.push_unknown(quoted);
            }
        }
        Ok(())
    }

    fn push_unknown(&mut self, quoted: bool) {
        self.text.push(UNKNOWN);
        self.may_be_several |= !quoted;
    }
}

/// Checks that `${…}` or `$((…))` contains no command. `${x@P}` counts as a command, because it runs the value of the
/// variable.
fn ensure_no_command(source: &str) -> Result<(), UnreadableCommand> {
    if source.contains("$(") || source.contains('`') || source.contains("<(") || source.contains("@P}") {
        return Err(UnreadableCommand::CommandInExpansion);
    }
    Ok(())
}
