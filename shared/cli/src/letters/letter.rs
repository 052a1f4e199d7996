//! A dead letter: what it holds, why it is there, and what helps.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Dead-letter queue of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Events that a function took and failed on, retries included.
    Failed,
    /// Events and wake-ups that never reached a function.
    Undelivered,
}

impl Queue {
    pub(crate) const ALL: [Self; 2] = [Self::Failed, Self::Undelivered];

    /// The word behind the name of the stack.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Undelivered => "undelivered",
        }
    }
}

/// Function that takes events without a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Signal,
    Sweep,
    Wakeup,
}

impl Taker {
    /// The word behind the name of the stack.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Sweep => "sweep",
            Self::Wakeup => "wakeup",
        }
    }
}

/// A message as a queue gives it out.
#[derive(Clone, Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) id: String,
    /// By which it is removed or released.
    pub(crate) receipt: String,
    pub(crate) body: String,
    /// What the service that put it aside noted beside it.
    pub(crate) notes: Map<String, Value>,
    pub(crate) sent: Timestamp,
    /// Number of times that the queue has given it out, this one included.
    pub(crate) looks: Option<u64>,
}

/// Way back for the event of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A function is called with it.
    Call(Taker),
    /// It is published on the bus once more; the rules of the bus transform it for the invocation that waits for it.
    Publish,
    /// There is none: nothing tells where it belongs.
    Nowhere,
}

/// A dead letter that was read.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) queue: Queue,
    pub(crate) message: QueuedMessage,
    pub(crate) event: Value,
    pub(crate) way: Way,
    /// Kind of the error, as the function or the service names it.
    pub(crate) error: String,
    pub(crate) reason: String,
    /// Number of attempts that were made.
    pub(crate) attempts: Option<u64>,
}

impl DeadLetter {
    /// Reads `message` of `queue`. A body that is no JSON is the event itself, as text.
    pub(crate) fn read(queue: Queue, message: QueuedMessage) -> Self {
        let body: Value = serde_json::from_str(&message.body).unwrap_or_else(|_| message.body.clone().into());
        match queue {
            Queue::Failed => Self::of_a_function(message, body),
            Queue::Undelivered => Self::of_a_service(message, body),
        }
    }

    /// Lambda puts aside `requestPayload`, which is the event, and in `responsePayload` the error.
    fn of_a_function(message: QueuedMessage, mut body: Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let answer = &body["responsePayload"];
        let context = &body["requestContext"];
        let error = match (text(&answer["errorType"]), text(&context["condition"])) {
            (kind, condition) if kind.is_empty() => condition,
            (kind, _) => kind,
        };
        let reason = text(&answer["errorMessage"]);
        let attempts = context["approximateInvokeCount"].as_u64();
        let taker = function_named(&text(&context["functionArn"]));
        let event = if body.get("requestPayload").is_some() { body["requestPayload"].take() } else { body };
        let way = taker.filter(|_| !is_sweep(&event)).map_or_else(|| way_by_content(&event), Way::Call);
        Self { queue: Queue::Failed, message, event, way, error, reason, attempts }
    }

    /// Rules and schedules put aside what they should have delivered, and note the error beside it.
    fn of_a_service(message: QueuedMessage, event: Value) -> Self {
        let note = |name: &str| message.notes.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let error = note("ERROR_CODE");
        let reason = note("ERROR_MESSAGE");
        let attempts = note("RETRY_ATTEMPTS").parse().ok();
        let way = way_by_content(&event);
        Self { queue: Queue::Undelivered, message, event, way, error, reason, attempts }
    }

    /// Subject of the letter, in a few words.
    pub(crate) fn about(&self) -> String {
        let event = &self.event;
        let id = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if let Some(signal) = event.get("dormouse_signal") {
            return format!("signal {}", id(&signal["signal_id"]));
        }
        if let Some(wakeup) = event.get("dormouse_wakeup") {
            return format!("wake-up of {}", id(&wakeup["invocation_id"]));
        }
        if is_sweep(event) {
            return "sweep".to_owned();
        }
        let source = &event["source"];
        let kind = &event["detail-type"];
        let detail = &event["detail"];
        match (source.as_str(), kind.as_str()) {
            (Some("dormouse"), Some("Dormouse Signal")) => format!("signal {}", id(&detail["signal_id"])),
            (Some("dormouse"), Some("Dormouse Work")) => format!("work for {}", id(&detail["invocation_id"])),
            (Some(source), Some(kind)) => format!("event `{kind}` of `{source}`"),
            _ => "an event of unknown shape".to_owned(),
        }
    }

    /// The invocation that it names.
    fn invocation(&self) -> Option<&str> {
        let places = [&self.event["dormouse_wakeup"]["invocation_id"], &self.event["detail"]["invocation_id"]];
        places.into_iter().find_map(Value::as_str)
    }

