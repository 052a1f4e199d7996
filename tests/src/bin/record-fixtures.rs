//! Writes the records of this version as they are in the table. Run with `make record-fixtures`, before a release and
//! never behind it: what was released stays as it is.

#![expect(clippy::print_stdout, reason = "it says what it wrote")]

use dormouse_aws::ensure_table;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_tests::released::{TABLE, VERSION, folder, record};
use dormouse_tests::{Stage, raw};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = folder().join(format!("{VERSION}.json"));
    let changelog = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CHANGELOG.md"))?;
    let unreleased = changelog.lines().any(|line| line == format!("## {VERSION}, unreleased"));
    if path.exists() && !unreleased {
        return Err(format!("{VERSION} is released: its records stay as they are").into());
    }
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await?;
    ensure_table(&embedded.client(), TABLE).await?;
    record(&Stage::default(), &embedded.client()).await;
    let items = raw::items(&embedded.client(), TABLE).await;
    std::fs::create_dir_all(folder())?;
    std::fs::write(&path, serde_json::to_string_pretty(&items)? + "\n")?;
    println!("{} items in {}", items.len(), path.display());
    Ok(())
}
