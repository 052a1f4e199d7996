//! Links a function so that what runs at its start lies side by side, and is had with few pages.
//!
//! `functions/build.sh` names this program to rustc as the linker: it finds the functions of `DORMOUSE_STARTS` among the symbols
//! that it is given, tells the toolchain's own LLD their order, has it lay the rest so that it packs small, and changes nothing
//! else. Without that variable it links as LLD does. The same program with its symbols is left in the folder `symbols` beside
//! that of the output: the names of addresses in traces stand in it.
//!
//! `dormouse-link list FILE…` prints such a list from what `valgrind --tool=callgrind --demangle=no` wrote of starts.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod order;
mod starts;

use order::symbols_in_order;
use starts::{Starts, list_of};

/// The list of what runs at a start.
const STARTS: &str = "DORMOUSE_STARTS";
/// The linker of the toolchain, which rustc puts on the path of the one that it calls.
const LLD: &str = "rust-lld";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, files)) if first == "list" => list(files),
        Some(_) | None => link(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without an error stream there is no reader.
            let _ = writeln!(io::stderr(), "dormouse-link: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the list of what ran in the starts that `files` tell of.
fn list(files: &[OsString]) -> io::Result<()> {
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let list = list_of(&files)?;
    io::stdout().write_all(list.as_bytes())
}

/// Links what `arguments` say, in the order of the list, and once more with symbols.
fn link(arguments: &[OsString]) -> io::Result<()> {
    let Some(output) = behind(arguments, "-o") else {
        return Err(io::Error::other("there is no -o: rustc calls this program as its linker"));
    };
    let mut all = arguments.to_vec();
    if let Some(list) = env::var_os(STARTS) {
        let starts = Starts::read(Path::new(&list))?;
        let objects = arguments.iter().map(Path::new).filter(|path| path.extension().is_some_and(|end| end == "o"));
        let names = symbols_in_order(&starts, objects)?;
        let order = output.with_extension("order");
        std::fs::write(&order, names.join("\n"))?;
        let mut option = OsString::from("--symbol-ordering-file=");
        option.push(&order);
        // Of those that this program has not, nothing is to be told.
        all.extend([option, "--no-warn-symbol-ordering".into()]);
        // What is alike lies side by side behind these, which packs smaller.
        all.push("--bp-compression-sort=both".into());
    }
    run(&all)?;
    let symbols = symbols_of(&output);
    std::fs::create_dir_all(symbols.parent().unwrap_or(Path::new(".")))?;
    let is_stripping = |argument: &OsString| argument == "--strip-all" || argument == "--strip-debug";
    let mut kept: Vec<OsString> = all.into_iter().filter(|argument| !is_stripping(argument)).collect();
    for argument in &mut kept {
        if Path::new(argument) == output {
            *argument = symbols.clone().into();
        }
    }
    run(&kept)
}

fn run(arguments: &[OsString]) -> io::Result<()> {
    let status = Command::new(LLD).args(arguments).status();
    let status = status.map_err(|error| io::Error::other(format!("{LLD} does not start: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{LLD} ended with {status}"))),
    }
}

/// The argument behind `option`.
fn behind(arguments: &[OsString], option: &str) -> Option<PathBuf> {
    let at = arguments.iter().position(|argument| argument == option)?;
    arguments.get(at + 1).map(PathBuf::from)
}

/// The place of the program `output` with its symbols: `symbols/dormouse-inbound` for `deps/dormouse_inbound-0123456789abcdef`.
fn symbols_of(output: &Path) -> PathBuf {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.rsplit_once('-').map_or(&*name, |(plain, _)| plain);
    let folder = output.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    folder.join("symbols").join(plain.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_with_symbols_has_the_name_of_its_package() {
        let symbols = symbols_of(Path::new("/t/x/lambda/deps/dormouse_inbound-74c7c05e511ca47c"));
        assert_eq!(symbols, Path::new("/t/x/lambda/symbols/dormouse-inbound"));
    }

    #[test]
    fn the_output_is_what_stands_behind_its_option() {
        let arguments: Vec<OsString> = ["a.o", "-o", "deps/a-1", "-lc"].map(OsString::from).into();
        assert_eq!(behind(&arguments, "-o"), Some(PathBuf::from("deps/a-1")));
        assert_eq!(behind(&arguments[..2], "-o"), None);
    }
}
