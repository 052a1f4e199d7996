//! Greeting that is printed when everything runs: a tour with indented lines that can be pasted into a shell as they
//! are.

use std::fmt::Write as _;

use dormouse_harness::GraphRegistry;
use dormouse_http::Authorization;
use dormouse_ports::Map;
use serde_json::{Value, json};

/// Details of the process that prints the tour.
pub(crate) struct Tour<'a> {
    /// Address at which it answers.
    pub(crate) address: &'a str,
    /// The key of the operator.
    pub(crate) key: &'a str,
    /// The key that may do everything.
    pub(crate) api_key: &'a str,
    /// Proof of identity that callers have to give.
    pub(crate) authorization: Authorization,
    /// The tour, with blanks.
    pub(crate) text: &'a str,
}

impl Tour<'_> {
    /// The tour. Commands are indented by four spaces; nothing else is.
    pub(crate) fn filled(&self) -> String {
        let proof = match self.authorization {
            Authorization::Keys => r#" -H "$AS""#,
            Authorization::AwsIam | Authorization::None => "",
        };
        self.text
            .replace("{address}", self.address)
            .replace("{key}", self.key)
            .replace("{api_key}", self.api_key)
            .replace("{proof}", proof)
    }
}

/// The tour of agents that bring none: how each of `graphs` is started, and how what sleeps is answered by `program`.
pub(crate) fn plain(graphs: &GraphRegistry, program: &str) -> String {
    let mut text = String::from(
        r#"
Paste the indented lines into a second terminal.

    DORMOUSE={address}
    AS='authorization: Bearer {api_key}'
    JSON='content-type: application/json'

"#,
    );
    for graph in graphs.iter() {
        let inputs = graph.schema().fields().filter(|(name, _)| graph.is_input(name));
        let state: Map = inputs.map(|(name, field)| (name.to_string(), made_up(&field.default))).collect();
        let body = quoted(&json!({ "state": state }));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Start `{}`; the values are made up: give your own.\n", graph.name());
        let name = graph.name();
        let _ =
            writeln!(text, "    curl -s -w '\\n' \"$DORMOUSE/graphs/{name}/turns\" -H \"$JSON\"{{proof}} -d {body}\n");
    }
    let _ = writeln!(text, "What sleeps, and the commands that answer:\n\n    {program} pending\n");
    text + "All routes: curl -s {address}/ (Ctrl-C ends this process after the running turns.)\n\n"
}

/// A value like that which a field begins with, as a request may have it: nobody asks for nothing.
fn made_up(default: &Value) -> Value {
    if default.as_str() == Some("") {
        return "text".into();
    }
    if default.as_f64() == Some(0.0) { 1.into() } else { default.clone() }
}

/// JSON as one word of a shell.
fn quoted(json: &Value) -> String {
    format!("'{}'", json.to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_engine::{END, Field, FieldType, GraphBuilder, StateSchema, Update};

    use super::*;

    fn of(authorization: Authorization) -> Tour<'static> {
        let text = "    DORMOUSE={address}\n    KEY={key}\n    AS='authorization: Bearer {api_key}'\n    curl{proof}\n";
        Tour { address: "http://127.0.0.1:1", key: "hush", api_key: "dm_1", authorization, text }
    }

    #[test]
    fn address_and_keys_are_filled_in() {
        let text = of(Authorization::None).filled();
        assert!(text.contains("    DORMOUSE=http://127.0.0.1:1\n    KEY=hush\n"));
        for name in ["{address}", "{key}", "{api_key}", "{proof}"] {
            assert!(!text.contains(name), "{name}");
        }
        assert!(text.contains("Bearer dm_1'"));
    }

    #[test]
    fn a_key_is_sent_where_one_is_asked_for() {
        let sends = |authorization| of(authorization).filled().contains(r#"curl -H "$AS""#);
        assert_eq!((sends(Authorization::None), sends(Authorization::Keys)), (false, true));
    }

    #[test]
    fn agents_without_a_tour_are_started_with_what_they_take() {
        let schema = StateSchema::new()
            .field("who", Field::new(FieldType::Str, "Ada's"))
            .field("result", Field::new(FieldType::Str, ""));
        let graph = GraphBuilder::new("leave", schema).inputs(["who"]).entry("n");
        let graph = graph.function("n", |_| async { Ok(Update::none()) }).edge("n", END).compile();
        let text = plain(&GraphRegistry::new([Arc::new(graph.expect("a graph"))]), "target/debug/leave");
        assert!(text.contains(r#"/graphs/leave/turns" -H "$JSON"{proof} -d '{"state":{"who":"Ada'\''s"}}'"#), "{text}");
        assert!(text.contains("\n    target/debug/leave pending\n"), "{text}");
    }
}
