use std::borrow::Cow;

use dormouse_ports::Map;
use dormouse_ports::model::DeltaKind;
use serde_json::{Value, json};

use super::response::{REASONING, REASONING_DETAILS, REFUSAL, older_call, pieces};
use crate::frames::ERROR;
use crate::wire::{Assembler, Emit, Malformed, StreamFault, StreamProgress};

/// Puts the chunks of a completion together (§8.1.6).
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Fields of the chunks themselves; the last value of each.
    root: Map,
    /// Other fields of the choice, such as `logprobs`.
    choice: Map,
    content: Option<String>,
    refusal: Option<String>,
    /// Reasoning, and the name under which it comes.
    reasoning: Option<(&'static str, String)>,
    /// The parts in which it goes back.
    details: Vec<Value>,
    /// In the order in which they began.
    calls: Vec<GrowingCall>,
    finish_reason: Option<Value>,
    has_begun: bool,
}

#[derive(Debug, Default)]
struct GrowingCall {
    index: u64,
    id: Value,
    name: String,
    arguments: String,
}

impl Assembler for Chunks {
    fn take(&mut self, name: &str, data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault> {
        let Value::Object(chunk) = data else {
            return Err(StreamFault::Malformed(Malformed::new("a chunk is no object")));
        };
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamFault::Reported(Value::Object(chunk)));
        }
        if name == ERROR {
            return Err(StreamFault::Reported(json!({ "error": chunk })));
        }
        for (name, value) in chunk {
            match (name.as_str(), value) {
                ("choices", Value::Array(choices)) => {
                    choices.into_iter().for_each(|choice| self.choice(choice, emit));
                }
                // The chunk of the counters has none.
                ("choices", Value::Null) => {}
                ("choices", _) => return Err(StreamFault::Malformed(Malformed::new("`choices` is no list"))),
                // Chunks before the last may say that there is none yet.
                ("usage", Value::Null) => {}
                (_, value) => {
                    self.root.insert(name, value);
                }
            }
        }
        Ok(StreamProgress::More)
    }

    fn whole(self: Box<Self>, failed: Option<Value>) -> Value {
        let mut root = self.root.clone();
        root.insert("object".to_owned(), Value::from("chat.completion"));
        root.insert("choices".to_owned(), json!([self.whole_choice(failed.is_some())]));
        if let Some(Value::Object(mut failed)) = failed {
            root.insert("error".to_owned(), failed.shift_remove("error").unwrap_or_default());
        }
        Value::Object(root)
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }
}

