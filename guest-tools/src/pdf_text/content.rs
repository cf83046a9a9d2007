//! Follows the content of a page as far as its text needs: the state of text and transformations, fonts, and forms.
//!
//! Paths, colours, clipping and images are skipped. Text is therefore read even if something covers or hides it, as on
//! a scanned page, whose only text is an invisible layer above the picture.

use std::rc::Rc;

use hayro_syntax::{
    content::{TypedIter, ops::TypedInstruction},
    object::{Array, Dict, Name, Number, Object, Stream, dict::keys},
    page::{Page, Resources},
};

use super::{
    budget::{Exhausted, FORM_OPERATIONS, MAX_STREAM_BYTES, PdfBudget},
    decode::decode,
    font::{Font, Fonts},
    layout::{Layout, PositionedGlyphs},
    matrix::{Matrix, Point},
};

/// The deepest nesting of forms.
const MAX_FORM_DEPTH: usize = 12;

/// The maximum number of states that are kept at a time. Deeper states are only counted, so that each restore still
/// matches its save.
const MAX_STATES: usize = 128;

/// The maximum number of parts of a page's content.
const MAX_CONTENTS: usize = 10_000;

/// The smallest size of letters that count as text. With smaller letters no distance can be measured.
const MIN_SIZE: f64 = 1e-6;

/// Reads the text of a page into a layout. If the budget is used up, the layout has the text read so far.
pub(super) fn read_page(
    page: &Page<'_>,
    fonts: &mut Fonts,
    budget: &mut PdfBudget,
    layout: &mut Layout,
) -> Result<(), Exhausted> {
    let mut content = Vec::new();
    if let Some(stream) = page.raw().get::<Stream<'_>>(keys::CONTENTS) {
        content = decode(&stream, MAX_STREAM_BYTES, budget)?;
    } else if let Some(parts) = page.raw().get::<Array<'_>>(keys::CONTENTS) {
        for part in parts.iter::<Stream<'_>>().take(MAX_CONTENTS) {
            let max_bytes = MAX_STREAM_BYTES.saturating_sub(content.len());
            content.extend(decode(&part, max_bytes, budget)?);
            // Parts of a page's content are separate: no token continues in the next part.
            content.push(b' ');
        }
    }
    let mut reader = Reader {
        fonts,
        budget,
        layout,
        state: GraphicsState::new(),
        saved_states: Vec::new(),
        unsaved_states: 0,
    };
    reader.run(&content, page.resources(), 0)
}

/// The reader of one page.
struct Reader<'r> {
    fonts: &'r mut Fonts,
    budget: &'r mut PdfBudget,
    layout: &'r mut Layout,
    state: GraphicsState,
    saved_states: Vec<GraphicsState>,
    /// The number of states that were too deep to be saved.
    unsaved_states: usize,
}

/// The part of the graphics state that text depends on.
#[derive(Clone, Debug)]
struct GraphicsState {
    /// Maps the form's or page's space to the page's space.
    page: Matrix,
    /// Maps text space to the form's or page's space.
    text: Matrix,
    /// The same matrix at the start of the current line.
    line: Matrix,
    font: Option<Rc<Font>>,
    size: f64,
    character_spacing: f64,
    word_spacing: f64,
    /// The horizontal scaling. 1 means 100 per cent.
    scaling: f64,
    leading: f64,
    rise: f64,
}

