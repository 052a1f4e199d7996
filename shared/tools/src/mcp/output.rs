//! Results of a server as outputs of ours.

use dormouse_json::Schema;
use dormouse_ports::Map;
use dormouse_ports::tool::{ToolContent, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::Deserialize;
use serde_json::Value;

use crate::text::cut;

/// Bytes of a block that is none that are shown.
const MOST_QUOTED: usize = 16 * 1024;

/// The output that `result` stands for.
pub(super) fn read(result: CallToolResult) -> ToolOutput {
    // A server that says the value in words as well says it all there.
    let has_words = result.content.iter().any(|block| matches!(block, ContentBlock::Text(_)));
    let mut content: Vec<ToolContent> = result.content.into_iter().map(block).collect();
    if let Some(value) = result.structured_content.as_ref().filter(|_| !has_words) {
        content.push(ToolContent::text(value.to_string()));
    }
    let is_error = result.is_error.unwrap_or(false);
    ToolOutput { content, structured: result.structured_content, is_error, ..ToolOutput::default() }
}

/// The result in `value`, of which a part is not as the protocol has it. The call has ended, and what it says is not lost
/// for that: such a block is shown as it stands. `None` where there is no list of blocks.
pub(super) fn in_parts(value: &Value) -> Option<CallToolResult> {
    let blocks = value.get("content")?.as_array()?.iter().map(|block| {
        ContentBlock::deserialize(block).or_else(|_| without_notes(block)).unwrap_or_else(|_| {
            ContentBlock::text(format!(
                "[a block that is none of the protocol: {}]",
                cut(&block.to_string(), MOST_QUOTED)
            ))
        })
    });
    let mut result = CallToolResult::success(blocks.collect());
    result.is_error = value.get("isError").map(is_failure);
    result.structured_content = value.get("structuredContent").cloned();
    Some(result)
}

/// True for what some servers write as `isError` in the place of `true`; what does not say that it is none is a failure.
fn is_failure(said: &Value) -> bool {
    match said {
        Value::Null => false,
        Value::Bool(is_so) => *is_so,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !["", "0", "false"].contains(&text.trim().to_ascii_lowercase().as_str()),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// `block` without what it says beside its content.
fn without_notes(block: &Value) -> serde_json::Result<ContentBlock> {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.retain(|name, _| !["annotations", "_meta", "icons", "size"].contains(&name.as_str()));
    }
    serde_json::from_value(block)
}

fn block(block: ContentBlock) -> ToolContent {
    match block {
        ContentBlock::Text(text) => ToolContent::text(text.text),
        ContentBlock::Image(image) => ToolContent::Image { data: image.data, media_type: image.mime_type },
        ContentBlock::Audio(audio) => ToolContent::text(format!(
            "[{} bytes of Base64 sound, {}, which cannot be shown]",
            audio.data.len(),
            audio.mime_type
        )),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(link) => ToolContent::ResourceLink {
            uri: link.uri.clone(),
            name: Some(link.name.clone()),
            media_type: link.mime_type.clone(),
            description: link.description.clone(),
        },
        other => {
            ToolContent::text(format!("[a block of a kind that is not known: {}]", cut(&format!("{other:?}"), 200)))
        }
    }
}

fn resource(contents: ResourceContents) -> ToolContent {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => ToolContent::text(text),
        ResourceContents::BlobResourceContents { mime_type: Some(media_type), blob, .. }
            if media_type.starts_with("image/") =>
        {
            ToolContent::Image { data: blob, media_type }
        }
        ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
            ToolContent::ResourceLink { uri, name: None, media_type: mime_type, description: None }
        }
        _ => ToolContent::text("[an embedded resource of a kind that is not known]"),
    }
}

/// Bytes of `output` as it stands.
pub(super) fn size(output: &ToolOutput) -> usize {
    let blocks = output.content.iter().map(|block| match block {
        ToolContent::Text { text } => text.len(),
        ToolContent::Image { data, .. } => data.len(),
        ToolContent::ResourceLink { uri, description, .. } => uri.len() + description.as_ref().map_or(0, String::len),
    });
    blocks.sum()
}

