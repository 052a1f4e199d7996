//! Lines of the log for people.

use std::fmt;

use tracing::field::Field;
use tracing_subscriber::field::delimited::Delimited;
use tracing_subscriber::fmt::format::{FieldFn, Writer, debug_fn};

use crate::terminal::plain;

/// How a field is written.
type WriteField = fn(&mut Writer<'_>, &Field, &dyn fmt::Debug) -> fmt::Result;

/// Fields as `tracing_subscriber` writes them, in one line and without what a terminal obeys: it leaves that out of messages alone,
/// and errors have the words of servers of tools and of models.
pub(crate) fn plain_fields() -> Delimited<&'static str, FieldFn<WriteField>> {
    let write: WriteField = write_field;
    Delimited::new(" ", debug_fn(write))
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = plain(&format!("{value:?}"));
    let name = field.name();
    match (name, writer.has_ansi_escapes()) {
        ("message", _) => writer.write_str(&value),
        (_, false) => write!(writer, "{name}={value}"),
        // The name in italics, the sign dimmed.
        (_, true) => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a lock").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(has_styles: bool) -> String {
        let written = Written::default();
        let kept = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || kept.clone()).with_target(false);
        let lines = lines.without_time().compact().fmt_fields(plain_fields()).with_ansi(has_styles);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let said = "it says: \u{1b}[2J\u{1b}]0;x\u{7}\n2026-01-01T00:00:00Z  INFO all is well \u{202e}";
            let span = tracing::info_span!("invocation", of = %said);
            span.in_scope(|| tracing::warn!(error = %said, source = "garbage", left = 3, "not listed: {said}"));
        });
        String::from_utf8(written.0.lock().expect("a lock").clone()).expect("text")
    }

    #[test]
    fn words_of_others_stay_in_their_line_and_move_no_terminal() {
        let logged = logged(false);
        let said = r"it says: \u{1b}[2J\u{1b}]0;x\u{7}\n2026-01-01T00:00:00Z  INFO all is well \u{202e}";
        assert_eq!(logged.lines().count(), 1, "{logged:?}");
        let fields = format!("not listed: {said} error={said} source=\"garbage\" left=3 of={said}");
        assert!(logged.ends_with(&format!("{fields}\n")), "{logged:?}");
    }

    #[test]
    fn on_a_terminal_the_names_of_fields_have_their_styles() {
        let logged = logged(true);
        assert!(logged.contains("\u{1b}[3mleft\u{1b}[0m\u{1b}[2m=\u{1b}[0m3"), "{logged:?}");
        assert!(logged.contains(r"all is well \u{202e}") && !logged.contains("\u{1b}]0;"), "{logged:?}");
        assert_eq!(logged.lines().count(), 1, "{logged:?}");
    }
}
