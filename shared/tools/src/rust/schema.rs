use dormouse_ports::Map;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// The JSON Schema of `T` as models take it: without a dialect, and with types in place where they do not refer to
/// themselves.
pub(super) fn of<T: JsonSchema>() -> Map {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    match schema.to_value() {
        serde_json::Value::Object(schema) => schema,
        // `true` or `false`: anything, or nothing.
        _ => Map::new(),
    }
}
