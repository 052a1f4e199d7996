//! The list of what runs at a start: a line for each function, the most common ones first.
//!
//! A line is the name of a function of C, or the first 16 hexadecimal digits of the SHA-256 of a Rust function's demangled
//! name. The name itself is hundreds of letters long, and its mangled form changes with each version of the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What the head of a list says.
const HEAD: &str =
    "# What runs at the start of the functions, by `make starts`: names of C, digests of names of Rust.\n";
/// Bytes of a digest that are enough to tell some ten thousand names apart.
const DIGEST: usize = 8;

/// What runs at a start, each with its place in the order.
pub(crate) struct Starts(BTreeMap<String, usize>);

impl Starts {
    /// The list in the file at `path`.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Self::of(&text))
    }

    fn of(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.enumerate().map(|(at, line)| (line.to_owned(), at)).collect())
    }

    /// The place of the function that the linker calls `symbol`; `None` where it does not run at a start.
    pub(crate) fn place_of(&self, symbol: &str) -> Option<usize> {
        self.0.get(&key_of(symbol)).copied()
    }

    /// The functions of C in the list, which are called the same in each program, with their places.
    pub(crate) fn plain(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().filter(|(line, _)| !is_digest(line)).map(|(line, at)| (line.as_str(), *at))
    }
}

/// The line of the function that the linker calls `symbol`.
fn key_of(symbol: &str) -> String {
    match rustc_demangle::try_demangle(symbol) {
        // The alternate form leaves out what tells versions of crates apart.
        Ok(name) => hex::encode(&Sha256::digest(format!("{name:#}"))[..DIGEST]),
        Err(_) => symbol.to_owned(),
    }
}

fn is_digest(line: &str) -> bool {
    line.len() == 2 * DIGEST && line.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The list of what ran by `files` of callgrind: parts of one start have the same name but for the number at its end. What ran
/// in more starts comes before what ran in fewer, and then what ran earlier.
///
/// # Errors
/// Where a file cannot be read, and where none tells of a function: such a list would take the place of one that has some.
pub(crate) fn list_of(files: &[PathBuf]) -> io::Result<String> {
    let mut parts: Vec<(String, u64, &PathBuf)> = files.iter().filter_map(|path| part(path)).collect();
    parts.sort();
    let mut ran: BTreeMap<String, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for (start, _, path) in &parts {
        let text = std::fs::read_to_string(path)?;
        for name in text.lines().filter_map(function) {
            let at = ran.len();
            ran.entry(key_of(name)).or_insert_with(|| (BTreeSet::new(), at)).0.insert(start);
        }
    }
    if ran.is_empty() {
        let message = "nothing that ran is told: trace programs that were linked by this one, with their symbols";
        return Err(io::Error::other(message));
    }
    let mut lines: Vec<_> = ran.into_iter().collect();
    lines.sort_by_key(|(_, (starts, at))| (std::cmp::Reverse(starts.len()), *at));
    let mut list = HEAD.to_owned();
    for (line, _) in lines {
        writeln!(list, "{line}").map_err(io::Error::other)?;
    }
    Ok(list)
}

/// The start of which `path` holds a part, and the number of the part; `None` for what was never written.
fn part(path: &PathBuf) -> Option<(String, u64, &PathBuf)> {
    let name = path.file_name()?.to_str()?;
    let (start, number) = name.rsplit_once('.')?;
    let is_written = std::fs::metadata(path).is_ok_and(|found| found.len() > 0);
    Some((start.to_owned(), number.parse().ok()?, path)).filter(|_| is_written)
}

/// The function that a line names when it names it for the first time: `fn=(12) name` or `cfn=(12) name`, where `'2` behind the
/// name tells of a call of itself.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
    let (_, name) = rest.split_once(") ")?;
    let name = match name.rsplit_once('\'') {
        Some((plain, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        Some(_) | None => name,
    };
    (!name.starts_with("0x")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_the_same_in_each_version_of_its_crate_and_a_name_of_c_is_itself() {
        let both = ["_RNvCs1234_7mycrate3foo", "_RNvCs9xYz_7mycrate3foo"].map(key_of);
        assert_eq!(both[0], both[1]);
        assert!(is_digest(&both[0]), "{}", both[0]);
        assert_ne!(both[0], key_of("_RNvCs1234_7mycrate3bar"));
        assert_eq!((key_of("memcpy"), is_digest("memcpy")), ("memcpy".to_owned(), false));
    }

    #[test]
    fn a_list_has_an_order_and_leaves_out_what_is_said_about_it() {
        let foo = key_of("_RNvCs1234_7mycrate3foo");
        let starts = Starts::of(&format!("# head\n\nmemcpy\n{foo}\n"));
        assert_eq!(starts.place_of("_RNvCs9xYz_7mycrate3foo"), Some(1));
        assert_eq!((starts.place_of("memcpy"), starts.place_of("memmove")), (Some(0), None));
        assert_eq!(starts.plain().collect::<Vec<_>>(), [("memcpy", 0)]);
    }

    #[test]
    fn what_runs_in_more_starts_comes_first_and_parts_of_one_start_are_read_in_order() {
        let folder = std::env::temp_dir().join(format!("dormouse-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let written = [
            ("signal.7.1", "fn=(1) memcpy\n+1 2\ncfn=(2) 0x0000\n"),
            ("inbound.9.10", "fn=(4) late\n"),
            ("inbound.9.2", "fn=(1) early'2\nfn=(1)\ncfn=(3) memcpy\n"),
            ("inbound.9", ""),
        ];
        let files: Vec<PathBuf> = written.iter().map(|(name, _)| folder.join(name)).collect();
        for (path, (_, text)) in files.iter().zip(written) {
            std::fs::write(path, text).expect("it is written");
        }
        let list = list_of(&files).expect("a list");
        // What a shell gives on where it finds no file, and a start that was killed before it wrote anything.
        let without_any = ["*", "inbound.9"].map(|name| list_of(&[folder.join(name)]).is_err());
        std::fs::remove_dir_all(&folder).expect("it is removed");
        assert_eq!(list.strip_prefix(HEAD), Some("memcpy\nearly\nlate\n"));
        assert_eq!(without_any, [true; 2], "an empty list takes the place of none");
    }
}
