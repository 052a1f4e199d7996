//! Output of the commands: an aligned table or lines for people, one JSON document for scripts.

use std::io::{self, Write};

use dormouse_maintenance::doctor::in_words;
use dormouse_ports::{FanIn, InvocationRecord, InvocationStatus, Map, PausedInvocation, SHORTFALL, Shortfall};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::hint::AnswerCommands;
use crate::terminal::{self, has_styles, plain};

const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";
/// Longest question, and longest call, that stands below a line of `pending`, in characters.
const BELOW: usize = 300;
/// Longest JSON that stands in one line, in characters.
const LINE: usize = 100;

/// An invocation in `pending`: a line, and below it what is asked and the commands that answer.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) invocation_id: String,
    pub(crate) graph: String,
    pub(crate) status: &'static str,
    pub(crate) since: Timestamp,
    pub(crate) waits_for: String,
    /// Question, in the words of its author.
    pub(crate) description: Option<String>,
    /// The calls of tools that are asked about, with their arguments, and what tools ask, with the fields of an answer.
    pub(crate) calls: Vec<String>,
    pub(crate) due_at: Option<Timestamp>,
    /// What time does then.
    pub(crate) then: Option<String>,
    /// The commands that answer it, if it sleeps.
    pub(crate) answer_with: AnswerCommands,
}

impl Row {
    pub(crate) fn into_json(self) -> Value {
        let (first, others) = self.answer_with.first();
        json!({ "invocation_id": self.invocation_id, "graph": self.graph, "status": self.status, "since": self.since,
            "waits_for": self.waits_for,
            "description": self.description, "calls": self.calls, "due_at": self.due_at, "then": self.then,
            "answer_with": first, "or_with": others, "fill_in": self.answer_with.template })
    }

    pub(crate) const HEAD: [&str; 6] = ["INVOCATION", "GRAPH", "STATUS", "SLEPT", "DUE", "WAITS FOR"];

    pub(crate) fn cells(&self, now: Timestamp) -> [String; 6] {
        let due = self.due_at.map(|at| match &self.then {
            Some(then) => format!("{} {then}", moment(at)),
            None => moment(at),
        });
        [
            self.invocation_id.clone(),
            self.graph.clone(),
            self.status.to_owned(),
            in_words(now.duration_since(self.since)),
            due.unwrap_or_else(|| "-".to_owned()),
            self.waits_for.clone(),
        ]
    }

    /// What stands below the line.
    pub(crate) fn below(&self) -> Vec<String> {
        // Lines of strangers are none of this list: one of them might look like a command.
        let question = self.description.iter().map(|text| text.lines().collect::<Vec<_>>().join(" — "));
        let asked = question.chain(self.calls.iter().cloned()).map(|line| bounded(&line, BELOW));
        let template = self.answer_with.template.iter().map(|template| format!("fill in: {template}"));
        asked.chain(self.answer_with.ready.iter().cloned()).chain(template).collect()
    }
}

/// The beginning of `text`, as far as `most` characters hold it.
pub(crate) fn bounded(text: &str, most: usize) -> String {
    let mut words: String = text.chars().take(most).collect();
    if words.len() < text.len() {
        words.push('…');
    }
    words
}

/// `at` to the second, as people read it in a table.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Status of an invocation, in one word.
pub(crate) fn status(record: &InvocationRecord) -> &'static str {
    match &record.status {
        InvocationStatus::Suspended => "asleep",
        InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => "claimed",
        InvocationStatus::Completed { state } if shortfall(state).is_some() => "failed",
        InvocationStatus::Completed { .. } => "completed",
        InvocationStatus::Errored(_) => "failed",
        InvocationStatus::Canceled(_) => "canceled",
    }
}

/// Reason for which an invocation that reached END, with `state`, did not come to what it was asked for: its task has failed.
fn shortfall(state: &Map) -> Option<Shortfall> {
    Shortfall::deserialize(state.get(SHORTFALL)?).ok()
}

/// Fields of an invocation that concern its operator.
pub(crate) fn invocation(record: &InvocationRecord) -> Value {
    let paused = &record.paused;
    let (state, failure, claimed_until) = match &record.status {
        InvocationStatus::Suspended | InvocationStatus::Accepted { .. } => {
            (paused.outermost_state().clone(), Value::Null, None)
        }
        InvocationStatus::Resuming(claim) => (paused.outermost_state().clone(), Value::Null, Some(claim.until)),
        InvocationStatus::Completed { state } => {
            let failure = shortfall(state).map(|short| json!({ "category": short.code, "message": short.message }));
            (state.clone(), failure.unwrap_or_default(), None)
        }
        InvocationStatus::Errored(failure) => (Map::new(), json!(failure), None),
        InvocationStatus::Canceled(cancellation) => (Map::new(), json!(cancellation), None),
    };
    // What it waited for last is no news of one that has ended.
    let waiting = match &record.status {
        InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => Some(paused),
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => None,
    };
    json!({
        "invocation_id": paused.invocation_id, "status": status(record), "graph": paused.graph,
        "session_id": paused.session_id, "correlation_id": paused.correlation_id, "generation": paused.generation,
        "since": paused.suspended_at, "node": paused.suspended_at_node.join("/"),
        "waits_for": waiting.map(|paused| &paused.descriptor),
        "answers": waiting.and_then(|paused| paused.fan_in.as_ref()).map(answers),
        "wake": waiting.map(|paused| &paused.wake), "schema_version": paused.schema_version,
        "claimed_until": claimed_until, "failure": failure, "state": state,
    })
}

