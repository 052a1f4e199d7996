//! The command line of a crate with tools in Rust and no agents of its own: for tests with folders that declare some.

use std::process::ExitCode;

use dormouse_api::Agents;
use dormouse_ports::Map;
use dormouse_tools::schemars::{self, JsonSchema};
use dormouse_tools::{RustTool, RustTools, RustToolsError};
use serde::Deserialize;

/// What is looked for, or ordered.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
struct Goods {
    /// The article.
    item: String,
}

fn main() -> Result<ExitCode, RustToolsError> {
    Ok(dormouse_cli::main(&Agents::new().tools("stock", stock()?)))
}

fn stock() -> Result<RustTools, RustToolsError> {
    let count = RustTool::new("count").describe("Tells how many pieces there are.").read_only();
    let order = RustTool::new("order").describe("Orders a piece.").destructive();
    let burn = RustTool::new("burn").describe("Burns everything down.").destructive();
    RustTools::new([
        count.run(async |goods: Goods| match goods.item.as_str() {
            "lamp" => Ok(7),
            other => Err(format!("there is no item `{other}`")),
        }),
        order.run(async |goods: Goods| Ok::<_, String>(format!("ordered a {}", goods.item))),
        burn.run(async |_: Map| Ok::<_, String>("all is burnt")),
    ])
}