    /// True if nothing comes of handing it back: it would be done in vain, or fail as it did, or there is no way back.
    pub(crate) fn is_useless(&self) -> bool {
        let is_unreadable = self.queue == Queue::Failed && self.error == "unreadable_event";
        self.way == Way::Nowhere || is_sweep(&self.event) || is_unreadable
    }

    /// Remedy, in a sentence.
    pub(crate) fn advice(&self) -> String {
        if is_sweep(&self.event) {
            return "later sweeps did what this one would have done: drop it".to_owned();
        }
        if self.way == Way::Nowhere {
            return "nothing tells which function it is for: find its sender by its content, then drop it".to_owned();
        }
        match (self.queue, self.error.as_str()) {
            (Queue::Failed, "unreadable_event") => {
                "no function understands it: let its sender send it anew in the expected form, then drop it".to_owned()
            }
            (Queue::Failed, error) if is_of_the_sandbox(error, &self.reason) => {
                "the function was ended in its midst: see its log for time and memory, raise what it lacks, then hand \
                 it back"
                    .to_owned()
            }
            (Queue::Failed, "EventAgeExceeded" | "ZeroReservedConcurrency") => {
                "the function had no room for hours: raise its concurrency, then hand it back".to_owned()
            }
            (Queue::Failed, _) => match self.invocation() {
                Some(id) => format!("`dormouse doctor {id}` tells what is wrong; mend it, then hand it back"),
                None => "see the log for the reason and mend it, then hand it back".to_owned(),
            },
            (Queue::Undelivered, error) if error.contains("PERMISSION") || error.contains("Denied") => {
                "the service may not call the function: deploy again, which grants it, then hand it back".to_owned()
            }
            (Queue::Undelivered, error) if error.contains("NOT_FOUND") || error.contains("NotFound") => {
                "the function was not there: deploy again, then hand it back".to_owned()
            }
            (Queue::Undelivered, _) => "it was not delivered in time: hand it back".to_owned(),
        }
    }

    pub(crate) fn into_json(self, now: Timestamp) -> Value {
        let about = self.about();
        let advice = self.advice();
        let function = match self.way {
            Way::Call(taker) => Some(taker.as_str()),
            Way::Publish | Way::Nowhere => None,
        };
        json!({
            "id": self.message.id, "queue": self.queue.as_str(), "function": function, "about": about,
            "error": self.error, "reason": self.reason, "attempts": self.attempts, "put_aside_at": self.message.sent,
            "looks": self.message.looks, "age_seconds": now.duration_since(self.message.sent).as_secs(), "advice": advice, "event": self.event,
        })
    }
}

/// Function that the ARN or name `arn` names, with or without a version behind it.
fn function_named(arn: &str) -> Option<Taker> {
    let name = arn.split_once(":function:").map_or(arn, |(_, name)| name);
    let name = name.split(':').next().unwrap_or_default();
    [Taker::Signal, Taker::Sweep, Taker::Wakeup]
        .into_iter()
        .find(|taker| name.ends_with(&format!("-{}", taker.as_str())))
}

fn is_sweep(event: &Value) -> bool {
    event.get("dormouse_sweep").is_some()
}

fn way_by_content(event: &Value) -> Way {
    if event.get("dormouse_signal").is_some() {
        return Way::Call(Taker::Signal);
    }
    if is_sweep(event) {
        return Way::Call(Taker::Sweep);
    }
    if event.get("dormouse_wakeup").is_some() {
        return Way::Call(Taker::Wakeup);
    }
    match (event["source"].as_str(), event["detail-type"].as_str()) {
        (Some("dormouse"), Some("Dormouse Signal")) => Way::Call(Taker::Signal),
        (Some("dormouse"), Some("Dormouse Work")) => Way::Call(Taker::Wakeup),
        (Some(_), Some(_)) if event["detail"].is_object() => Way::Publish,
        _ => Way::Nowhere,
    }
}

