//! Puts characters together to words, lines and paragraphs, from where they stand on the page.
//!
//! The order is that of the content, so columns stay apart where the file has one after the other, as nearly all have.
//! A file says seldom where a word or a line ends: a gap in the direction of the text is a space, a step across it a
//! new line, a larger step or another size of letters a new paragraph. All measures are in the size of the letters.

use super::{
    budget::{Budget, Exhausted},
    matrix::Point,
};

/// A character, or a few that one glyph stands for, and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) text: &'a str,
    /// Where it begins and where the next one would, on the page.
    pub(super) start: Point,
    pub(super) end: Point,
    /// The direction of its line.
    pub(super) direction: Point,
    /// The size of the letters.
    pub(super) size: f64,
}

/// A gap that is a space.
const SPACE_GAP: f64 = 0.15;
/// A gap that is a tab: the next cell of a table, or the page number of a line in a table of contents.
const TAB_GAP: f64 = 2.0;
/// How far a character may stand above or below its line: indices and exponents.
const ON_LINE: f64 = 0.5;
/// A step back along the line that begins a new line even at the same height.
const STEP_BACK: f64 = 0.6;
/// A step to the next line that is a new paragraph, where no step came before.
const WIDE_STEP: f64 = 2.6;
/// A step that is a new paragraph, beside the step before.
const WIDER: f64 = 1.4;
/// How much the size of letters may differ within a paragraph.
const SAME_SIZE: f64 = 1.2;

/// The number of recent characters that are searched for a repeated one: a few lines.
const LOOK_BACK: usize = 200;

/// The text of a page as it grows.
#[derive(Debug, Default)]
pub(super) struct Layout {
    text: String,
    line: Option<Line>,
    /// The step between the last two lines of the paragraph.
    step: Option<f64>,
    /// The last characters: their places on the page and in the text.
    shown: Vec<(Point, usize)>,
    /// Where the last character ended, and whether it was left out as a repeated one.
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
    /// Where the last character begins and ends.
    start: Point,
    end: Point,
}

/// What stands between two characters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gap {
    None,
    Space,
    Tab,
    Line(f64),
    Paragraph,
}

impl Layout {
    /// The text of the page, without blank ends.
    pub(super) fn finish(self) -> String {
        self.text.trim().to_owned()
    }

    /// Adds a character.
    pub(super) fn place(&mut self, placed: Placed<'_>, budget: &mut Budget) -> Result<(), Exhausted> {
        self.repeats = self.is_repeated(&placed);
        self.pen = Some(placed.end);
        if self.repeats {
            return Ok(());
        }
        let at = self.text.len();
        let gap = self.line.map_or(Gap::None, |line| gap(&line, &placed, self.step));
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
        let base = self.line.filter(|line| !new_line && line.size >= placed.size);
        self.line = Some(Line {
            base: base.map_or(placed.start, |line| line.base),
            size: base.map_or(placed.size, |line| line.size),
            direction: placed.direction,
            start: placed.start,
            end: placed.end,
        });
        if placed.text.chars().all(char::is_whitespace) {
            self.space(' ');
        } else {
            self.text.push_str(placed.text);
            self.remember(&placed);
        }
        budget.text(self.text.len().saturating_sub(at))
    }

    /// Whether the same text stands here already: letters are made bold by showing them twice, a little aside.
    fn is_repeated(&self, placed: &Placed<'_>) -> bool {
        /// How far aside the second one is.
        const ASIDE: f64 = 0.12;
        if placed.text.trim().is_empty() {
            // A space is where the text around it is.
            return self.repeats;
        }
        let near = |point: Point| point.minus(placed.start).length() < ASIDE * placed.size;
        // Text that goes on where the last one ended repeats nothing. So most characters are not looked up.
        let goes_on = self.pen.is_some_and(near) && !self.repeats;
        !goes_on
            && self.shown.iter().any(|(point, at)| near(*point) && self.text[*at..].starts_with(placed.text))
    }

    /// Remembers where the last text stands.
    fn remember(&mut self, placed: &Placed<'_>) {
        if self.shown.len() == LOOK_BACK {
            self.shown.drain(..LOOK_BACK / 2);
        }
        self.shown.push((placed.start, self.text.len() - placed.text.len()));
    }

    fn space(&mut self, space: char) {
        if !self.text.ends_with(char::is_whitespace) && !self.text.is_empty() {
            self.text.push(space);
        }
    }

    fn end_line(&mut self, end: &str) {
        self.text.truncate(self.text.trim_end().len());
        if !self.text.is_empty() {
            self.text.push_str(end);
        }
    }
}

/// What stands between the end of a line and a character.
fn gap(line: &Line, placed: &Placed<'_>, step: Option<f64>) -> Gap {
    let size = line.size.max(placed.size);
    if line.direction.dot(placed.direction) < 0.9 {
        return Gap::Paragraph;
    }
    let along = placed.start.minus(line.end).dot(line.direction) / size;
    // Downwards, for text that runs to the right.
    let across = -placed.start.minus(line.base).dot(line.direction.left()) / size;
    if across.abs() > ON_LINE || !across.is_finite() || !along.is_finite() {
        let sizes = placed.size.max(line.size) / placed.size.min(line.size);
        let is_wide = step.map_or(across > WIDE_STEP, |step| across * size > step * WIDER);
        let is_paragraph = is_wide || across < 0.0 || (sizes > SAME_SIZE && across > 1.0);
        return if is_paragraph { Gap::Paragraph } else { Gap::Line(across * size) };
    }
    if along < -STEP_BACK {
        // Scripts that run to the left are shown letter by letter, each before the last.
        let before = line.start.minus(placed.end).dot(line.direction) / size;
        return match before {
            _ if !placed.text.chars().any(runs_left) && !(-0.1..0.1).contains(&before) => Gap::Line(0.0),
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

/// Hebrew, Arabic and their neighbours.
fn runs_left(character: char) -> bool {
    matches!(character, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places texts of 10 points, each character half as wide as high.
    #[track_caller]
    fn check(texts: &[(f64, f64, &str)], expected: &str) {
        let (mut layout, mut budget) = (Layout::default(), Budget::new());
        for (x, y, text) in texts {
            for (index, character) in text.char_indices() {
                let start = Point { x: x + 5.0 * index as f64, y: *y };
                let end = Point { x: start.x + 5.0, y: *y };
                let text = &text[index..index + character.len_utf8()];
                let direction = Point { x: 1.0, y: 0.0 };
                layout
                    .place(Placed { text, start, end, direction, size: 10.0 }, &mut budget)
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
