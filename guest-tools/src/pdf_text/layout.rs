//! Joins characters to words, lines and paragraphs, by their positions on the page.
//!
//! The text keeps the order of the file's content. Columns therefore stay separate if the file draws one column after
//! the other, as nearly all files do. A file rarely marks the end of a word or a line. A gap in the direction
//! of the text is therefore a space, and a step across it is a new line. A larger step, or another size of
//! letters, is a new paragraph. All measures are relative to the size of the letters.

use super::{
    budget::{Exhausted, PdfBudget},
    matrix::Point,
};

/// A character, or a few characters of one glyph, with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct PositionedGlyphs<'a> {
    pub(super) text: &'a str,
    /// The positions on the page at which the character starts and the next one would start.
    pub(super) start: Point,
    pub(super) end: Point,
    /// The direction of the character's line.
    pub(super) direction: Point,
    /// The size of the letters.
    pub(super) size: f64,
}

/// The smallest gap that is a space.
const SPACE_GAP: f64 = 0.15;
/// The smallest gap that is a tab: before the next cell of a table, or before the page number in a table of contents.
const TAB_GAP: f64 = 2.0;
/// How far a character can be above or below its line, such as an index or an exponent.
const BASELINE_TOLERANCE: f64 = 0.5;
/// The smallest step back along the line that starts a new line at the same height.
const LINE_RETURN: f64 = 0.6;
/// The smallest step to the next line that starts a new paragraph, if no step came before.
const PARAGRAPH_STEP: f64 = 2.6;
/// The smallest ratio to the previous step that starts a new paragraph.
const PARAGRAPH_STEP_RATIO: f64 = 1.4;
/// The largest ratio between sizes of letters within a paragraph.
const SAME_SIZE: f64 = 1.2;

/// The number of recent characters that are searched for a repeated one, which is a few lines.
const LOOK_BACK: usize = 200;

/// The text of a page, while it grows.
#[derive(Debug, Default)]
pub(super) struct Layout {
    text: String,
    line: Option<Line>,
    /// The step between the last two lines of the paragraph.
    step: Option<f64>,
    /// The last characters: their places on the page, and their offsets in the text.
    recent_glyphs: Vec<(Point, usize)>,
    /// The position at which the last character ended, and whether it was left out as a repeated one.
    pen: Option<Point>,
    repeats: bool,
}

/// The line that is being written.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// A point on its baseline.
    base: Point,
    direction: Point,
    size: f64,
    /// The positions at which the last character starts and ends.
    start: Point,
    end: Point,
}

/// The separator between two characters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gap {
    None,
    Space,
    Tab,
    Line(f64),
    Paragraph,
}

impl Layout {
    /// The text of the page, without white space at its ends.
    pub(super) fn finish(self) -> String {
        self.text.trim().to_owned()
    }

    /// Adds a character.
    pub(super) fn add_glyph(
        &mut self,
        glyphs: PositionedGlyphs<'_>,
        budget: &mut PdfBudget,
    ) -> Result<(), Exhausted> {
        self.repeats = self.is_repeated(&glyphs);
        self.pen = Some(glyphs.end);
        if self.repeats {
            return Ok(());
        }
        let length_before = self.text.len();
        let gap = self.line.map_or(Gap::None, |line| gap_before(&line, &glyphs, self.step));
        match gap {
            Gap::None => {}
            Gap::Space => self.space(' '),
            Gap::Tab => self.space('\t'),
            Gap::Line(step) => {
                self.step = Some(step);
                self.end_line("\n");
            }
            Gap::Paragraph => {
                self.step = None;
                self.end_line("\n\n");
            }
        }
        let new_line = matches!(gap, Gap::Line(_) | Gap::Paragraph);
        // A smaller glyph on the line, such as a raised digit, must not move its base.
        let base_line = self.line.filter(|line| !new_line && line.size >= glyphs.size);
        self.line = Some(Line {
            base: base_line.map_or(glyphs.start, |line| line.base),
            size: base_line.map_or(glyphs.size, |line| line.size),
            direction: glyphs.direction,
            start: glyphs.start,
            end: glyphs.end,
        });
        if glyphs.text.chars().all(char::is_whitespace) {
            self.space(' ');
        } else {
            self.text.push_str(glyphs.text);
            self.remember(&glyphs);
        }
        budget.text(self.text.len().saturating_sub(length_before))
    }

    /// Whether the same text is already at this place. Some files show letters twice, slightly shifted, to make them
    /// bold.
    fn is_repeated(&self, glyphs: &PositionedGlyphs<'_>) -> bool {
        /// How far the second copy can be shifted.
        const MAX_REPEAT_OFFSET: f64 = 0.12;
        if glyphs.text.trim().is_empty() {
            // A space counts as repeated if the text before it was.
            return self.repeats;
        }
        let is_near = |point: Point| point.minus(glyphs.start).length() < MAX_REPEAT_OFFSET * glyphs.size;
        // Text that continues where the last text ended is not a repetition. This spares most characters the search.
        let continues = self.pen.is_some_and(is_near) && !self.repeats;
        !continues
            && self
                .recent_glyphs
                .iter()
                .any(|(point, offset)| is_near(*point) && self.text[*offset..].starts_with(glyphs.text))
    }