/// The signals that are still to come.
pub(crate) fn waits_for(paused: &PausedInvocation) -> String {
    let to_come = paused.awaited().filter(|id| {
        let part = paused.fan_in.as_ref().and_then(|fan_in| Some((fan_in, fan_in.part_of(id)?)));
        part.is_none_or(|(fan_in, part)| !fan_in.has_answered(part))
    });
    to_come.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Description of the wait, if its author gave one.
pub(crate) fn description(paused: &PausedInvocation) -> Option<String> {
    paused.descriptor.metadata.as_ref()?.get("description")?.as_str().map(str::to_owned)
}

/// Parts of a fan-in that have answered, and those that have not.
fn answers(fan_in: &FanIn) -> Value {
    json!({ "answered": fan_in.answers, "missing": fan_in.missing().collect::<Vec<_>>(), "until": fan_in.until,
        "counts": fan_in.counts, "veto": fan_in.veto })
}

/// `value` as people read it: a text as it is, names in a row, several sentences or commands a line each, anything else as
/// JSON, over several lines if it is long.
fn lines_of(value: &Value) -> Vec<String> {
    let names = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    if let Some(lines) = names.as_ref().filter(|names| names.iter().any(|name| name.contains(' '))) {
        return lines.iter().map(|&line| line.to_owned()).collect();
    }
    let line = match (value.as_str(), names) {
        (Some(text), _) => text.to_owned(),
        (None, Some(names)) if !names.is_empty() => names.join(", "),
        (None, _) => value.to_string(),
    };
    let is_long = line.chars().count() > LINE && (value.is_object() || value.is_array());
    match serde_json::to_string_pretty(value) {
        Ok(pretty) if is_long => pretty.lines().map(str::to_owned).collect(),
        Ok(_) | Err(_) => vec![line],
    }
}

/// Writes to the standard output, with colours only where a terminal shows them.
#[derive(Debug)]
pub(crate) struct Printer {
    json: bool,
    coloured: bool,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, coloured: !json && has_styles(&io::stdout()) }
    }

    pub(crate) fn json(&self, value: &Value) -> io::Result<()> {
        self.put(&terminal::json(value, true))
    }

    /// A document in one line, where several follow each other.
    pub(crate) fn json_line(&self, value: &Value) -> io::Result<()> {
        self.put(&terminal::json(value, false))
    }

    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.put(&plain(line))
    }

    /// A line that is no output of the command, before its complaint.
    pub(crate) fn aside(&self, line: &str) -> io::Result<()> {
        writeln!(io::stderr().lock(), "{}", plain(line))
    }

    pub(crate) fn complain(&self, line: &str) -> io::Result<()> {
        writeln!(io::stderr().lock(), "error: {}", plain(line))
    }

    /// A line as it is: what is in it of others was made plain.
    fn put(&self, line: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{line}")
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        let text = plain(text);
        if self.coloured { format!("{colour}{text}{PLAIN}") } else { text }
    }

    pub(crate) fn table<const N: usize>(&self, head: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        let lines = aligned(&head.map(str::to_owned), rows);
        self.put(&self.paint(BOLD, &lines[0]))?;
        lines[1..].iter().try_for_each(|line| self.line(line))
    }

    /// A table in which lines of their own may stand below each line.
    pub(crate) fn listing<const N: usize>(
        &self,
        head: [&str; N],
        rows: Vec<([String; N], Vec<String>)>,
    ) -> io::Result<()> {
        let (cells, below): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let lines = aligned(&head.map(str::to_owned), &cells);
        self.put(&self.paint(BOLD, &lines[0]))?;
        for (line, below) in lines[1..].iter().zip(below) {
            self.line(line)?;
            below.iter().try_for_each(|line| self.line(&format!("    {line}")))?;
        }
        Ok(())
    }

    /// The fields of an object: one a line, or the object itself for scripts.
    pub(crate) fn fields(&self, value: &Value) -> io::Result<()> {
        if self.json {
            return self.json(value);
        }
        let Some(fields) = value.as_object() else { return self.line(&value.to_string()) };
        let fields: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        fields.iter().try_for_each(|(name, value)| {
            let lines = lines_of(value);
            let (first, rest) = lines.split_first().map_or(("", &lines[..]), |(first, rest)| (first.as_str(), rest));
            self.put(&format!("{}  {}", self.paint(BOLD, &format!("{name:width$}")), plain(first)))?;
            rest.iter().try_for_each(|line| self.put(&format!("{:width$}  {}", "", plain(line))))
        })
    }

    /// A line that is marked as trouble or as fine.
    pub(crate) fn verdict(&self, trouble: bool, sentence: &str) -> io::Result<()> {
        let mark = if trouble { self.paint(RED, "!") } else { self.paint(GREEN, "-") };
        self.put(&format!("  {mark} {}", plain(sentence)))
    }

    /// Prints the doctor's remarks on several invocations, a line for each.
    pub(crate) fn findings(&self, reports: &[Value]) -> io::Result<()> {
        if reports.is_empty() {
            return Ok(());
        }
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let row = |report: &Value, told: &Value| {
            [
                text(&report["invocation_id"]),
                text(&report["graph"]),
                text(&report["status"]),
                text(&told["finding"]),
                text(&told["sentence"]),
                done(told).unwrap_or_else(|| "-".to_owned()),
            ]
        };
        let rows = reports.iter().flat_map(|report| remarks(report).map(move |told| row(report, told)));
        let rows: Vec<_> = rows.collect();
        self.table(["INVOCATION", "GRAPH", "STATUS", "FINDING", "WHAT IT MEANS", "REPAIR"], &rows)
    }

    /// Prints the doctor's remarks on one invocation.
    pub(crate) fn report(&self, report: &Value) -> io::Result<()> {
        if self.json {
            return self.json(report);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let head = format!("{} ({})", text(&report["invocation_id"]), text(&report["graph"]));
        self.put(&self.paint(BOLD, &head))?;
        for told in remarks(report) {
            self.verdict(told["trouble"] == true, &text(&told["sentence"]))?;
            if let Some(done) = done(told) {
                self.line(&format!("      {done}"))?;
            }
        }
        Ok(())
    }
}

