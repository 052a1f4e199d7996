//! Compresses the files of the console, so that nobody has to when they are asked for.

#![expect(clippy::disallowed_methods, reason = "the build of the crate reads its files; what is built knows none")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let folder = Path::new("assets");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no folder"))?);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(&fs::read(entry.path())?)?;
        let mut name = entry.file_name();
        name.push(".gz");
        fs::write(out.join(name), compressed.finish()?)?;
    }
    Ok(())
}
