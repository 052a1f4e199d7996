use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use crate::wire::{Assembler, Emit, Malformed, StreamFault, StreamProgress};

/// Puts the events of a message together.
#[derive(Debug, Default)]
pub(super) struct BedrockEvents {
    root: Map,
    /// By index, and by how often that began before.
    entries: BTreeMap<(u64, u64), GrowingBlock>,
}

/// An entry of content as it grows.
#[derive(Debug)]
enum GrowingBlock {
    Text(String),
    ToolUse { fields: Map, input: String },
    Reasoning { text: String, signature: Option<String> },
    Redacted(String),
}

impl Assembler for BedrockEvents {
    fn take(&mut self, name: &str, mut data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let index = data.get("contentBlockIndex").and_then(Value::as_u64).unwrap_or_default();
        match name {
            "contentBlockStart" => {
                if let Some(Value::Object(fields)) = data.pointer_mut("/start/toolUse").map(Value::take) {
                    let place = self.place(index, |_| false);
                    self.entries.insert(place, GrowingBlock::ToolUse { fields, input: String::new() });
                }
            }
            "contentBlockDelta" => self.delta(index, &data["delta"], emit)?,
            "messageStop" | "metadata" => {
                let Value::Object(fields) = data else { return Err(malformed("an event is no object")) };
                self.root.extend(fields);
                // Nothing comes behind both of them.
                let is_over = self.is_complete() && (name == "metadata" || self.root.contains_key("usage"));
                return Ok(if is_over { StreamProgress::Done } else { StreamProgress::More });
            }
            "exception" => return Err(StreamFault::Reported(data)),
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        let mut root = self.root;
        let content: Vec<_> = self.entries.into_values().map(GrowingBlock::whole).collect();
        root.insert("output".to_owned(), json!({ "message": { "role": "assistant", "content": content } }));
        if let Some(mut failed) = failed {
            root.insert("stopReason".to_owned(), Value::from("error"));
            root.insert("error".to_owned(), failed["error"].take());
        }
        Value::Object(root)
    }

    fn has_begun(&self) -> bool {
        !self.entries.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.root.contains_key("stopReason")
    }
}

impl BedrockEvents {
    /// Place under `index` of the block that began last, if a piece `fits` it; else that of a new one.
    fn place(&self, index: u64, fits: impl Fn(&GrowingBlock) -> bool) -> (u64, u64) {
        match self.entries.range((index, 0)..=(index, u64::MAX)).next_back() {
            Some((place, block)) if fits(block) => *place,
            Some(((_, again), _)) => (index, again + 1),
            None => (index, 0),
        }
    }

    /// The input of the call that began last under `index`.
    fn input(&mut self, index: u64) -> Option<&mut String> {
        let blocks = self.entries.range_mut((index, 0)..=(index, u64::MAX));
        blocks.rev().find_map(|(_, block)| match block {
            GrowingBlock::ToolUse { input, .. } => Some(input),
            GrowingBlock::Text(_) | GrowingBlock::Reasoning { .. } | GrowingBlock::Redacted(_) => None,
        })
    }

    fn delta(&mut self, index: u64, delta: &Value, emit: &mut Emit<'_>) -> Result<(), StreamFault> {
        // An empty piece says nothing, and begins no block.
        let text = |place: &str| delta.pointer(place).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(piece) = text("/text") {
            emit(DeltaKind::Content, piece);
            let place = self.place(index, |block| matches!(block, GrowingBlock::Text(_)));
            let entry = self.entries.entry(place).or_insert_with(|| GrowingBlock::Text(String::new()));
            if let GrowingBlock::Text(known) = entry {
                known.push_str(piece);
            }
        }
        if let Some(piece) = text("/toolUse/input") {
            let input = self.input(index).ok_or_else(|| malformed("a piece of a call that has not begun"))?;
            input.push_str(piece);
        }
        if let Some(data) = text("/reasoningContent/redactedContent") {
            let place = self.place(index, |block| matches!(block, GrowingBlock::Redacted(_)));
            self.entries.insert(place, GrowingBlock::Redacted(data.to_owned()));
        }
        self.reasoning(index, text("/reasoningContent/text"), text("/reasoningContent/signature"), emit);
        Ok(())
    }

    fn reasoning(&mut self, index: u64, piece: Option<&str>, sign: Option<&str>, emit: &mut Emit<'_>) {
        if piece.is_none() && sign.is_none() {
            return;
        }
        let place = self.place(index, |block| matches!(block, GrowingBlock::Reasoning { .. }));
        let entry = self
            .entries
            .entry(place)
            .or_insert_with(|| GrowingBlock::Reasoning { text: String::new(), signature: None });
        if let GrowingBlock::Reasoning { text, signature } = entry {
            if let Some(piece) = piece {
                emit(DeltaKind::Reasoning, piece);
                text.push_str(piece);
            }
            if let Some(sign) = sign {
                signature.get_or_insert_default().push_str(sign);
            }
        }
    }
}

impl GrowingBlock {
    /// An input that is no JSON stays a text: it is not taken for arguments.
    fn whole(self) -> Value {
        match self {
            Self::Text(text) => json!({ "text": text }),
            Self::ToolUse { mut fields, input } => {
                let input = match input.as_str() {
                    "" => json!({}),
                    text => {
                        dormouse_json::read(text.as_bytes(), dormouse_json::ENTRY).unwrap_or_else(|_| Value::from(text))
                    }
                };
                fields.insert("input".to_owned(), input);
                json!({ "toolUse": fields })
            }
            Self::Reasoning { text, signature: None } => {
                json!({ "reasoningContent": { "reasoningText": { "text": text } } })
            }
            Self::Reasoning { text, signature: Some(signature) } => {
                json!({ "reasoningContent": { "reasoningText": { "text": text, "signature": signature } } })
            }
            Self::Redacted(data) => json!({ "reasoningContent": { "redactedContent": data } }),
        }
    }
}

fn malformed(what: &str) -> StreamFault {
    StreamFault::Malformed(Malformed::new(what))
}
