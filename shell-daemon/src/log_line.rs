//! [`LogLine`]: the format of a line in an operator's log. All untrusted text enters the log through it.

use std::fmt;

use portcullis_types::{escape_for_display, is_deceptive};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Json, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::LookupSpan,
};

/// Writes one event as one line without any character that acts on a terminal.
///
/// Events carry text from guests, commands, models, clients and files. All control characters, including line ends, and
/// all deceptive characters are escaped here, so that no event can look like two events or move the cursor.
///
/// The subscriber itself must write no colours (`with_ansi(false)`).
#[derive(Debug)]
pub struct LogLine(LineFormat);

#[derive(Debug)]
enum LineFormat {
    Text { format: Format<Full, ()>, colours: Colours },
    Json(Format<Json>),
}

/// Whether levels have colours, for a person at a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Levels have the usual colour codes.
    Enabled,
    /// Levels have no colours, for files and other programs.
    Disabled,
}

impl LogLine {
    /// A line of text, for people.
    #[must_use]
    pub fn text(colours: Colours) -> Self {
        let format = Format::default().without_time().with_level(false).with_ansi(false);
        Self(LineFormat::Text { format, colours })
    }

    /// One JSON object, for programs. The subscriber's fields must use the JSON format too.
    #[must_use]
    pub fn json() -> Self {
        Self(LineFormat::Json(Format::default().json()))
    }
}

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        match &self.0 {
            LineFormat::Text { format, colours } => {
                format.format_event(context, Writer::new(&mut line), event)?;
                SystemTime.format_time(&mut writer)?;
                let level = event.metadata().level();
                match colours {
                    Colours::Enabled => write!(writer, " \x1b[{}m{level:>5}\x1b[0m ", colour(level))?,
                    Colours::Disabled => write!(writer, " {level:>5} ")?,
                }
                let lines = line.strip_suffix('\n').unwrap_or(&line);
                writeln!(writer, "{}", escape_for_display(lines))
            }
            LineFormat::Json(json) => {
                json.format_event(context, Writer::new(&mut line), event)?;
                let object = line.strip_suffix('\n').unwrap_or(&line);
                escape_json(object, &mut writer)?;
                writer.write_char('\n')
            }
        }
    }
}

fn colour(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

/// Writes a JSON text with its deceptive characters as JSON escapes, which keeps its value. The control characters of
/// its strings are already escaped.
fn escape_json(object: &str, writer: &mut Writer<'_>) -> fmt::Result {
    for character in object.chars() {
        if is_deceptive(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
        } else {
            writer.write_char(character)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::fmt::{MakeWriter, format::JsonFields};

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for CapturedLog {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    const HOSTILE: &str =
        "a\x1b]0;owned\x07\x1b[2J\r\n2026-01-01T00:00:00Z ERROR portcullis: false\u{202e}\u{2800}ü";

    /// Logs an event with hostile text in each place that untrusted parties can write to: message, fields, causes,
    /// names and fields of spans.
    fn logged(subscriber: impl Subscriber + Send + Sync + 'static, written: &CapturedLog) -> String {
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("around", who = %HOSTILE);
            let _inside = span.enter();
            let error = io::Error::other(HOSTILE);
            tracing::warn!(text = %HOSTILE, debug = ?HOSTILE, error = &error as &dyn std::error::Error, "{HOSTILE}");
        });
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn an_event_is_one_line_in_which_nothing_acts() {
        let written = CapturedLog::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(written.clone());
        let line = logged(subscriber.event_format(LogLine::text(Colours::Disabled)).finish(), &written);
        let text = line.strip_suffix('\n').unwrap();
        assert!(!text.chars().any(is_deceptive), "{text:?}");
        assert!(
            text.contains(" WARN ") && text.contains("\\u{1b}]0;owned\\u{7}") && text.contains('ü'),
            "{text}"
        );
    }

    #[test]
    fn only_the_level_has_a_colour() {
        let written = CapturedLog::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(written.clone());
        let line = logged(subscriber.event_format(LogLine::text(Colours::Enabled)).finish(), &written);
        assert!(line.contains("\x1b[33m WARN\x1b[0m "), "{line:?}");
        assert_eq!(line.matches('\x1b').count(), 2);
    }

    #[test]
    fn json_keeps_values_and_escapes_deceptive_characters() {
        let written = CapturedLog::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(written.clone());
        let subscriber = subscriber.fmt_fields(JsonFields::new()).event_format(LogLine::json());
        let line = logged(subscriber.finish(), &written);
        let text = line.strip_suffix('\n').unwrap();
        assert!(!text.chars().any(is_deceptive), "{text:?}");
        let object: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(object["fields"]["text"], HOSTILE);
    }
}
