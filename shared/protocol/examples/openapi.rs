//! Writes the OpenAPI document as the types make it, a line for each path and each schema: `make record-openapi` stores it.

#![expect(clippy::print_stdout, reason = "the document is what this program is for")]

use dormouse_protocol::openapi::{DocumentInfo, make};
use serde_json::Value;

fn main() {
    print!("{}", lines(&make(DocumentInfo { title: "", description: "" })));
}

/// The document with a line for each entry of what is long.
fn lines(document: &Value) -> String {
    let sections = document.as_object().into_iter().flatten().map(|(name, section)| match name.as_str() {
        "paths" => format!("{}: {}", Value::from(name.as_str()), entries(section)),
        "components" => {
            let parts = section.as_object().into_iter().flatten();
            let parts: Vec<_> =
                parts.map(|(name, part)| format!("{}: {}", Value::from(name.as_str()), entries(part))).collect();
            format!("{}: {{\n{}\n}}", Value::from(name.as_str()), parts.join(",\n"))
        }
        _ => format!("{}: {section}", Value::from(name.as_str())),
    });
    format!("{{\n{}\n}}\n", sections.collect::<Vec<_>>().join(",\n"))
}

fn entries(section: &Value) -> String {
    let entries = section.as_object().into_iter().flatten();
    let entries: Vec<_> = entries.map(|(name, entry)| format!("{}: {entry}", Value::from(name.as_str()))).collect();
    format!("{{\n{}\n}}", entries.join(",\n"))
}
