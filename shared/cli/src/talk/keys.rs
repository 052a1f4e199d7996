//! What the keys of a terminal send, and what that is to do with a line.

use std::mem::take;
use std::time::{Duration, Instant};

/// What a key, or a paste, does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A letter of the line.
    Letter(char),
    /// Text that was pasted, which the terminal says of it: its line ends send nothing.
    Paste(String),
    /// The line is sent.
    Enter,
    /// Deletes the letter under the cursor, and ends the input where there is nothing in the line.
    EndOrDelete,
    /// The program is to end as it stands.
    Quit,
    /// Nothing stays on the terminal but the line.
    Clear,
    Left,
    Right,
    WordLeft,
    WordRight,
    /// The beginning of the line.
    Home,
    /// The end of the line.
    End,
    /// The line before this one.
    Up,
    /// The line behind this one.
    Down,
    Backspace,
    Delete,
    /// Takes out what stands before the cursor.
    CutHead,
    /// Takes out what stands behind the cursor.
    CutTail,
    /// Takes out the word before the cursor, as far as a blank.
    CutWordLeft,
    /// Takes out the word behind the cursor.
    CutWordRight,
    /// Puts in what was taken out last.
    PutBack,
    /// Searches the lines before this one, from the last on; once more it goes on to the one before that was found.
    Search,
    /// Ends a search, and what was typed before is there again.
    Leave,
}

const ESCAPE: u8 = 0x1b;

/// What stands behind text that is pasted.
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// Bytes of the longest sequence of a key that is read.
const LONGEST_SEQUENCE: usize = 32;

/// Time behind which an escape is the key of that name, and begins no sequence.
const ESCAPE_ALONE: Duration = Duration::from_millis(100);

/// Makes keys of the bytes that come from a terminal, however they are cut.
#[derive(Default)]
pub(super) struct Keys {
    /// Bytes that are no key yet.
    begun: Vec<u8>,
    /// When bytes were read last.
    read_at: Option<Instant>,
    /// What has come of a paste.
    pasted: Option<Vec<u8>>,
}

/// What bytes stand for.
enum Sent {
    Key(Key),
    PasteBegins,
    /// Nothing that is known here.
    Nothing,
}

impl Keys {
    /// True while text is pasted whose end has not come.
    pub(super) fn are_pasted(&self) -> bool {
        self.pasted.is_some()
    }

    /// The keys whose last bytes are in `read`, which was read at `now`.
    pub(super) fn take(&mut self, read: &[u8], now: Instant) -> Vec<Key> {
        let is_late = self.read_at.is_some_and(|at| now.saturating_duration_since(at) > ESCAPE_ALONE);
        let mut keys = Vec::new();
        if is_late && self.begun == [ESCAPE] {
            self.begun.clear();
            keys.push(Key::Leave);
        }
        self.read_at = Some(now);
        let mut bytes = take(&mut self.begun);
        bytes.extend(read);
        let mut rest = bytes.as_slice();
        loop {
            if let Some(pasted) = &mut self.pasted {
                let Some(end) = rest.windows(PASTE_ENDS.len()).position(|bytes| bytes == PASTE_ENDS) else {
                    // The last of them may be the beginning of that mark.
                    let (text, begun) = rest.split_at(rest.len().saturating_sub(PASTE_ENDS.len() - 1));
                    pasted.extend(text);
                    rest = begun;
                    break;
                };
                pasted.extend(&rest[..end]);
                rest = &rest[end + PASTE_ENDS.len()..];
                keys.push(Key::Paste(text_of(pasted)));
                self.pasted = None;
            }
            let Some((sent, length)) = first(rest) else { break };
            rest = &rest[length..];
            match sent {
                Sent::Key(key) => keys.push(key),
                Sent::PasteBegins => self.pasted = Some(Vec::new()),
                Sent::Nothing => {}
            }
        }
        self.begun = rest.to_vec();
        keys
    }
}

/// The lines that `pasted` are.
fn text_of(pasted: &[u8]) -> String {
    String::from_utf8_lossy(pasted).replace("\r\n", "\n").replace('\r', "\n")
}

/// What the first of `bytes` stand for, and how many they are; `None` where the rest of them has not come.
fn first(bytes: &[u8]) -> Option<(Sent, usize)> {
    match *bytes.first()? {
        ESCAPE => escaped(bytes),
        control @ (..0x20 | 0x7f) => Some((control_key(control), 1)),
        _ => {
            let (letter, length) = letter(bytes)?;
            Some((Sent::Key(Key::Letter(letter)), length))
        }
    }
}

/// The letter that `bytes` begin with. Half of one is marked.
fn letter(bytes: &[u8]) -> Option<(char, usize)> {
    let bytes = &bytes[..bytes.len().min(4)];
    let (valid, wrong) = match str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => (str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(), error.error_len()),
    };
    match valid.chars().next() {
        Some(letter) => Some((letter, letter.len_utf8())),
        None => wrong.map(|length| (char::REPLACEMENT_CHARACTER, length)),
    }
}

fn control_key(control: u8) -> Sent {
    Sent::Key(match control {
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x04 => Key::EndOrDelete,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x07 => Key::Leave,
        0x08 | 0x7f => Key::Backspace,
        b'\t' => Key::Letter('\t'),
        b'\n' | b'\r' => Key::Enter,
        0x0b => Key::CutTail,
        0x0c => Key::Clear,
        0x0e => Key::Down,
        0x10 => Key::Up,
        0x12 => Key::Search,
        0x15 => Key::CutHead,
        0x17 => Key::CutWordLeft,
        0x19 => Key::PutBack,
        0x1c => Key::Quit,
        _ => return Sent::Nothing,
    })
}

