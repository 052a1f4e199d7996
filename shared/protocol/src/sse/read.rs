/// One event of a stream, as the standard for server-sent events dispatches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBlock {
    /// The newest id so far: what to send as `Last-Event-ID`. Empty if there was none.
    pub id: String,
    /// The name of the event; `message` if it has none.
    pub event: String,
    /// The data, its lines joined by LF.
    pub data: String,
}

/// Reads a stream as it comes, in pieces of any size. Understands every stream that the standard allows: lines that
/// end with LF, CR or both, comments, fields in any order, a byte order mark.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    after_cr: bool,
    begun: bool,
    /// The id of the last event that was complete.
    id: String,
    /// The id of the event that is being read: lost with it if the stream breaks.
    next_id: String,
    event: String,
    data: Option<String>,
}

impl Reader {
    /// A reader at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id to resume with after the stream broke: that of the last event that [`Reader::push`] gave out, or an
    /// empty text.
    pub fn last_event_id(&self) -> &str {
        &self.id
    }

    /// Takes the next bytes and gives out the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<EventBlock> {
        let mut blocks = Vec::new();
        for &byte in bytes {
            let ends_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if ends_cr => {}
                b'\n' | b'\r' => blocks.extend(self.end_line()),
                other => self.line.push(other),
            }
        }
        blocks
    }

    fn end_line(&mut self) -> Option<EventBlock> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let line = if std::mem::replace(&mut self.begun, true) { &text } else { text.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" if !value.contains('\0') => value.clone_into(&mut self.next_id),
            "event" => value.clone_into(&mut self.event),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments, the time to wait before a retry, and fields of the future.
            _ => {}
        }
        None
    }

    /// An event without data is none; its name is forgotten, its id is not.
    fn dispatch(&mut self) -> Option<EventBlock> {
        self.id.clone_from(&self.next_id);
        let event = std::mem::take(&mut self.event);
        let event = if event.is_empty() { "message".to_owned() } else { event };
        self.data.take().map(|data| EventBlock { id: self.id.clone(), event, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(id: &str, event: &str, data: &str) -> EventBlock {
        EventBlock { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn everything_that_the_standard_allows_is_understood() {
        let stream = "\u{feff}: hello\r\nretry: 3\r\n\r\ndata:a\rdata: b\rid:1\r\rid\nevent: x\ndata\n\nevent: y\n\n:c\ndata: {\u{e9}}";
        let mut reader = Reader::new();
        assert_eq!(reader.push(stream.as_bytes()), [block("1", "message", "a\nb"), block("", "x", "")]);
        assert_eq!(reader.push(b"\n"), []);
        assert_eq!(reader.push(b"\n"), [block("", "message", "{\u{e9}}")]);
    }

    #[test]
    fn an_id_with_a_zero_byte_is_ignored() {
        let mut reader = Reader::new();
        assert_eq!(
            reader.push(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n"),
            [block("1", "message", "a"), block("1", "message", "b")]
        );
        assert_eq!(reader.last_event_id(), "1");
    }

    #[test]
    fn an_event_that_was_cut_is_asked_for_again() {
        let mut reader = Reader::new();
        reader.push(b"id: 1\nevent: a\ndata: {}\n\nid: 2\nevent: b\ndata: {}\n");
        assert_eq!(reader.last_event_id(), "1");
    }
}
