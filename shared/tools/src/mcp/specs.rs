//! Tools of a server as tools of ours.

use std::collections::BTreeSet;

use dormouse_json::{ENTRY, Schema, measure_object};
use dormouse_ports::Map;
use dormouse_ports::tool::{ToolAnnotations, ToolSpec};
use rmcp::model::Tool;
use serde_json::Value;

use crate::names;
use crate::text::cut;

/// Tools of one server.
const MOST_TOOLS: usize = 512;
/// Bytes of a description.
const MOST_DESCRIPTION: usize = 16 * 1024;
/// Bytes of the JSON of an `inputSchema`, which each request to a model has.
const MOST_SCHEMA: usize = 256 * 1024;

/// A tool that is not offered, with the reason.
pub(super) type LeftOut = (String, String);

/// The tools that can be offered, in the server's order, and those that cannot.
pub(super) fn read(tools: Vec<Tool>) -> (Vec<ToolSpec>, Vec<LeftOut>) {
    let mut specs = Vec::new();
    let mut left_out = Vec::new();
    let mut names = BTreeSet::new();
    for tool in tools {
        let name = tool.name.to_string();
        let spec = match names.contains(&name) {
            true => Err("the server lists it twice; the first one counts".to_owned()),
            false if specs.len() == MOST_TOOLS => Err(format!("the server lists more than {MOST_TOOLS} tools")),
            false => spec(tool, &mut left_out),
        };
        match spec {
            Ok(spec) => {
                names.insert(name);
                specs.push(spec);
            }
            Err(reason) => left_out.push((cut(&name, 200), reason)),
        }
    }
    (specs, left_out)
}

fn spec(tool: Tool, left_out: &mut Vec<LeftOut>) -> Result<ToolSpec, String> {
    names::check(&tool.name)?;
    let mut spec = ToolSpec::new(tool.name);
    let hints = tool.annotations.unwrap_or_default();
    spec.title = tool.title.or(hints.title);
    spec.description = cut(&tool.description.unwrap_or_default(), MOST_DESCRIPTION);
    // What is no JSON has no such length.
    let length = serde_json::to_string(&*tool.input_schema).map_or(0, |json| json.len());
    if length > MOST_SCHEMA {
        return Err(format!(
            "its `inputSchema` has {length} bytes, and may have {MOST_SCHEMA}: each request to a model would have it whole"
        ));
    }
    spec.input_schema = object((*tool.input_schema).clone()).map_err(|reason| format!("its `inputSchema` {reason}"))?;
    if let Some(schema) = tool.output_schema {
        match object((*schema).clone()) {
            Ok(schema) => spec.output_schema = Some(schema),
            Err(reason) => {
                left_out.push((format!("{} (its `outputSchema` alone)", spec.name), format!("that {reason}")));
            }
        }
    }
    spec.annotations = ToolAnnotations {
        read_only: hints.read_only_hint,
        idempotent: hints.idempotent_hint,
        destructive: hints.destructive_hint,
        open_world: hints.open_world_hint,
    };
    spec.effect = spec.annotations.effect();
    Ok(spec)
}

/// `schema`, which is a JSON Schema of an object. One that names no type is taken as such, and said to be one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn object(mut schema: Map) -> Result<Map, String> {
    measure_object(&schema, ENTRY).map_err(|excess| format!("cannot be taken: {excess}"))?;
    match schema.get("type") {
        None => {
            schema.insert("type".to_owned(), Value::from("object"));
        }
        Some(Value::String(kind)) if kind == "object" => (),
        Some(kind) => return Err(format!("has the type {kind} where only `object` can be")),
    }
    match Schema::new(&Value::Object(schema.clone())) {
        Ok(_) => Ok(schema),
        Err(error) => Err(format!("is no JSON Schema: {}", cut(&error, 300))),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::tool::Effect;
    use serde_json::json;

    use super::*;

    fn tools(value: Value) -> Vec<Tool> {
        serde_json::from_value(value).expect("tools")
    }

    #[test]
    fn hints_decide_the_effect_and_unknown_is_manual() {
        let (specs, left_out) = read(tools(json!([
            { "name": "read", "inputSchema": {}, "annotations": { "readOnlyHint": true, "title": "Read it" } },
            { "name": "put", "title": "Put", "inputSchema": { "type": "object" }, "annotations": { "idempotentHint": true, "destructiveHint": true } },
            { "name": "write", "description": "Writes", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": false } },
            { "name": "unknown", "inputSchema": { "type": "object" } },
        ])));
        assert_eq!(left_out, []);
        let seen: Vec<_> = specs.iter().map(|spec| (spec.name.as_str(), spec.effect)).collect();
        assert_eq!(
            seen,
            [("read", Effect::Safe), ("put", Effect::Safe), ("write", Effect::Manual), ("unknown", Effect::Manual)]
        );
        assert_eq!((specs[0].title.as_deref(), specs[1].title.as_deref()), (Some("Read it"), Some("Put")));
        assert_eq!(specs[0].input_schema, Map::from_iter([("type".to_owned(), json!("object"))]));
        assert_eq!((specs[1].annotations.destructive, specs[2].annotations.read_only), (Some(true), Some(false)));
    }

    #[test]
    fn lies_are_left_out_with_their_reasons() {
        let (specs, left_out) = read(tools(json!([
            { "name": "list", "inputSchema": { "type": "array" } },
            { "name": "wrong", "inputSchema": { "type": "object", "properties": { "a": { "type": "integre" } } } },
            { "name": "far", "inputSchema": { "type": "object", "properties": { "a": { "$ref": "http://example.com/schema" } } } },
            { "name": "two words", "inputSchema": {} },
            { "name": "twice", "inputSchema": {} },
            { "name": "twice", "inputSchema": {} },
            { "name": "half", "inputSchema": {}, "outputSchema": { "type": "nothing" } },
        ])));
        let offered: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(offered, ["twice", "half"]);
        let names: Vec<_> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["list", "wrong", "far", "two words", "twice", "half (its `outputSchema` alone)"]);
        assert!(left_out.iter().all(|(_, reason)| !reason.is_empty()));
    }

    #[test]
    fn a_schema_that_no_request_to_a_model_has_room_for_is_left_out() {
        let described = |length: usize| json!({ "properties": { "a": { "description": "x".repeat(length) } } });
        let (specs, left_out) = read(tools(json!([
            { "name": "long", "inputSchema": described(MOST_SCHEMA) },
            { "name": "fits", "inputSchema": described(MOST_SCHEMA - 1024) },
        ])));
        assert_eq!(specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["fits"]);
        let [(name, reason)] = &left_out[..] else { panic!("one is left out, not {}", left_out.len()) };
        assert!(name == "long" && reason.contains("may have 262144"), "{reason}");
    }

    #[test]
    fn a_flood_of_tools_is_bounded() {
        let many: Vec<_> = (0..600).map(|n| json!({ "name": format!("t{n}"), "inputSchema": {} })).collect();
        let (specs, left_out) = read(tools(Value::Array(many)));
        assert_eq!((specs.len(), left_out.len()), (512, 88));
    }
}
