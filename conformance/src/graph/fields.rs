//! Field types and reducers as fixtures spell them (conformance-adapter §5.2).

use dormouse_engine::{Field, FieldType, Reducer, StateSchema};
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;

/// Reads a `state:` block.
pub(super) fn schema(mut state: Directives<'_>) -> Result<StateSchema, Failure> {
    let mut schema = StateSchema::new();
    if let Some(version) = state.text("schema_version")? {
        schema = schema.with_version(version);
    }
    if let Some(fields) = state.nested("fields")? {
        schema = declare(schema, fields)?;
    }
    state.done()?;
    Ok(schema)
}

fn declare(mut schema: StateSchema, mut fields: Directives<'_>) -> Result<StateSchema, Failure> {
    for name in fields.unread() {
        let at = format!("{}.{name}", fields.at());
        let mut field = Directives::new(at, fields.require(name)?)?;
        let field_type = field_type(field.text("type")?.unwrap_or("any"));
        let default = field.get("default").cloned();
        let reducer = field.given("reducer").map(reducer).transpose()?.unwrap_or_default();
        // Whoever has no default is required anyway.
        field.flag("required")?;
        let conflicting = field.given("alt_reducer").is_some();
        field.done()?;
        schema = schema.field(name, declared(field_type, default, reducer));
        if conflicting {
            schema = schema.conflicting(name);
        }
    }
    Ok(schema)
}

/// A field without a default must be supplied; one whose default is null may stay null.
fn declared(field_type: FieldType, default: Option<Value>, reducer: Reducer) -> Field {
    let field_type = match &default {
        Some(Value::Null) => FieldType::Optional(Box::new(field_type)),
        Some(_) | None => field_type,
    };
    Field { field_type, default: default.unwrap_or_default(), reducer }
}

/// Reads a type such as `int`, `list<string>`, `list[ChatMessage]` or `dict<string,int>`. A bareword that is no
/// primitive names a record.
fn field_type(text: &str) -> FieldType {
    let text = text.trim();
    if let Some(inner) = text.strip_suffix('?') {
        return FieldType::Optional(Box::new(field_type(inner)));
    }
    let (head, parameters) = split_parameters(text);
    let last = parameters.last().map_or(FieldType::Any, |last| field_type(last));
    match head.to_ascii_lowercase().as_str() {
        "any" => FieldType::Any,
        "bool" | "boolean" => FieldType::Bool,
        "int" | "integer" => FieldType::Int,
        "float" | "number" => FieldType::Float,
        "str" | "string" => FieldType::Str,
        "list" | "array" => FieldType::List(Box::new(last)),
        "optional" => FieldType::Optional(Box::new(last)),
        _ => FieldType::Mapping(Box::new(last)),
    }
}

/// `dict<string,list<int>>` is `dict` with `string` and `list<int>`.
fn split_parameters(text: &str) -> (&str, Vec<&str>) {
    let Some(open) = text.find(['<', '[']) else { return (text, Vec::new()) };
    let inner = &text[open + 1..];
    let inner = inner.strip_suffix(['>', ']']).unwrap_or(inner);
    let mut depth = 0_i32;
    let mut start = 0;
    let mut parameters = Vec::new();
    for (index, character) in inner.char_indices() {
        match character {
            '<' | '[' => depth += 1,
            '>' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parameters.push(&inner[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parameters.push(&inner[start..]);
    (&text[..open], parameters)
}

fn reducer(value: &Value) -> Result<Reducer, Failure> {
    if let Some(name) = value.as_str() {
        return named(name, None);
    }
    match value.as_object().into_iter().flatten().collect::<Vec<_>>()[..] {
        [(name, parameters)] => named(name, Some(parameters)),
        _ => Err(Failure::invalid(format!("a reducer must be a name or a mapping of one name, not {value}"))),
    }
}

fn named(name: &str, parameters: Option<&Value>) -> Result<Reducer, Failure> {
    let empty = Value::Object(dormouse_ports::Map::new());
    let mut given = Directives::new(name, parameters.unwrap_or(&empty))?;
    let reducer = match name {
        "last_write_wins" => Reducer::LastWriteWins,
        "append" => Reducer::Append,
        "merge" => Reducer::Merge,
        "concat_flatten" => Reducer::ConcatFlatten,
        "merge_all" => Reducer::MergeAll,
        "bounded_append" => Reducer::BoundedAppend { max_len: given.integer("max_len")?.unwrap_or_default() },
        "dedupe_append" => Reducer::DedupeAppend { key: given.text("key")?.map(Reducer::key_field) },
        "merge_by_key" => Reducer::MergeByKey { key: given.text("key")?.map(Reducer::key_field) },
        other => return Err(Failure::missing(format!("reducer `{other}`"))),
    };
    given.done()?;
    Ok(reducer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_in_every_spelling() {
        let list = |item| FieldType::List(Box::new(item));
        assert_eq!(field_type("list"), list(FieldType::Any));
        assert_eq!(field_type("list<string>"), list(FieldType::Str));
        assert_eq!(field_type("list[str]"), list(FieldType::Str));
        assert_eq!(field_type("list<list<int>>"), list(list(FieldType::Int)));
        assert_eq!(field_type("dict<string, list[float]>"), FieldType::Mapping(Box::new(list(FieldType::Float))));
        assert_eq!(field_type("list[ChatMessage]"), list(FieldType::Mapping(Box::new(FieldType::Any))));
        assert_eq!(field_type("bool?"), FieldType::Optional(Box::new(FieldType::Bool)));
    }
}
