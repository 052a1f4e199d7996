use std::io::{self, Write};

use serde::Serialize;

/// Number of bytes of `value` as JSON, without making them.
///
/// # Errors
/// When it cannot be JSON.
pub fn length(value: &impl Serialize) -> serde_json::Result<usize> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn it_is_as_long_as_its_text() {
        let value = json!({ "a\"\u{1}": [1.5, null, "ü\n"] });
        assert_eq!(super::length(&value).expect("JSON"), value.to_string().len());
    }
}