impl Chunks {
    fn choice(&mut self, choice: Value, emit: &mut Emit<'_>) {
        let Value::Object(mut choice) = choice else { return };
        if choice.get("index").and_then(Value::as_u64).unwrap_or_default() != 0 {
            return;
        }
        let message = choice.shift_remove("message");
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("delta", delta) => self.delta(&delta, emit),
                // Chunks before the last have none, or an empty one.
                ("finish_reason", reason) if reason.is_null() || reason == "" => {}
                ("finish_reason", reason) => self.finish_reason = Some(reason),
                (_, value) => {
                    self.choice.insert(name, value);
                }
            }
        }
        // Some servers send the answer whole in one event.
        if let Some(message) = message.filter(|_| self.is_empty()) {
            self.delta(&message, emit);
        }
    }

    /// True if nothing of the answer has come yet.
    fn is_empty(&self) -> bool {
        let has_text = [&self.content, &self.refusal].into_iter().flatten().any(|text| !text.is_empty());
        !has_text && self.reasoning.is_none() && self.calls.is_empty()
    }

    fn delta(&mut self, delta: &Value, emit: &mut Emit<'_>) {
        self.has_begun = true;
        for name in REASONING {
            if let Some(text) = delta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()) {
                let (_, reasoning) = self.reasoning.get_or_insert_with(|| (name, String::new()));
                reasoning.push_str(text);
                emit(DeltaKind::Reasoning, text);
                break;
            }
        }
        for (kind, text) in delta.get("content").map(pieces).unwrap_or_default() {
            match kind {
                DeltaKind::Content => self.content.get_or_insert_default().push_str(text),
                DeltaKind::Reasoning => {
                    self.reasoning.get_or_insert_with(|| (REASONING[0], String::new())).1.push_str(text);
                }
            }
            emit(kind, text);
        }
        if let Some(text) = delta.get(REFUSAL).and_then(Value::as_str) {
            self.refusal.get_or_insert_default().push_str(text);
            emit(DeltaKind::Content, text);
        }
        for piece in delta.get(REASONING_DETAILS).and_then(Value::as_array).into_iter().flatten() {
            self.detail(piece);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call);
        }
        if let Some(older) = older_call(delta) {
            self.call(&older);
        }
    }

    fn detail(&mut self, piece: &Value) {
        match self.details.last_mut().filter(|last| is_continued(last, piece)) {
            Some(last) => extend(last, piece),
            None => self.details.push(piece.clone()),
        }
    }

    fn call(&mut self, piece: &Value) {
        let function = piece.get("function").unwrap_or(&Value::Null);
        let arguments = arguments(function);
        let at = self.place_of(piece, function).unwrap_or_else(|| {
            let index = piece.get("index").and_then(Value::as_u64).unwrap_or(self.calls.len() as u64);
            self.calls.push(GrowingCall { index, ..GrowingCall::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        set(&mut call.id, piece.get("id"));
        call.add_name(function.get("name").and_then(Value::as_str).unwrap_or_default());
        // Some servers tell a call once more when it is whole.
        let is_told = call.arguments == arguments && call.is_whole();
        if !is_told {
            call.add_arguments(&arguments);
        }
    }

    /// The call that `piece` belongs to, if that has begun. Pieces of one call have its index, which servers leave out or give
    /// to several calls: with another id, or else with another name, begins another call. Some make up an id for each piece, and
    /// say the name once: what has an index and no name goes on with the call of that index. So does what has an index and no id,
    /// where the call has one and nothing but its name: that comes in pieces.
    fn place_of(&self, piece: &Value, function: &Value) -> Option<usize> {
        let index = piece.get("index").and_then(Value::as_u64);
        let id = piece.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let here = |call: &&GrowingCall| index.is_none_or(|index| index == call.index);
        if let Some(id) = id
            && let Some(at) = self.calls.iter().rposition(|call| here(&call) && call.id == id)
        {
            // Behind whole arguments only those of another call begin, which a server has given the same id.
            let call = &self.calls[at];
            let arguments = arguments(function);
            let begins = name.is_some() && arguments.trim_start().starts_with('{') && arguments != call.arguments;
            let is_other = begins && call.is_whole();
            return (!is_other).then_some(at);
        }
        let last = self.calls.iter().rposition(|call| here(&call))?;
        let call = &self.calls[last];
        let is_other = match (id, name) {
            (Some(_), _) if call.id.is_string() => name.is_some() || index.is_none(),
            (None, Some(_)) if index.is_some() && call.id.is_string() && call.arguments.is_empty() => false,
            (_, Some(name)) => !call.name.is_empty() && (call.name != name || index.is_none() || call.is_whole()),
            (_, None) => false,
        };
        (!is_other).then_some(last)
    }

    fn whole_choice(self, failed: bool) -> Value {
        let mut choice = self.choice;
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), self.content.map_or(Value::Null, Value::from));
        if let Some(refusal) = self.refusal {
            message.insert(REFUSAL.to_owned(), Value::from(refusal));
        }
        if let Some((name, reasoning)) = self.reasoning {
            message.insert(name.to_owned(), Value::from(reasoning));
        }
        if !self.details.is_empty() {
            message.insert(REASONING_DETAILS.to_owned(), Value::from(self.details));
        }
        if !self.calls.is_empty() {
            let mut calls = self.calls;
            calls.sort_by_key(|call| call.index);
            let calls: Vec<_> = calls.into_iter().map(GrowingCall::whole).collect();
            message.insert("tool_calls".to_owned(), Value::from(calls));
        }
        choice.insert("message".to_owned(), Value::Object(message));
        let reason = if failed { Value::from("error") } else { self.finish_reason.unwrap_or_default() };
        choice.insert("finish_reason".to_owned(), reason);
        Value::Object(choice)
    }
}

impl GrowingCall {
    /// True if nothing can follow its arguments.
    fn is_whole(&self) -> bool {
        self.arguments.trim_end().ends_with('}')
            && matches!(dormouse_json::read(self.arguments.as_bytes(), dormouse_json::ENTRY), Ok(Value::Object(_)))
    }

    /// Takes the name, or a piece of it before the arguments. Some servers repeat it, or send it empty.
    fn add_name(&mut self, piece: &str) {
        if self.name.is_empty() || self.name != piece && self.arguments.is_empty() {
            self.name.push_str(piece);
        }
    }

    /// Takes a piece of the arguments. Some servers begin each call with an object without fields, behind which nothing could stand.
    fn add_arguments(&mut self, piece: &str) {
        if self.arguments == "{}" && piece.starts_with('{') {
            self.arguments.clear();
        }
        self.arguments.push_str(piece);
    }

    fn whole(self) -> Value {
        // A name of nothing is none that exists, which the model is told.
        let function = json!({ "name": self.name, "arguments": self.arguments });
        json!({ "id": self.id, "type": "function", "function": function })
    }
}

/// True for a `piece` of the same words as `detail`: what is sealed comes whole.
fn is_continued(detail: &Value, piece: &Value) -> bool {
    let kind = piece.get("type").and_then(Value::as_str);
    let is_in_pieces = matches!(kind, Some("reasoning.text" | "reasoning.summary"));
    is_in_pieces && ["type", "index"].into_iter().all(|name| detail.get(name) == piece.get(name))
}

/// Adds the words of `piece` to `detail`, and what that has not yet.
fn extend(detail: &mut Value, piece: &Value) {
    let Some(detail) = detail.as_object_mut() else { return };
    for (name, value) in piece.as_object().into_iter().flatten() {
        match detail.get_mut(name) {
            Some(Value::String(known)) if matches!(name.as_str(), "text" | "summary") => {
                known.push_str(value.as_str().unwrap_or_default());
            }
            Some(known) if !known.is_null() => {}
            Some(_) | None => {
                detail.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The arguments of a piece, which some servers send as an object.
fn arguments(function: &Value) -> Cow<'_, str> {
    match function.get("arguments") {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(whole @ Value::Object(_)) => Cow::Owned(whole.to_string()),
        _ => Cow::Borrowed(""),
    }
}

/// The first text counts: some servers repeat it, or send it empty.
fn set(known: &mut Value, piece: Option<&Value>) {
    if let (Value::Null, Some(text)) =
        (&*known, piece.filter(|piece| piece.as_str().is_some_and(|text| !text.is_empty())))
    {
        *known = text.clone();
    }
}