/// Remarks of the doctor on an invocation.
fn remarks(report: &Value) -> impl Iterator<Item = &Value> {
    report["remarks"].as_array().into_iter().flatten()
}

/// Outcome of the remedy of a remark, or its expected effect.
fn done(told: &Value) -> Option<String> {
    let words = [("remedy", "--repair would"), ("repaired", "done:"), ("not_repaired", "not repaired:")];
    words.iter().find_map(|(key, before)| Some(format!("{before} {}", told[key].as_str()?)))
}

fn aligned<const N: usize>(head: &[String; N], rows: &[[String; N]]) -> Vec<String> {
    let plain_row = |row: &[String; N]| row.each_ref().map(|cell| plain(cell));
    let head = plain_row(head);
    let rows = rows.iter().map(plain_row).collect::<Vec<_>>();
    let all = || std::iter::once(&head).chain(&rows);
    let width = |column: usize| all().map(|row| row[column].width()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cell = |(cell, width): (&String, &usize)| format!("{cell}{}", " ".repeat(width - cell.width()));
        row.iter().zip(&widths).map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_stands_below_its_line() {
        let at = "2026-12-03T01:18:04.5Z".parse().expect("an instant");
        let row = Row {
            invocation_id: "task_1".to_owned(),
            graph: "assistant".to_owned(),
            status: "asleep",
            since: at,
            waits_for: "s".to_owned(),
            description: Some("ä".repeat(BELOW + 1)),
            calls: vec!["send_mail {}".to_owned()],
            due_at: Some(at),
            then: Some("is denied".to_owned()),
            answer_with: AnswerCommands {
                ready: vec!["dormouse approve task_1".to_owned(), "dormouse deny task_1".to_owned()],
                template: Some("dormouse approve task_1 '{\"days\":<number>}'".to_owned()),
            },
        };
        assert_eq!(row.cells(at)[4], "2026-12-03T01:18:04Z is denied");
        let question = format!("{}…", "ä".repeat(BELOW));
        let filled = "fill in: dormouse approve task_1 '{\"days\":<number>}'";
        assert_eq!(
            row.below(),
            [question.as_str(), "send_mail {}", "dormouse approve task_1", "dormouse deny task_1", filled]
        );
        let row = Row { description: Some("Did it happen?\nKnown of it: nothing".to_owned()), ..row };
        assert_eq!(row.below()[0], "Did it happen? — Known of it: nothing");
        let told = row.into_json();
        assert_eq!(
            (&told["answer_with"], &told["or_with"]),
            (&json!("dormouse approve task_1"), &json!(["dormouse deny task_1"]))
        );
        assert_eq!(told["fill_in"], "dormouse approve task_1 '{\"days\":<number>}'");
    }

    #[test]
    fn commands_stand_in_lines_and_names_in_a_row() {
        assert_eq!(lines_of(&json!(["ada", "grace"])), ["ada, grace"]);
        assert_eq!(lines_of(&json!(["dormouse deny x"])), ["dormouse deny x"]);
        assert_eq!(lines_of(&json!(["a b", "c d"])), ["a b", "c d"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let head = ["A", "B"].map(str::to_owned);
        let rows = [["long cell", "1"].map(str::to_owned), ["東京", "2"].map(str::to_owned)];
        assert_eq!(aligned(&head, &rows), ["A          B", "long cell  1", "東京       2"], "in columns of a terminal");
    }
}
