use super::StreamFrame;
use crate::wire::Malformed;

/// Name of an event that is an error.
pub(crate) const ERROR: &str = "error";

/// Server-sent events. Comments, ids and times to reconnect are read over.
#[derive(Debug, Default)]
pub(crate) struct EventFrames {
    bytes: Vec<u8>,
    /// Bytes in front that are read already.
    read: usize,
    /// Bytes after those in which no end of a line was found.
    searched: usize,
    name: String,
    data: Option<String>,
    /// The lines so far of an error that stands in no field.
    bare: Option<String>,
}

impl EventFrames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn next(&mut self) -> Result<Option<StreamFrame>, Malformed> {
        while let Some(line) = self.line()? {
            if let Some(frame) = self.take(&line) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// An event that the end of the stream ends instead of an empty line.
    pub(super) fn last(&mut self) -> Result<Option<StreamFrame>, Malformed> {
        let rest = text(&self.bytes[self.read..])?;
        self.read = self.bytes.len();
        Ok(self.take(rest.trim_end_matches('\r')).or_else(|| self.take("")))
    }

    /// The next line without its end, which is a line feed, a carriage return or both.
    fn line(&mut self) -> Result<Option<String>, Malformed> {
        let rest = &self.bytes[self.read..];
        let found = rest[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = rest.len();
            return Ok(None);
        };
        // A line feed may still belong to the carriage return.
        if rest[end] == b'\r' && end + 1 == rest.len() {
            self.searched = end;
            return Ok(None);
        }
        let line = text(&rest[..end])?;
        self.read += end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        self.searched = 0;
        Ok(Some(line))
    }

    fn take(&mut self, line: &str) -> Option<StreamFrame> {
        if let Some(mut bare) = self.bare.take().filter(|bare| goes_on(bare, line)) {
            bare.push('\n');
            bare.push_str(line);
            if line == "}" {
                return Some(StreamFrame { name: ERROR.to_owned(), data: bare });
            }
            self.bare = Some(bare);
            return None;
        }
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return self.data.take().map(|data| StreamFrame { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field.trim_start_matches('\u{feff}') {
            "event" => value.clone_into(&mut self.name),
            "data" => self.add(value),
            // llama.cpp has a field of its own for one.
            ERROR => {
                ERROR.clone_into(&mut self.name);
                self.add(value);
            }
            // Ollama writes one as it is into a stream that has begun. What goes on in the next line is no stream.
            "{\"error\"" if value.starts_with(['{', '"']) && value.ends_with('}') => {
                ERROR.clone_into(&mut self.name);
                self.add(line);
            }
            // Google does so in several lines.
            "{" if line == "{" && self.data.is_none() => self.bare = Some(line.to_owned()),
            _ => {}
        }
        None
    }

    fn add(&mut self, value: &str) {
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }
}

/// True if `line` is the next one of the error that begins with `bare`.
fn goes_on(bare: &str, line: &str) -> bool {
    let is_first = bare == "{";
    let error = line.trim_start().strip_prefix("\"error\":").map(str::trim_start);
    match line.starts_with([' ', '\t']) {
        true => !is_first || error.is_some_and(|error| error.starts_with(['{', '"'])),
        false => !is_first && line == "}",
    }
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::new("a piece of the stream is no UTF-8"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(portions: &[&[u8]]) -> Vec<(String, String)> {
        let mut frames = EventFrames::default();
        let mut found = Vec::new();
        for portion in portions {
            frames.feed(portion);
            while let Some(frame) = frames.next().expect("a stream") {
                found.push((frame.name, frame.data));
            }
        }
        found.extend(frames.last().expect("an end").map(|frame| (frame.name, frame.data)));
        found
    }

    #[test]
    fn events_are_found_however_they_are_cut() {
        let stream =
            ": hello\n\nevent: a\ndata: 1\n\nid: 3\ndata:2\r\ndata: zwei ä\r\n\r\ndata: 3\r\rdata: last".as_bytes();
        let whole = [("a", "1"), ("", "2\nzwei ä"), ("", "3"), ("", "last")].map(|(n, d)| (n.to_owned(), d.to_owned()));
        assert_eq!(frames(&[stream]), whole);
        for cut in 0..stream.len() {
            assert_eq!(frames(&[&stream[..cut], &stream[cut..]]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(frames(&single), whole);
    }

    #[test]
    fn an_error_that_stands_in_no_field_is_one() {
        let written = r#"{"error":{"message":"the runner has stopped"}}"#;
        let found = frames(&[b"data: 1\n\n", written.as_bytes(), b"\n"]);
        assert_eq!(found[1..], [("error".to_owned(), written.to_owned())]);
        assert_eq!(frames(&[br#"{"error":null,"choices":[]}"#]), []);
        assert_eq!(
            frames(&[b"{\"error\":{\n  \"message\": \"slow down\"\n}}\n"]),
            [],
            "an answer that streams nothing"
        );
    }

    #[test]
    fn an_error_of_several_lines_that_stands_in_no_field_is_one() {
        let written = "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"data: busy\"\n  }\n}";
        let error = ("error".to_owned(), written.to_owned());
        for end in ["", "\n", "\r\n\r\n"] {
            let stream = format!("data: 1\n\n{written}{end}");
            for cut in 0..stream.len() {
                let found = frames(&[&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]]);
                assert_eq!(found.last(), Some(&error), "cut at {cut}");
            }
        }
        // An answer in one piece is none, and neither is one that is cut: what comes behind it counts.
        for other in ["{\n  \"choices\": []\n}\n", "{\n  \"error\": null\n}\n", "{\n  \"error\": {\n", "{\n"] {
            let found = frames(&[other.as_bytes(), b"data: 1\n\n"]);
            assert_eq!(found, [(String::new(), "1".to_owned())], "{other}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let mut frames = EventFrames::default();
        frames.feed(b"data: \xff\n\n");
        assert!(frames.next().is_err());
    }
}