/// True if Lambda itself ended the function.
fn is_of_the_sandbox(error: &str, reason: &str) -> bool {
    error.starts_with("Sandbox.") || error.starts_with("Runtime.") || reason.contains("Task timed out")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A message with the id `id`.
    pub(crate) fn message(id: &str, body: &Value, notes: &Value) -> QueuedMessage {
        QueuedMessage {
            id: id.to_owned(),
            receipt: format!("receipt-{id}"),
            body: body.to_string(),
            notes: notes.as_object().cloned().unwrap_or_default(),
            sent: Timestamp::UNIX_EPOCH,
            looks: Some(4),
        }
    }

    /// As Lambda puts it aside.
    pub(crate) fn failed(id: &str, function: &str, event: &Value, error: &str) -> QueuedMessage {
        let arn = format!("arn:aws:lambda:eu-central-1:123456789012:function:dormouse-dev-{function}:live");
        let body = json!({
            "version": "1.0", "timestamp": "2026-01-01T00:00:00.000Z",
            "requestContext": { "requestId": "r", "functionArn": arn, "condition": "RetriesExhausted",
                "approximateInvokeCount": 3 },
            "requestPayload": event,
            "responseContext": { "statusCode": 200, "executedVersion": "7", "functionError": "Unhandled" },
            "responsePayload": { "errorType": error, "errorMessage": "what was wrong" },
        });
        message(id, &body, &json!({}))
    }

    #[test]
    fn what_a_function_failed_on_is_told_with_its_error() {
        let event = json!({ "dormouse_wakeup": { "invocation_id": "i-1", "generation": 2 } });
        let letter = DeadLetter::read(Queue::Failed, failed("m", "wakeup", &event, "store_unavailable"));
        assert_eq!((letter.way, letter.about()), (Way::Call(Taker::Wakeup), "wake-up of i-1".to_owned()));
        assert_eq!((letter.error.as_str(), letter.attempts), ("store_unavailable", Some(3)));
        assert!(letter.advice().contains("dormouse doctor i-1"), "{}", letter.advice());
        assert_eq!(letter.event, event);
        let shown = letter.into_json(Timestamp::from_second(60).expect("an instant"));
        assert_eq!((&shown["function"], &shown["age_seconds"]), (&json!("wakeup"), &json!(60)));
        assert_eq!(shown["looks"], 4);
    }

    #[test]
    fn advice_depends_on_what_went_wrong() {
        let signal = json!({ "dormouse_signal": { "signal_id": "s-1", "payload": {} } });
        for (error, advice) in [
            ("unreadable_event", "then drop it"),
            ("Sandbox.Timedout", "time and memory"),
            ("Runtime.ExitError", "time and memory"),
            ("session_corrupt", "see the log"),
        ] {
            let letter = DeadLetter::read(Queue::Failed, failed("m", "signal", &signal, error));
            assert!(letter.advice().contains(advice), "{error}: {}", letter.advice());
            assert_eq!(letter.about(), "signal s-1");
        }
        let sweep = json!({ "dormouse_sweep": "everything" });
        let letter = DeadLetter::read(Queue::Failed, failed("m", "sweep", &sweep, "Sandbox.Timedout"));
        assert!(letter.advice().contains("later sweeps"), "{}", letter.advice());
    }

    /// Also one on which `wakeup` failed, when sweeps were its work.
    #[test]
    fn a_sweep_goes_back_to_the_function_for_sweeps() {
        let sweep = json!({ "dormouse_sweep": "everything" });
        let letters = [
            DeadLetter::read(Queue::Failed, failed("m", "wakeup", &sweep, "store_unavailable")),
            DeadLetter::read(Queue::Failed, failed("m", "sweep", &sweep, "store_unavailable")),
            DeadLetter::read(Queue::Undelivered, message("m", &sweep, &json!({}))),
        ];
        assert_eq!(letters.map(|letter| letter.way), [Way::Call(Taker::Sweep); 3]);
    }

    #[test]
    fn what_was_not_delivered_is_told_with_the_notes_of_the_service() {
        let notes = json!({ "ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "not allowed", "RETRY_ATTEMPTS": "185" });
        let foreign = json!({ "id": "e", "source": "exporter", "detail-type": "Export Finished", "detail": {} });
        let letter = DeadLetter::read(Queue::Undelivered, message("m", &foreign, &notes));
        assert_eq!((letter.way, letter.attempts), (Way::Publish, Some(185)));
        assert_eq!(letter.about(), "event `Export Finished` of `exporter`");
        assert!(letter.advice().contains("deploy again"), "{}", letter.advice());
        let work = json!({ "source": "dormouse", "detail-type": "Dormouse Work", "detail": { "invocation_id": "i" } });
        let letter = DeadLetter::read(Queue::Undelivered, message("m", &work, &json!({})));
        assert_eq!((letter.way, letter.about()), (Way::Call(Taker::Wakeup), "work for i".to_owned()));
        assert!(letter.advice().contains("hand it back"), "{}", letter.advice());
    }

    #[test]
    fn whatever_it_is_it_is_shown() {
        for body in [json!("text"), json!([1]), json!(null), json!({ "requestPayload": 7 })] {
            for queue in Queue::ALL {
                let letter = DeadLetter::read(queue, message("m", &body, &json!({})));
                assert_eq!(
                    (letter.way, letter.about().as_str()),
                    (Way::Nowhere, "an event of unknown shape"),
                    "{body}"
                );
                assert!(letter.advice().contains("by its content"), "{}", letter.advice());
            }
        }
        let torn = QueuedMessage { body: "{".to_owned(), ..message("m", &json!(null), &json!({})) };
        assert_eq!(DeadLetter::read(Queue::Failed, torn).event, json!("{"));
    }
}
