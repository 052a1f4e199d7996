//! JSON Schemas of answers as people read them: the fields that there are, and an answer that is to be filled in.

use dormouse_ports::Map;
use serde_json::Value;

use super::print::bounded;
use crate::terminal::{json, plain};

/// The most fields that are told.
const MOST_FIELDS: usize = 24;
/// The most choices that are told of a field, and the characters of one.
const MOST_CHOICES: usize = 12;
const LONGEST_CHOICE: usize = 60;
/// Characters of what is told of a field.
const LONGEST_FIELD: usize = 300;

/// An answer that is to be filled in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// JSON with `<…>` where a value belongs. With one of these it is no JSON, so that nobody takes it as it is.
    pub(crate) text: String,
    /// True if nothing is left to be filled in.
    pub(crate) is_whole: bool,
}

impl Template {
    /// That of an answer of which nothing is known.
    pub(crate) fn of_anything() -> Self {
        Self { text: "{...}".to_owned(), is_whole: false }
    }

    /// That of an answer by `schema`: the fields that are needed, or all where none is.
    pub(crate) fn of(schema: &Map) -> Self {
        let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return Self::of_anything() };
        let needed: Vec<_> = fields.iter().filter(|(name, _)| is_needed(schema, name)).collect();
        let fields = if needed.is_empty() { fields.iter().collect() } else { needed };
        Self::with(fields)
    }

    /// That of an answer with these fields, by their names and schemas.
    pub(crate) fn with<'f>(fields: impl IntoIterator<Item = (&'f String, &'f Value)>) -> Self {
        let (mut all, mut is_whole) = (Vec::new(), true);
        for (name, field) in fields {
            let value = Self::of_value(field);
            is_whole &= value.is_whole;
            all.push(format!("{}:{}", json(&name.as_str().into(), false), value.text));
        }
        Self { text: format!("{{{}}}", all.join(",")), is_whole }
    }

    fn of_value(field: &Value) -> Self {
        let blank = |what: &str| Self { text: format!("<{what}>"), is_whole: false };
        match (choices_of(field).as_slice(), type_of(field), field.as_object()) {
            ([one], _, _) => Self { text: json(one, false), is_whole: true },
            ([], Some("string"), _) => blank("\"text\""),
            ([], Some("object"), Some(schema)) => Self::of(schema),
            (_, _, _) => blank(&kind_of(field)),
        }
    }
}

/// The fields of an answer by `schema`, a line for each: its name, what it may be, and whether it has to be there.
pub(crate) fn fields_of(schema: &Map) -> Vec<String> {
    let mut lines = Vec::new();
    add_fields(schema, "", &mut lines);
    let left = lines.len().saturating_sub(MOST_FIELDS);
    if left > 0 {
        lines.truncate(MOST_FIELDS);
        lines.push(format!("and {left} more"));
    }
    lines
}

/// Adds the fields of `schema`, which stand within those that `outer` names.
fn add_fields(schema: &Map, outer: &str, lines: &mut Vec<String>) {
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{outer}{}", plain(name));
        let presence = match (field.get("default"), is_needed(schema, name)) {
            (Some(default), _) => format!("{} where it is left out", choice(default)),
            (None, true) => "needed".to_owned(),
            (None, false) => "may be left out".to_owned(),
        };
        let about = ["description", "title"].iter().find_map(|keyword| field.get(keyword)?.as_str());
        let about = about.map(|about| format!(" ({})", plain(about))).unwrap_or_default();
        lines.push(bounded(&format!("{path}: {}, {presence}{about}", kind_of(field)), LONGEST_FIELD));
        if let Some(inner) = field.as_object() {
            add_fields(inner, &format!("{path}."), lines);
        }
    }
}

fn is_needed(schema: &Map, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|one| one == name))
}

