//! How large something is.

use std::io::{self, Write};

use dormouse_ports::Map;

/// How many bytes of JSON `map` is, without making them.
pub(crate) fn json_size(map: &Map) -> serde_json::Result<usize> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, map)?;
    Ok(count.0)
}

struct Count(usize);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
