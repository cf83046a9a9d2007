//! Splits bytes into events: server-sent events (WHATWG HTML, section 9.2.6), or one JSON text per line.
//!
//! Only the data of an event is kept: providers that name an event repeat the name in the data. An event's size
//! is limited, so that a response without a line end cannot fill the memory.

/// How a provider delimits the events of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventFormat {
    /// Server-sent events.
    Events,
    /// One JSON text per line.
    Lines,
}

/// Why bytes cannot be read as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventFault {
    /// The event is larger than the limit.
    TooLarge,
    /// The event is not UTF-8.
    NotText,
}

/// Splits bytes into events.
#[derive(Debug)]
pub(super) struct EventSplitter {
    event_format: EventFormat,
    limit_bytes: usize,
    line: Vec<u8>,
    /// Data of the current event. `None` before the event's first `data` line.
    data: Option<String>,
    /// Whether the last line ended in a carriage return. A line feed after it belongs to the same line end.
    is_after_carriage_return: bool,
    is_at_start: bool,
}

impl EventSplitter {
    /// Creates a framer that keeps at most `limit_bytes` of an incomplete event.
    pub(super) fn new(event_format: EventFormat, limit_bytes: usize) -> Self {
        Self {
            event_format,
            limit_bytes,
            line: Vec::new(),
            data: None,
            is_after_carriage_return: false,
            is_at_start: true,
        }
    }

    /// Adds more bytes, and calls `event` with the data of each completed event.
    pub(super) fn push<E: From<EventFault>>(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.is_after_carriage_return) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            // Check before buffering, so that the buffer never exceeds the limit.
            if self.line.len() + part.len() + self.data.as_ref().map_or(0, String::len) > self.limit_bytes {
                return Err(EventFault::TooLarge.into());
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.is_after_carriage_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.finish_line(&mut event)?;
        }
        Ok(())
    }

    /// Ends the input. The last JSON line needs no line end. The last server-sent event does: the standard
    /// discards an unfinished event.
    pub(super) fn finish<E: From<EventFault>>(
        &mut self,
        mut event: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.event_format {
            EventFormat::Events => Ok(()),
            EventFormat::Lines => self.finish_line(&mut event),
        }
    }

    fn finish_line<E: From<EventFault>>(
        &mut self,
        event: &mut impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = std::mem::take(&mut self.line);
        let Ok(line) = std::str::from_utf8(&bytes) else { return Err(EventFault::NotText.into()) };
        let line = match std::mem::take(&mut self.is_at_start) {
            // The standard ignores a byte order mark at the start of the stream.
            true => line.strip_prefix('\u{feff}').unwrap_or(line),
            false => line,
        };
        match self.event_format {
            EventFormat::Lines if line.trim().is_empty() => Ok(()),
            EventFormat::Lines => event(line),
            EventFormat::Events if line.is_empty() => match self.data.take() {
                Some(data) => event(&data),
                None => Ok(()),
            },
            EventFormat::Events => {
                if let Some(value) = field_value(line, "data") {
                    match &mut self.data {
                        Some(data) => {
                            data.push('\n');
                            data.push_str(value);
                        }
                        None => self.data = Some(value.to_owned()),
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns the value of a field, or `None` if the line has another field.
fn field_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(':') {
        Some(value) => Some(value.strip_prefix(' ').unwrap_or(value)),
        None if rest.is_empty() => Some(""),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(event_format: EventFormat, limit: usize, parts: &[&[u8]]) -> Result<Vec<String>, EventFault> {
        let mut events = Vec::new();
        let mut event_splitter = EventSplitter::new(event_format, limit);
        for part in parts {
            event_splitter.push(part, |data| {
                events.push(data.to_owned());
                Ok::<(), EventFault>(())
            })?;
        }
        event_splitter.finish(|data| {
            events.push(data.to_owned());
            Ok::<(), EventFault>(())
        })?;
        Ok(events)
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(read(EventFormat::Events, 100, &[text.as_bytes()]).expect("events"), expected);
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data:  a\n\n", &[" a"]);
        check("data\n\ndata:\n\n", &["", ""]);
        check("\u{feff}data: a\n\n", &["a"]);
        check("event: x\nid: 1\nretry: 5\ndata: a\n\n", &["a"]);
        check(": a comment\n\n: another\ndata: a\n\n", &["a"]);
        check("database: a\n\n", &[]);
        check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]);
        check("data: cut off", &[]);
        check("data: cut off\n", &[]);
    }

    #[test]
    fn lines_need_no_last_end() {
        let read = |text: &str| read(EventFormat::Lines, 100, &[text.as_bytes()]).expect("lines");
        assert_eq!(read("{}\n\n[1]\r\n{\"a\":1}"), ["{}", "[1]", "{\"a\":1}"]);
        assert!(read("\n \n").is_empty());
    }

    #[test]
    fn an_event_without_end_is_bounded() {
        let piece = [b'x'; 60];
        for event_format in [EventFormat::Events, EventFormat::Lines] {
            assert_eq!(read(event_format, 100, &[&piece, &piece]), Err(EventFault::TooLarge));
            read(event_format, 120, &[b"", &piece, &piece]).expect("within the limit");
        }
        // The lines of one event count together towards the limit.
        assert_eq!(
            read(EventFormat::Events, 100, &[&b"data: 123456789\n".repeat(20)]),
            Err(EventFault::TooLarge)
        );
        read(EventFormat::Events, 100, &[&b"data: 123456789\n\n".repeat(20)]).expect("each is small");
    }

    #[test]
    fn frame_that_is_not_utf_8_is_refused() {
        assert_eq!(read(EventFormat::Events, 100, &[b"data: \xff\n\n"]), Err(EventFault::NotText));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(
            texts in prop::collection::vec("[a-zé\u{1F600} ]{0,8}", 0..6),
            ends in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(1_usize..7, 1..40),
        ) {
            let whole: String = texts.iter().map(|text| format!("data: {text}{ends}{ends}")).collect();
            let mut rest = whole.as_bytes();
            let mut parts = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, more) = rest.split_at((*cut).min(rest.len()));
                parts.push(part);
                rest = more;
            }
            prop_assert_eq!(read(EventFormat::Events, 1000, &parts).expect("events"), texts);
        }
    }
}