    /// Remembers where the last text is.
    fn remember(&mut self, glyphs: &PositionedGlyphs<'_>) {
        if self.recent_glyphs.len() == LOOK_BACK {
            self.recent_glyphs.drain(..LOOK_BACK / 2);
        }
        self.recent_glyphs.push((glyphs.start, self.text.len() - glyphs.text.len()));
    }

    fn space(&mut self, space: char) {
        if !self.text.ends_with(char::is_whitespace) && !self.text.is_empty() {
            self.text.push(space);
        }
    }

    fn end_line(&mut self, line_end: &str) {
        self.text.truncate(self.text.trim_end().len());
        if !self.text.is_empty() {
            self.text.push_str(line_end);
        }
    }
}

/// The separator between the end of a line and a character.
fn gap_before(line: &Line, glyphs: &PositionedGlyphs<'_>, step: Option<f64>) -> Gap {
    let size = line.size.max(glyphs.size);
    // Text whose direction differs by more than about 26 degrees is not of the same paragraph.
    if line.direction.dot(glyphs.direction) < 0.9 {
        return Gap::Paragraph;
    }
    let along = glyphs.start.minus(line.end).dot(line.direction) / size;
    // Positive means downwards, for text that runs to the right.
    let across = -glyphs.start.minus(line.base).dot(line.direction.turned_left()) / size;
    if across.abs() > BASELINE_TOLERANCE || !across.is_finite() || !along.is_finite() {
        let sizes = glyphs.size.max(line.size) / glyphs.size.min(line.size);
        let is_wide =
            step.map_or(across > PARAGRAPH_STEP, |step| across * size > step * PARAGRAPH_STEP_RATIO);
        let is_paragraph = is_wide || across < 0.0 || (sizes > SAME_SIZE && across > 1.0);
        return if is_paragraph { Gap::Paragraph } else { Gap::Line(across * size) };
    }
    if along < -LINE_RETURN {
        // Files show scripts that run to the left letter by letter, each letter to the left of the last one.
        let gap_before = line.start.minus(glyphs.end).dot(line.direction) / size;
        return match gap_before {
            _ if !glyphs.text.chars().any(runs_left) && !(-0.1..0.1).contains(&gap_before) => Gap::Line(0.0),
            -0.1..SPACE_GAP => Gap::None,
            SPACE_GAP..TAB_GAP => Gap::Space,
            _ => Gap::Line(0.0),
        };
    }
    match along {
        TAB_GAP.. => Gap::Tab,
        SPACE_GAP.. => Gap::Space,
        _ => Gap::None,
    }
}

/// Letters of Hebrew, Arabic and related scripts.
fn runs_left(character: char) -> bool {
    matches!(character, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places texts of 10 points. Each character is half as wide as it is high.
    #[track_caller]
    fn check(texts: &[(f64, f64, &str)], expected: &str) {
        let (mut layout, mut budget) = (Layout::default(), PdfBudget::new());
        for (x, y, text) in texts {
            for (index, character) in text.char_indices() {
                let start = Point { x: x + 5.0 * index as f64, y: *y };
                let end = Point { x: start.x + 5.0, y: *y };
                let text = &text[index..index + character.len_utf8()];
                let direction = Point { x: 1.0, y: 0.0 };
                layout
                    .add_glyph(PositionedGlyphs { text, start, end, direction, size: 10.0 }, &mut budget)
                    .expect("enough");
            }
        }
        assert_eq!(layout.finish(), expected);
    }

    #[test]
    fn gaps_are_spaces_and_tabs() {
        check(&[(0.0, 0.0, "one"), (18.0, 0.0, "two"), (33.5, 0.0, "three")], "one twothree");
        check(&[(0.0, 0.0, "one "), (20.0, 0.0, " two")], "one two");
        check(&[(0.0, 0.0, "cell"), (100.0, 0.0, "cell")], "cell\tcell");
    }

    #[test]
    fn steps_are_lines_and_paragraphs() {
        let lines = [(0.0, 100.0, "a"), (0.0, 88.0, "b "), (0.0, 76.0, "c"), (0.0, 55.0, "d")];
        check(&lines, "a\nb\nc\n\nd");
        check(&[(0.0, 100.0, "first"), (200.0, 700.0, "second column")], "first\n\nsecond column");
        check(&[(0.0, 100.0, "x"), (5.0, 104.0, "2"), (12.0, 100.0, "y")], "x2 y");
    }

    #[test]
    fn text_that_is_shown_twice_is_there_once() {
        check(&[(0.0, 0.0, "bold text"), (0.3, 0.0, "bold text")], "bold text");
        check(&[(0.0, 0.0, "aa"), (10.0, 0.0, "aa")], "aaaa");
    }

    #[test]
    fn letters_from_right_to_left_are_one_word() {
        check(
            &[(50.0, 0.0, "\u{5d0}"), (45.0, 0.0, "\u{5d1}"), (37.0, 0.0, "\u{5d2}")],
            "\u{5d0}\u{5d1} \u{5d2}",
        );
    }
}
