//! Follows the content of a page as far as text goes: the state of text and of transformations, fonts, and forms.
//!
//! Paths, colours, clipping and images are passed over. So text is read whatever covers or hides it, as on a scanned
//! page, whose only text is the invisible layer above the picture.

use std::rc::Rc;

use hayro_syntax::{
    content::{TypedIter, ops::TypedInstruction},
    object::{Array, Dict, Name, Number, Object, Stream, dict::keys},
    page::{Page, Resources},
};

use super::{
    budget::{Budget, Exhausted, FORM_OPERATIONS, MAX_STREAM_BYTES},
    decode::decode,
    font::{Font, Fonts},
    layout::{Layout, Placed},
    matrix::{Matrix, Point},
};

/// The deepest form within forms.
const MAX_FORM_DEPTH: usize = 12;

/// The most states that are kept at a time. Deeper ones are counted, so that each end finds its beginning.
const MAX_STATES: usize = 128;

/// The most parts of a page's content.
const MAX_CONTENTS: usize = 10_000;

/// The smallest letters that are text: below it, no distance can be told.
const MIN_SIZE: f64 = 1e-6;

/// Reads the text of a page into a layout. Where the budget ends, the layout has the text so far.
pub(super) fn read_page(
    page: &Page<'_>,
    fonts: &mut Fonts,
    budget: &mut Budget,
    layout: &mut Layout,
) -> Result<(), Exhausted> {
    let mut content = Vec::new();
    if let Some(stream) = page.raw().get::<Stream<'_>>(keys::CONTENTS) {
        content = decode(&stream, MAX_STREAM_BYTES, budget)?;
    } else if let Some(parts) = page.raw().get::<Array<'_>>(keys::CONTENTS) {
        for part in parts.iter::<Stream<'_>>().take(MAX_CONTENTS) {
            let most = MAX_STREAM_BYTES.saturating_sub(content.len());
            content.extend(decode(&part, most, budget)?);
            // A word does not go on in the next part.
            content.push(b' ');
        }
    }
    let mut reader = Reader { fonts, budget, layout, state: State::new(), saved: Vec::new(), unsaved: 0 };
    reader.run(&content, page.resources(), 0)
}

/// The reader of one page.
struct Reader<'r> {
    fonts: &'r mut Fonts,
    budget: &'r mut Budget,
    layout: &'r mut Layout,
    state: State,
    saved: Vec<State>,
    /// How many states were too deep to be saved.
    unsaved: usize,
}

/// The part of the graphics state that text depends on.
#[derive(Clone, Debug)]
struct State {
    /// From the form or page to the page.
    page: Matrix,
    /// From text to the form or page, and the same at the beginning of the line.
    text: Matrix,
    line: Matrix,
    font: Option<Rc<Font>>,
    size: f64,
    character_spacing: f64,
    word_spacing: f64,
    /// The horizontal scaling, 1 for 100 per cent.
    scaling: f64,
    leading: f64,
    rise: f64,
}

impl State {
    fn new() -> Self {
        Self {
            page: Matrix::IDENTITY,
            text: Matrix::IDENTITY,
            line: Matrix::IDENTITY,
            font: None,
            size: 0.0,
            character_spacing: 0.0,
            word_spacing: 0.0,
            scaling: 1.0,
            leading: 0.0,
            rise: 0.0,
        }
    }
}

