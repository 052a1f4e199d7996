//! What a session remembers: notes that its agents write and are told again, in every later run of it and also when the
//! conversation was made shorter. They are part of what the session keeps, and go with it.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use serde_json::{Value, json};

use crate::graph::ToolPart;
use crate::names::REMEMBER;
use crate::workspace::{AgentDefinition, Exposure, ToolOrigin, Workspace, WorkspaceKind};

/// Name of its source, under which a session keeps the notes.
pub(crate) const SOURCE: &str = "session_memory";
/// Field of what the source notes.
const NOTES: &str = "notes";
/// The most notes of a session.
const MOST_NOTES: usize = 50;
/// Bytes of all notes together, their names among them.
const LONGEST: usize = 16 * 1024;

/// The tool by which agents write notes for later runs of their session.
#[derive(Clone, Copy, Debug)]
pub struct SessionMemory;

impl SessionMemory {
    /// The source, where the settings of `workspace` switch it on; `None` in a `chat` workspace.
    pub fn of(workspace: &Workspace) -> Option<ToolPart> {
        let settings = &workspace.settings;
        let is_on = settings.engine.session_memory && settings.kind == WorkspaceKind::Project;
        is_on.then(|| ToolPart {
            name: SOURCE.to_owned(),
            origin: ToolOrigin::Native,
            expose: Exposure::default(),
            source: Arc::new(Self),
        })
    }

    /// Gives the tool to `agent`, unless its definition disallows that.
    pub fn give_to(agent: &mut AgentDefinition) {
        agent.tools.native.push(REMEMBER.to_owned());
    }
}

#[async_trait]
impl ToolSource for SessionMemory {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 64, "description": "What the note is about" },
                "text": { "type": "string", "maxLength": 4000, "description": "The note; empty to forget it" }
            },
            "required": ["name", "text"],
            "additionalProperties": false
        });
        let mut spec = ToolSpec::new(REMEMBER);
        spec.description =
            "Keeps a note for the whole of this session: you are told it again with every later message, \
                            also when older messages are taken away. A note of the same name is replaced."
                .to_owned();
        // It changes nothing but the session, and the same call again changes nothing: nobody is asked for it.
        spec.effect = Effect::Safe;
        spec.input_schema = schema.as_object().cloned().unwrap_or_default();
        Ok(vec![spec])
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default().trim();
        let (name, text) = (argument("name"), argument("text"));
        let mut notes = call.notes.get(NOTES).and_then(Value::as_object).cloned().unwrap_or_default();
        let (note, said) = if text.is_empty() {
            notes.shift_remove(name);
            (Value::Null, format!("`{name}` is forgotten"))
        } else {
            notes.insert(name.to_owned(), text.into());
            (text.into(), format!("`{name}` is remembered in this session"))
        };
        if !text.is_empty() && (notes.len() > MOST_NOTES || size(&notes) > LONGEST) {
            let message = format!(
                "a session remembers {MOST_NOTES} notes of {LONGEST} bytes together: forget or shorten one before"
            );
            return Ok(ToolReply::Done(ToolOutput::error(message)));
        }
        let patch = Map::from_iter([(NOTES.to_owned(), Value::Object(Map::from_iter([(name.to_owned(), note)])))]);
        Ok(ToolReply::Done(ToolOutput::text(said).noting(patch)))
    }
}

fn size(notes: &Map) -> usize {
    notes.iter().map(|(name, text)| name.len() + text.as_str().map_or(0, str::len)).sum()
}

/// What agents are told of `noted`, the notes of the source; `None` where there are none.
pub(crate) fn told(noted: &Map) -> Option<String> {
    let notes = noted.get(NOTES)?.as_object()?;
    let mut room = LONGEST;
    let mut told = String::new();
    for (name, text) in notes {
        let text = text.as_str().unwrap_or_default();
        // Calls that ran side by side may have written more together than each of them could know.
        match room.checked_sub(name.len() + text.len()) {
            Some(left) => {
                room = left;
                told.push_str(&format!("\n{name}: {text}"));
            }
            None => told.push_str(&format!("\n[`{name}` is left out: it is too long beside the others]")),
        }
    }
    (!told.is_empty()).then(|| format!("<session_memory>{told}\n</session_memory>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remember(notes: &mut Map, name: &str, text: &str) -> bool {
        let arguments = json!({ "name": name, "text": text }).as_object().cloned().expect("an object");
        let mut call = ToolCall::new("1", REMEMBER, arguments);
        call.notes = notes.clone();
        let reply = futures::executor::block_on(SessionMemory.call(&call)).expect("a reply");
        let ToolReply::Done(output) = reply else { panic!("{reply:?}") };
        let mut all = Map::from_iter([(SOURCE.to_owned(), Value::Object(std::mem::take(notes)))]);
        if !output.is_error {
            crate::graph::note(&mut all, SOURCE, output.notes);
        }
        *notes = all[SOURCE].as_object().cloned().expect("notes");
        !output.is_error
    }

    #[test]
    fn notes_are_replaced_forgotten_and_bounded() {
        let mut notes = Map::new();
        assert!(remember(&mut notes, "colour", "red") && remember(&mut notes, "colour", "blue"));
        assert!(remember(&mut notes, "size", "small") && remember(&mut notes, "size", ""));
        assert_eq!(told(&notes).as_deref(), Some("<session_memory>\ncolour: blue\n</session_memory>"));
        let long = "x".repeat(4000);
        let kept = (0..6).filter(|number| remember(&mut notes, &number.to_string(), &long)).count();
        assert_eq!(kept, 4);
        assert!(remember(&mut notes, "0", "") && remember(&mut notes, "5", &long), "there is room again");
        assert!(told(&notes).expect("text").len() < LONGEST + 1000);
    }

    #[test]
    fn a_session_has_only_so_many_notes() {
        let mut notes = Map::new();
        let kept = (0..60).filter(|number| remember(&mut notes, &number.to_string(), "short")).count();
        assert_eq!(kept, 50);
        assert!(remember(&mut notes, "7", "another text"), "a note of the same name is no other one");
        assert!(remember(&mut notes, "8", "") && remember(&mut notes, "59", "short"), "there is room again");
        assert!(!remember(&mut notes, "8", "short"));
    }

    #[test]
    fn nobody_is_asked_for_a_note() {
        let specs = futures::executor::block_on(SessionMemory.list()).expect("a list");
        assert!(specs.iter().all(|spec| spec.effect == Effect::Safe && !spec.annotations.may_change()), "{specs:?}");
    }

    #[test]
    fn what_is_too_much_together_is_not_told() {
        let long: Map = (0..6).map(|number| (number.to_string(), "x".repeat(4000).into())).collect();
        let told = told(&Map::from_iter([(NOTES.to_owned(), Value::Object(long))])).expect("text");
        assert!(told.len() < LONGEST + 1000 && told.contains("[`5` is left out"), "{told}");
    }
}
