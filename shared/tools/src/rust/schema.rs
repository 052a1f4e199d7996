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
    // It may be `true` or `false` too: anything, or nothing.
    schema.as_object().cloned().unwrap_or_default()
}