/// What `bytes` stand for, which begin with an escape.
fn escaped(bytes: &[u8]) -> Option<(Sent, usize)> {
    let sent = |key: Key| Some((Sent::Key(key), 2));
    match *bytes.get(1)? {
        // That of the Linux console for function keys is one longer.
        b'[' if bytes.get(2) == Some(&b'[') => bytes.get(3).map(|_| (Sent::Nothing, 4)),
        b'[' => sequence(bytes),
        b'O' => bytes.get(2).map(|last| (named(*last, 0), 3)),
        ESCAPE => Some((Sent::Nothing, 1)),
        b'b' => sent(Key::WordLeft),
        b'f' => sent(Key::WordRight),
        b'd' => sent(Key::CutWordRight),
        0x08 | 0x7f => sent(Key::CutWordLeft),
        b'\n' | b'\r' => sent(Key::Letter('\n')),
        _ => first(&bytes[1..]).map(|(_, length)| (Sent::Nothing, length + 1)),
    }
}

/// What `bytes` stand for, which begin with the mark of a control sequence: numbers and a letter.
fn sequence(bytes: &[u8]) -> Option<(Sent, usize)> {
    let length = bytes[2..].iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
    let (numbers, rest) = bytes[2..].split_at(length);
    let Some(last) = rest.first() else { return (length > LONGEST_SEQUENCE).then_some((Sent::Nothing, bytes.len())) };
    if !(0x40..0x7f).contains(last) {
        // Something else began in the midst of it.
        return Some((Sent::Nothing, length + 2));
    }
    let numbers = String::from_utf8_lossy(numbers);
    let mut numbers = numbers.split(';').map(|number| number.parse::<u32>().unwrap_or_default());
    let (number, keys_held) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let sent = match (last, number) {
        (b'~', 1 | 7) => Sent::Key(Key::Home),
        (b'~', 4 | 8) => Sent::Key(Key::End),
        (b'~', 3) if is_of_words(keys_held) => Sent::Key(Key::CutWordRight),
        (b'~', 3) => Sent::Key(Key::Delete),
        (b'~', 200) => Sent::PasteBegins,
        (last, _) => named(*last, keys_held),
    };
    Some((sent, length + 3))
}

/// The key that ends its sequence with `last`.
fn named(last: u8, keys_held: u32) -> Sent {
    Sent::Key(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' if is_of_words(keys_held) => Key::WordRight,
        b'C' => Key::Right,
        b'D' if is_of_words(keys_held) => Key::WordLeft,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        b'M' => Key::Enter,
        _ => return Sent::Nothing,
    })
}

/// True if Alt or Ctrl are among the keys that are held.
fn is_of_words(keys_held: u32) -> bool {
    keys_held.saturating_sub(1) & 6 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pieces: &[&[u8]]) -> Vec<Key> {
        let (mut keys, now) = (Keys::default(), Instant::now());
        pieces.iter().flat_map(|piece| keys.take(piece, now)).collect()
    }

    #[test]
    fn keys_are_the_same_however_their_bytes_are_cut() {
        let sent = "aü\u{1f44d}\x1b[D\x1b[1;5C\x1bOH\x1b[3~\x1bb\x01\x17\r".as_bytes();
        let whole = keys(&[sent]);
        let expected = [
            Key::Letter('a'),
            Key::Letter('ü'),
            Key::Letter('\u{1f44d}'),
            Key::Left,
            Key::WordRight,
            Key::Home,
            Key::Delete,
            Key::WordLeft,
            Key::Home,
            Key::CutWordLeft,
            Key::Enter,
        ];
        assert_eq!(whole, expected);
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(keys(&bytes), expected);
    }

    #[test]
    fn a_paste_is_text_however_it_is_cut_and_its_line_ends_send_nothing() {
        let sent = b"x\x1b[200~a\r\nb\rc\n\x1b[A\x01d\x1b[201~\r";
        let expected = [Key::Letter('x'), Key::Paste("a\nb\nc\n\x1b[A\x01d".to_owned()), Key::Enter];
        assert_eq!(keys(&[sent]), expected);
        for length in 1..sent.len() {
            let pieces: Vec<&[u8]> = sent.chunks(length).collect();
            assert_eq!(keys(&pieces), expected, "{length}");
        }
    }

    #[test]
    fn what_is_no_key_here_leaves_nothing_behind_and_half_a_letter_is_marked() {
        let strange = b"\x1b[?1;2c\x1b[[A\x1b[15~\x1bOP\x1bx\x0f\x1b\x1b[D\x1b[1\x01z";
        assert_eq!(keys(&[strange]), [Key::Left, Key::Home, Key::Letter('z')]);
        assert_eq!(keys(&[b"\xc3", b"a"]), [Key::Letter('\u{fffd}'), Key::Letter('a')]);
        assert_eq!(keys(&[&[b"\x1b[".as_slice(), &b"1;".repeat(40)].concat(), b"a"]), [Key::Letter('a')]);
    }

    #[test]
    fn the_key_escape_takes_no_letter_with_it() {
        let (mut keys, now) = (Keys::default(), Instant::now());
        assert_eq!(keys.take(b"\x1b", now), []);
        assert_eq!(keys.take(b"h", now + Duration::from_millis(300)), [Key::Leave, Key::Letter('h')]);
        assert_eq!(keys.take(b"\x1b", now), []);
        assert_eq!(keys.take(b"b", now + Duration::from_millis(5)), [Key::WordLeft]);
    }
}
