//! The table of the template is the table that the store expects.

use std::path::Path;

#[test]
fn the_template_describes_the_table_of_the_store() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/table.json");
    let text = std::fs::read_to_string(path).expect("infra/table.json");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let expected = serde_json::to_string_pretty(&dormouse_aws::table_resource()).expect("JSON");
    assert_eq!(written, dormouse_aws::table_resource(), "infra/table.json should be:\n{expected}");
}