/// Checks the value of `output` against the schema that was promised. A failure promises nothing.
///
/// # Errors
/// What is wrong.
pub(super) fn keeps(output: &ToolOutput, schema: Option<&Map>) -> Result<(), String> {
    let Some(schema) = schema.filter(|_| !output.is_error) else { return Ok(()) };
    let Some(value) = &output.structured else {
        return Err("it has no structured value, which its `outputSchema` promises".to_owned());
    };
    let Ok(schema) = Schema::new(&Value::Object(schema.clone())) else { return Ok(()) };
    match schema.mistakes(value, 1).first() {
        None => Ok(()),
        Some(mistake) => Err(cut(&format!("its structured value does not fit its `outputSchema`: {mistake}"), 500)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(value: Value) -> ToolOutput {
        read(serde_json::from_value(value).expect("a result"))
    }

    #[test]
    fn every_block_has_a_form() {
        let output = output(json!({ "isError": true, "content": [
            { "type": "text", "text": "hello" },
            { "type": "image", "data": "AQID", "mimeType": "image/png" },
            { "type": "audio", "data": "AQID", "mimeType": "audio/wav" },
            { "type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain" },
            { "type": "resource", "resource": { "uri": "file:///b", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "file:///c", "blob": "AQ==", "mimeType": "application/zip" } },
        ]}));
        let text = |text: &str| ToolContent::text(text);
        assert!(output.is_error);
        assert_eq!(output.content[0], text("hello"));
        assert_eq!(
            output.content[1],
            ToolContent::Image { data: "AQID".to_owned(), media_type: "image/png".to_owned() }
        );
        assert!(
            matches!(&output.content[2], ToolContent::Text { text } if text.contains("4 bytes of Base64 sound, audio/wav"))
        );
        assert!(matches!(&output.content[3], ToolContent::ResourceLink { name: Some(name), .. } if name == "a"));
        assert_eq!(output.content[4], text("inside"));
        assert!(matches!(&output.content[5], ToolContent::ResourceLink { uri, .. } if uri == "file:///c"));
    }

    #[test]
    fn a_block_that_is_none_is_shown_and_the_others_are_kept() {
        let value = json!({ "isError": true, "structuredContent": { "n": 1 }, "content": [
            { "type": "text", "text": "hello", "annotations": "many" },
            { "type": "resource_link", "uri": "file:///a" },
            { "text": "sunny" },
        ]});
        assert!(serde_json::from_value::<CallToolResult>(value.clone()).is_err());
        let output = read(in_parts(&value).expect("a result"));
        assert_eq!((output.is_error, &output.structured), (true, &Some(json!({ "n": 1 }))));
        assert_eq!(output.content[0], ToolContent::text("hello"));
        for (block, shown) in [(1, r#""uri":"file:///a""#), (2, r#"{"text":"sunny"}"#)] {
            assert!(matches!(&output.content[block], ToolContent::Text { text } if text.contains(shown)), "{output:?}");
        }
        assert!(in_parts(&json!({ "content": "sunny" })).is_none() && in_parts(&json!({ "text": "sunny" })).is_none());
    }

    #[test]
    fn a_failure_that_is_no_boolean_is_one() {
        for (said, is_error) in
            [(json!("true"), true), (json!("yes"), true), (json!(1), true), (json!("False"), false), (json!(0), false)]
        {
            let value = json!({ "isError": said, "content": [] });
            assert!(serde_json::from_value::<CallToolResult>(value.clone()).is_err(), "{said}");
            assert_eq!(read(in_parts(&value).expect("a result")).is_error, is_error, "{said}");
        }
    }

    #[test]
    fn a_value_alone_is_shown_as_json() {
        let output = output(json!({ "structuredContent": { "n": 1 } }));
        assert_eq!(output.content, [ToolContent::text(r#"{"n":1}"#)]);
    }

    #[test]
    fn a_value_beside_what_is_no_text_is_shown_as_json() {
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        let said = |content: Value| output(json!({ "structuredContent": { "n": 1 }, "content": content })).content;
        assert_eq!(said(json!([link]))[1..], [ToolContent::text(r#"{"n":1}"#)]);
        let sound = json!({ "type": "audio", "data": "AQID", "mimeType": "audio/wav" });
        assert_eq!(said(json!([sound]))[1..], [ToolContent::text(r#"{"n":1}"#)]);
        assert_eq!(said(json!([link, { "type": "text", "text": "n is 1" }])).len(), 2);
    }

    #[test]
    fn a_promise_that_is_not_kept_is_noticed() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let Value::Object(schema) = schema else { panic!("an object") };
        let kept = |value: Value| keeps(&output(value), Some(&schema));
        assert_eq!(kept(json!({ "content": [], "structuredContent": { "n": 1 } })), Ok(()));
        assert!(kept(json!({ "content": [], "structuredContent": { "n": "one" } })).is_err());
        assert!(kept(json!({ "content": [] })).is_err());
        assert_eq!(kept(json!({ "content": [], "isError": true })), Ok(()));
    }
}