impl GraphicsState {
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
                TypedInstruction::Transform(operands) => {
                    self.state.page =
                        matrix([operands.0, operands.1, operands.2, operands.3, operands.4, operands.5])
                            .then(self.state.page);
                }
                TypedInstruction::BeginText(_) => self.set_line(Matrix::IDENTITY),
                TypedInstruction::SetTextMatrix(operands) => {
                    self.set_line(matrix([
                        operands.0, operands.1, operands.2, operands.3, operands.4, operands.5,
                    ]));
                }
                TypedInstruction::NextLine(operands) => {
                    self.next_line(operands.0.as_f64(), operands.1.as_f64());
                }
                TypedInstruction::NextLineAndSetLeading(operands) => {
                    self.state.leading = -operands.1.as_f64();
                    self.next_line(operands.0.as_f64(), operands.1.as_f64());
                }
                TypedInstruction::NextLineUsingLeading(_) => self.next_line(0.0, -self.state.leading),
                TypedInstruction::CharacterSpacing(operands) => {
                    self.state.character_spacing = operands.0.as_f64();
                }
                TypedInstruction::WordSpacing(operands) => self.state.word_spacing = operands.0.as_f64(),
                TypedInstruction::HorizontalScaling(operands) => {
                    self.state.scaling = operands.0.as_f64() / 100.0;
                }
                TypedInstruction::TextLeading(operands) => self.state.leading = operands.0.as_f64(),
                TypedInstruction::TextRise(operands) => self.state.rise = operands.0.as_f64(),
                TypedInstruction::TextFont(operands) => {
                    self.state.font = self.fonts.get(operands.0, resources, self.budget)?;
                    self.state.size = operands.1.as_f64();
                }
                TypedInstruction::ShowText(operands) => self.show(operands.0.as_bytes())?,
                TypedInstruction::NextLineAndShowText(operands) => {
                    self.next_line(0.0, -self.state.leading);
                    self.show(operands.0.as_bytes())?;
                }
                TypedInstruction::ShowTextWithParameters(operands) => {
                    (self.state.word_spacing, self.state.character_spacing) =
                        (operands.0.as_f64(), operands.1.as_f64());
                    self.next_line(0.0, -self.state.leading);
                    self.show(operands.2.as_bytes())?;
                }
                TypedInstruction::ShowTexts(operands) => self.show_all(operands.0)?,
                TypedInstruction::XObject(operands) => self.form(operands.0, resources, depth)?,
                // Every other instruction draws, or affects only drawing.
                _ => {}
            }
        }
        Ok(())
    }

    fn save(&mut self) {
        if self.saved_states.len() < MAX_STATES {
            self.saved_states.push(self.state.clone());
        } else {
            self.unsaved_states += 1;
        }
    }

    fn restore(&mut self) {
        if self.unsaved_states > 0 {
            self.unsaved_states -= 1;
        } else if let Some(state) = self.saved_states.pop() {
            self.state = state;
        }
    }

    fn set_line(&mut self, line: Matrix) {
        (self.state.text, self.state.line) = (line, line);
    }

    fn next_line(&mut self, x: f64, y: f64) {
        self.set_line(Matrix::translation(x, y).then(self.state.line));
    }

    /// Shows strings with steps between them. A step is in thousandths of the font size.
    fn show_all(&mut self, items: &Array<'_>) -> Result<(), Exhausted> {
        for item in items.iter::<Object<'_>>() {
            match item {
                Object::String(string) => self.show(string.as_bytes())?,
                Object::Number(step) => {
                    let step = -step.as_f64() / 1000.0 * self.state.size;
                    self.advance(step);
                    self.budget.operations(1)?;
                }
                // The list can hold only strings and numbers.
                _ => {}
            }
        }
        Ok(())
    }

    fn show(&mut self, string: &[u8]) -> Result<(), Exhausted> {
        let Some(font) = self.state.font.clone() else { return Ok(()) };
        let mut remaining = string;
        while !remaining.is_empty() {
            self.budget.operations(1)?;
            let decoded = font.decode_first_code(remaining);
            remaining = &remaining[decoded.length..];
            let width = decoded.width / 1000.0 * self.state.size;
            let spacing =
                self.state.character_spacing + if decoded.is_space { self.state.word_spacing } else { 0.0 };
            // A glyph of a vertical font is as high as the font, and the next glyph is below it.
            let width = if font.is_vertical() { self.state.size } else { width };
            self.place_glyph(&font, decoded.characters.as_deref(), width)?;
            self.advance(if font.is_vertical() { -(width - spacing) } else { width + spacing });
        }
        Ok(())
    }

    /// Moves the position by a step in the direction of writing.
    fn advance(&mut self, step: f64) {
        let is_vertical = self.state.font.as_ref().is_some_and(|font| font.is_vertical());
        let (x, y) = if is_vertical { (0.0, step) } else { (step * self.state.scaling, 0.0) };
        self.state.text = Matrix::translation(x, y).then(self.state.text);
    }

    fn place_glyph(&mut self, font: &Font, characters: Option<&str>, width: f64) -> Result<(), Exhausted> {
        let state = &self.state;
        let matrix = Matrix::translation(0.0, state.rise).then(state.text).then(state.page);
        // The vector to the next glyph. For a glyph without width only the direction counts.
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
        self.layout.add_glyph(PositionedGlyphs { text: &text, start, end, direction, size }, self.budget)
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
        let own_resources = form.dict().get::<Dict<'_>>(keys::RESOURCES).map(Resources::new);
        let (outer, saved, unsaved) = (
            self.state.clone(),
            std::mem::take(&mut self.saved_states),
            std::mem::take(&mut self.unsaved_states),
        );
        if let Some(matrix) = form.dict().get::<[f64; 6]>(keys::MATRIX) {
            self.state.page = Matrix(matrix).then(self.state.page);
        }
        let result = self.run(&content, own_resources.as_ref().unwrap_or(resources), depth + 1);
        (self.state, self.saved_states, self.unsaved_states) = (outer, saved, unsaved);
        result
    }
}

fn matrix(numbers: [Number; 6]) -> Matrix {
    Matrix(numbers.map(|number| number.as_f64()))
}

/// Appends a character in the form that a person would type: ligatures as letters, and all kinds of spaces and hyphens
/// as the usual ones.
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
        // The bullets in the fonts of word processors. Other private characters have no known meaning.
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
