//! What a notification says.

use dormouse_ports::{DueAction, Map, PausedInvocation};
use serde_json::{Value, json};

/// The most characters of a description that are sent: the page has all of it.
const LONGEST: usize = 600;
/// The most characters of the name of somebody who is asked.
const LONGEST_PART: usize = 100;

/// What is sent of the description of a pause. Where that is about calls of tools, its last line may say what a tool answered,
/// or what was wrong with what a person gave: that is on the page alone.
fn sent(metadata: &Map) -> &str {
    let text = metadata.get("description").and_then(Value::as_str).unwrap_or_default();
    let says = |name: &str, field: &str| {
        let mut all = metadata.get(name).and_then(Value::as_object).into_iter().flat_map(Map::values);
        all.any(|one| one.get(field).is_some())
    };
    let of_calls = says("calls", "known") || says("calls", "unfit");
    let of_one_question = metadata.get("questions").and_then(Value::as_object).is_some_and(|all| all.len() == 1);
    match text.rsplit_once('\n') {
        Some((question, _)) if of_calls || (of_one_question && says("questions", "unfit")) => question,
        Some(_) | None => text,
    }
}

/// `text` in a line, without what could hide other text, and cut behind `most` characters.
fn line(text: &str, most: usize) -> String {
    let spaced = text.chars().map(|c| if c == '\n' { ' ' } else { c });
    let seen: String = spaced.filter(|c| !c.is_control() && !is_unseen(*c)).collect();
    let seen = seen.trim();
    match seen.char_indices().nth(most) {
        Some((end, _)) => format!("{} …", &seen[..end]),
        None => seen.to_owned(),
    }
}

/// True for what turns the direction of writing, and for what is not seen at all: fillers, and the tags and selectors in which
/// text can be hidden.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A notification.
pub(super) struct Notice<'n> {
    /// Its id: the same each time that it is sent.
    pub(super) id: String,
    /// The channel.
    pub(super) channel: String,
    /// The instant at which it was due.
    pub(super) due_at: String,
    /// For whom, where several are asked, and the page on which to answer.
    pub(super) links: Vec<(Option<String>, String)>,
    /// The pause.
    pub(super) paused: &'n PausedInvocation,
}

impl Notice<'_> {
    /// What is asked, as the pause describes it: in a line, without what could hide other text.
    pub(super) fn asked(&self) -> String {
        let metadata = self.paused.descriptor.metadata.as_ref();
        match line(metadata.map(sent).unwrap_or_default(), LONGEST) {
            text if text.is_empty() => format!("The agent {} waits for an answer", self.paused.graph),
            text => text,
        }
    }

    /// What happens when no answer comes.
    pub(super) fn default(&self) -> String {
        match self.paused.wake.end().map(|due| (&due.action, due.at)) {
            Some((DueAction::Resume(fields), at)) if fields.is_empty() => {
                format!("If nobody answers, it goes on by itself at {at}.")
            }
            Some((DueAction::Resume(_), at)) => {
                format!("If nobody answers until {at}, it goes on with the default that the page shows.")
            }
            Some((DueAction::Fail, at)) => format!("If nobody answers until {at}, it ends with an error."),
            Some((DueAction::Announce(_), _)) | None => "It waits for as long as nobody answers.".to_owned(),
        }
    }

    /// The subject of an e-mail.
    pub(super) fn subject(&self) -> String {
        format!("To answer: {}", self.asked().chars().take(120).collect::<String>())
    }

    /// The whole of it, as plain text.
    pub(super) fn text(&self) -> String {
        let links = self.links.iter().map(|(part, link)| match part {
            Some(part) => format!("Answer as {}: {link}\n", line(part, LONGEST_PART)),
            None => format!("Answer: {link}\n"),
        });
        let links: String = links.collect();
        let note = "Whoever has the link can answer this one question, without an account. Do not pass it on.";
        format!("{}\n\n{links}\n{}\n{note}\n", self.asked(), self.default())
    }

    /// The same for Slack; marks of Slack in texts of others mean nothing.
    pub(super) fn slack(&self) -> Value {
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let links = self.links.iter().map(|(part, link)| match part {
            Some(part) => {
                format!("<{link}|Answer as {}>", escaped(&line(part, LONGEST_PART)).replace('|', " "))
            }
            None => format!("<{link}|Look at it and answer>"),
        });
        let links = links.collect::<Vec<_>>().join(" · ");
        let text = format!("{}\n{links}\n{}", escaped(&self.asked()), escaped(&self.default()));
        json!({ "text": text, "unfurl_links": false, "unfurl_media": false })
    }

    /// The same for a program.
    pub(super) fn data(&self) -> Value {
        let links = self.links.iter().map(|(part, link)| json!({ "part": part, "url": link }));
        json!({
            "id": self.id,
            "channel": self.channel,
            "invocation_id": self.paused.invocation_id.as_str(),
            "graph": self.paused.graph,
            "generation": self.paused.generation,
            "due_at": self.due_at,
            "asked": self.asked(),
            "links": links.collect::<Vec<_>>(),
            "ends_at": self.paused.wake.end().map(|due| due.at.to_string()),
            "default": self.default(),
        })
    }
}