/// What a value by the schema `field` may be, in words.
fn kind_of(field: &Value) -> String {
    let choices = choices_of(field);
    if !choices.is_empty() {
        let more = if choices.len() > MOST_CHOICES { " or …" } else { "" };
        let shown: Vec<String> = choices.into_iter().take(MOST_CHOICES).map(choice).collect();
        return format!("{}{more}", shown.join(" or "));
    }
    match (type_of(field), field.get("items")) {
        (Some("string"), _) => "text".to_owned(),
        (Some("boolean"), _) => "true or false".to_owned(),
        (Some("integer"), _) => "whole number".to_owned(),
        (Some("number"), _) => "number".to_owned(),
        (Some("array"), Some(items)) => format!("list of {}", kind_of(items)),
        (Some("array"), None) => "list".to_owned(),
        (Some("object"), _) => "object".to_owned(),
        (Some(_) | None, _) => "any value".to_owned(),
    }
}

fn choice(value: &Value) -> String {
    bounded(&json(value, false), LONGEST_CHOICE)
}

/// The values that the schema `field` names; none where it names none.
fn choices_of(field: &Value) -> Vec<&Value> {
    if let Some(one) = field.get("const") {
        return vec![one];
    }
    if let Some(all) = field.get("enum").and_then(Value::as_array) {
        return all.iter().collect();
    }
    // Choices with a title each.
    let titled = ["oneOf", "anyOf"].iter().find_map(|keyword| field.get(keyword)?.as_array());
    let values = titled.and_then(|all| all.iter().map(|one| one.get("const")).collect::<Option<Vec<_>>>());
    values.unwrap_or_default()
}

/// The type in the schema `field`; of several the first that is not `null`.
fn type_of(field: &Value) -> Option<&str> {
    let types = field.get("type")?;
    let several = || types.as_array()?.iter().filter_map(Value::as_str).find(|name| *name != "null");
    types.as_str().or_else(several)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn each_field_is_told_with_what_it_may_be() {
        let form = schema(json!({ "type": "object", "required": ["color", "count", "size"], "properties": {
            "color": { "enum": ["red", "blue"], "description": "of the wall" },
            "count": { "type": ["null", "integer"], "default": 2 },
            "size": { "type": "object", "properties": { "width": { "type": "number" } } },
            "tags": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }, { "const": "b" }] } },
            "note\u{1b}": { "type": "string", "title": "Note" } } }));
        assert_eq!(
            fields_of(&form),
            [
                "color: \"red\" or \"blue\", needed (of the wall)",
                "count: whole number, 2 where it is left out",
                "size: object, needed",
                "size.width: number, may be left out",
                "tags: list of \"a\" or \"b\", may be left out",
                "note\\u{1b}: text, may be left out (Note)",
            ]
        );
    }

    #[test]
    fn a_long_form_is_cut() {
        let fields: Map =
            (0..30).map(|at| (format!("f{at}"), json!({ "enum": (0..20).collect::<Vec<_>>() }))).collect();
        let form = schema(json!({ "properties": fields }));
        let told = fields_of(&form);
        assert_eq!((told.len(), told.last().map(String::as_str)), (MOST_FIELDS + 1, Some("and 6 more")));
        assert!(told[0].contains("11 or …"), "{}", told[0]);
    }

    #[test]
    fn a_template_has_what_is_needed_and_is_no_answer_before_it_is_filled_in() {
        for (form, text, is_whole) in [
            (
                json!({ "required": ["vote", "count", "who"], "properties": { "vote": { "enum": ["yes", "no"] },
                    "count": { "type": "integer" }, "who": { "type": "string" }, "note": { "type": "string" } } }),
                r#"{"vote":<"yes" or "no">,"count":<whole number>,"who":<"text">}"#,
                false,
            ),
            (json!({ "properties": { "note": { "type": "string" } } }), r#"{"note":<"text">}"#, false),
            (
                json!({ "properties": { "a": { "type": "object", "properties": { "b": { "type": "boolean" } } } } }),
                r#"{"a":{"b":<true or false>}}"#,
                false,
            ),
            (json!({ "properties": { "sure": { "const": true } } }), r#"{"sure":true}"#, true),
            (json!({ "properties": {} }), "{}", true),
            (json!({ "type": "object" }), "{...}", false),
        ] {
            let template = Template::of(&schema(form));
            assert_eq!((template.text.as_str(), template.is_whole), (text, is_whole));
            assert_eq!(serde_json::from_str::<Value>(text).is_ok(), is_whole, "{text}");
        }
    }
}
