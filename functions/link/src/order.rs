//! The symbols of a program in the order of a list.

use std::io;
use std::path::Path;

use object::{File, Object, ObjectSymbol, SymbolKind};

use crate::starts::Starts;

/// The names by which the linker knows the functions of `starts`: those of Rust among the symbols of `objects`, those of C as
/// they are.
pub(crate) fn symbols_in_order<'p>(
    starts: &Starts,
    objects: impl Iterator<Item = &'p Path>,
) -> io::Result<Vec<String>> {
    let mut found: Vec<(usize, String)> = starts.plain().map(|(name, at)| (at, name.to_owned())).collect();
    for path in objects {
        let bytes = std::fs::read(path)?;
        let object = File::parse(&*bytes).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        let functions = object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
        found.extend(functions.filter_map(|symbol| {
            let name = symbol.name().ok()?;
            Some((starts.place_of(name)?, name.to_owned()))
        }));
    }
    found.sort();
    found.dedup();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}