impl Reader<'_> {
    fn run(&mut self, content: &[u8], resources: &Resources<'_>, depth: usize) -> Result<(), Exhausted> {
        let mut instructions = TypedIter::new(content);
        while let Some(instruction) = instructions.next() {
            self.budget.operations(1)?;
            match instruction {
                TypedInstruction::SaveState(_) => self.save(),
                TypedInstruction::RestoreState(_) => self.restore(),
                TypedInstruction::Transform(it) => {
                    self.state.page = matrix([it.0, it.1, it.2, it.3, it.4, it.5]).then(self.state.page);
                }
                TypedInstruction::BeginText(_) => self.set_line(Matrix::IDENTITY),
                TypedInstruction::SetTextMatrix(it) => {
                    self.set_line(matrix([it.0, it.1, it.2, it.3, it.4, it.5]));
                }
                TypedInstruction::NextLine(it) => self.next_line(it.0.as_f64(), it.1.as_f64()),
                TypedInstruction::NextLineAndSetLeading(it) => {
                    self.state.leading = -it.1.as_f64();
                    self.next_line(it.0.as_f64(), it.1.as_f64());
                }
                TypedInstruction::NextLineUsingLeading(_) => self.next_line(0.0, -self.state.leading),
                TypedInstruction::CharacterSpacing(it) => self.state.character_spacing = it.0.as_f64(),
                TypedInstruction::WordSpacing(it) => self.state.word_spacing = it.0.as_f64(),
                TypedInstruction::HorizontalScaling(it) => self.state.scaling = it.0.as_f64() / 100.0,
                TypedInstruction::TextLeading(it) => self.state.leading = it.0.as_f64(),
                TypedInstruction::TextRise(it) => self.state.rise = it.0.as_f64(),
                TypedInstruction::TextFont(it) => {
                    self.state.font = self.fonts.get(it.0, resources, self.budget)?;
                    self.state.size = it.1.as_f64();
                }
                TypedInstruction::ShowText(it) => self.show(it.0.as_bytes())?,
                TypedInstruction::NextLineAndShowText(it) => {
                    self.next_line(0.0, -self.state.leading);
                    self.show(it.0.as_bytes())?;
                }
                TypedInstruction::ShowTextWithParameters(it) => {
                    (self.state.word_spacing, self.state.character_spacing) = (it.0.as_f64(), it.1.as_f64());
                    self.next_line(0.0, -self.state.leading);
                    self.show(it.2.as_bytes())?;
                }
                TypedInstruction::ShowTexts(it) => self.show_all(it.0)?,
                TypedInstruction::XObject(it) => self.form(it.0, resources, depth)?,
                // Everything else draws, or is about drawing.
                _ => {}
            }
        }
        Ok(())
    }

    fn save(&mut self) {
        if self.saved.len() < MAX_STATES {
            self.saved.push(self.state.clone());
        } else {
            self.unsaved += 1;
        }
    }

    fn restore(&mut self) {
        if self.unsaved > 0 {
            self.unsaved -= 1;
        } else if let Some(state) = self.saved.pop() {
            self.state = state;
        }
    }

    fn set_line(&mut self, line: Matrix) {
        (self.state.text, self.state.line) = (line, line);
    }

    fn next_line(&mut self, x: f64, y: f64) {
        self.set_line(Matrix::translation(x, y).then(self.state.line));
    }

    /// Shows strings with steps between them, in thousandths of the size.
    fn show_all(&mut self, items: &Array<'_>) -> Result<(), Exhausted> {
        for item in items.iter::<Object<'_>>() {
            match item {
                Object::String(string) => self.show(string.as_bytes())?,
                Object::Number(step) => {
                    let step = -step.as_f64() / 1000.0 * self.state.size;
                    self.advance(step);
                    self.budget.operations(1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn show(&mut self, string: &[u8]) -> Result<(), Exhausted> {
        let Some(font) = self.state.font.clone() else { return Ok(()) };
        let mut rest = string;
        while !rest.is_empty() {
            self.budget.operations(1)?;
            let shown = font.first(rest);
            rest = &rest[shown.length..];
            let width = shown.width / 1000.0 * self.state.size;
            let spacing =
                self.state.character_spacing + if shown.is_space { self.state.word_spacing } else { 0.0 };
            // A glyph of a vertical font is as high as the font, and the next one stands below.
            let width = if font.is_vertical() { self.state.size } else { width };
            self.place(&font, shown.characters.as_deref(), width)?;
            self.advance(if font.is_vertical() { -(width - spacing) } else { width + spacing });
        }
        Ok(())
    }

    /// Moves on by a step in the direction of writing.
    fn advance(&mut self, step: f64) {
        let is_vertical = self.state.font.as_ref().is_some_and(|font| font.is_vertical());
        let (x, y) = if is_vertical { (0.0, step) } else { (step * self.state.scaling, 0.0) };
        self.state.text = Matrix::translation(x, y).then(self.state.text);
    }

    /// Places what a glyph of this width shows.
    fn place(&mut self, font: &Font, characters: Option<&str>, width: f64) -> Result<(), Exhausted> {
        let state = &self.state;
        let matrix = Matrix::translation(0.0, state.rise).then(state.text).then(state.page);
        // The way to the next glyph, of which only the direction counts where the glyph has no width.
        let (forward, along) = if font.is_vertical() {
            (matrix.vector(0.0, -width), matrix.vector(0.0, -1.0))
        } else {
            (matrix.vector(width * state.scaling, 0.0), matrix.vector(state.scaling.signum(), 0.0))
        };
        let size = matrix.vector(0.0, state.size * font.height()).length();
        let (Some(direction), true) = (along.direction(), size > MIN_SIZE && size.is_finite()) else {
            return Ok(());
        };
        let start = matrix.origin();
        let end = Point { x: start.x + forward.x, y: start.y + forward.y };
        let mut text = String::new();
        match characters {
            Some(characters) => characters.chars().for_each(|character| push_plain(character, &mut text)),
            None => text.push(char::REPLACEMENT_CHARACTER),
        }
        self.layout.place(Placed { text: &text, start, end, direction, size }, self.budget)
    }

    /// Runs a form, with its own resources and matrix.
    fn form(&mut self, name: &Name<'_>, resources: &Resources<'_>, depth: usize) -> Result<(), Exhausted> {
        let Some(form) = resources.get_x_object(name) else { return Ok(()) };
        let is_form = form.dict().get::<Name<'_>>(keys::SUBTYPE).as_deref() == Some(b"Form".as_slice());
        if !is_form || depth >= MAX_FORM_DEPTH {
            return Ok(());
        }
        self.budget.operations(FORM_OPERATIONS)?;
        let content = decode(&form, MAX_STREAM_BYTES, self.budget)?;
        let own = form.dict().get::<Dict<'_>>(keys::RESOURCES).map(Resources::new);
        let (outer, saved, unsaved) =
            (self.state.clone(), std::mem::take(&mut self.saved), std::mem::take(&mut self.unsaved));
        if let Some(matrix) = form.dict().get::<[f64; 6]>(keys::MATRIX) {
            self.state.page = Matrix(matrix).then(self.state.page);
        }
        let ran = self.run(&content, own.as_ref().unwrap_or(resources), depth + 1);
        (self.state, self.saved, self.unsaved) = (outer, saved, unsaved);
        ran
    }
}

fn matrix(numbers: [Number; 6]) -> Matrix {
    Matrix(numbers.map(|number| number.as_f64()))
}

/// Appends a character as a reader would type it: ligatures as letters, spaces and hyphens of all kinds as the usual ones.
fn push_plain(character: char, text: &mut String) {
    match character {
        '\u{fb00}' => text.push_str("ff"),
        '\u{fb01}' => text.push_str("fi"),
        '\u{fb02}' => text.push_str("fl"),
        '\u{fb03}' => text.push_str("ffi"),
        '\u{fb04}' => text.push_str("ffl"),
        '\u{fb05}' | '\u{fb06}' => text.push_str("st"),
        // A file shows a soft hyphen only where a line ends with it.
        '\u{ad}' => text.push('-'),
        _ if character.is_whitespace() || character.is_control() => text.push(' '),
        // The bullets of the fonts that word processors bring; other private characters say nothing.
        '\u{f0b7}' => text.push('\u{2022}'),
        '\u{f0a7}' => text.push('\u{25aa}'),
        '\u{e000}'..='\u{f8ff}' => text.push(char::REPLACEMENT_CHARACTER),
        _ => text.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_written_as_a_reader_would_type_them() {
        let mut text = String::new();
        for character in "\u{fb03}x\u{a0}y\u{ad}\u{f0b7}\u{e123}é".chars() {
            push_plain(character, &mut text);
        }
        assert_eq!(text, "ffix y-\u{2022}\u{fffd}é");
    }
}
