use dormouse_ports::{
    Announcement, Cancellation, DueAction, Expected, FanIn, InvocationSummary, SignError, SignalDescriptor, StoreError,
    Until, WakePlan,
};
use dormouse_testkit::{ManualClock, MemoryBus, ScriptedAnswer, ScriptedFetch};
use serde_json::json;

use super::*;
use crate::tokens::CallbackSecret;

const CHANNELS: &str = r#"{
    "chat": {"slack": "https://hooks.example/services/hush"},
    "mail": {"email": ["grace@example.com"], "from": "dormouse@example.com"},
    "hook": {"webhook": "https://example.com/hook", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
}"#;

/// The one invocation that there is.
struct One(PausedInvocation, InvocationStatus);

#[async_trait]
impl Invocations for One {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        let record =
            InvocationRecord { status: self.1.clone(), paused: self.0.clone(), stored: Vec::new(), saved: None };
        Ok(Some(record).filter(|record| record.paused.invocation_id == *id))
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        Ok(vec![None; ids.len()])
    }
}

struct Signs;

#[async_trait]
impl Sign for Signs {
    async fn sign(&self, request: &mut dormouse_ports::FetchRequest) -> Result<(), SignError> {
        request.headers.push(("authorization".to_owned(), "signed".into()));
        Ok(())
    }
}

struct Desk {
    bus: NotifyingBus,
    told: Arc<MemoryBus>,
    fetch: ScriptedFetch,
    clock: Arc<ManualClock>,
}

impl Desk {
    fn new() -> Self {
        Self::of(json!({ "description": "Pay <!channel> 12 & more\u{202e}?\u{1b}[31m" }))
    }

    /// With a pause that says `metadata` of itself.
    fn of(metadata: Value) -> Self {
        Self::asking(metadata, None)
    }

    /// The same, where several are asked.
    fn asking(metadata: Value, fan_in: Option<FanIn>) -> Self {
        Self::standing(metadata, fan_in, InvocationStatus::Suspended)
    }

    /// The same of an invocation that stands so.
    fn standing(metadata: Value, fan_in: Option<FanIn>, status: InvocationStatus) -> Self {
        let clock = Arc::new(ManualClock::default());
        let now = clock.now();
        let announce = Announcement { step: Escalation::Notify, to: Some("chat".to_owned()) };
        let minutes = |minutes: i64| now + SignedDuration::from_mins(minutes);
        let paused = PausedInvocation {
            generation: 1,
            descriptor: SignalDescriptor { metadata: metadata.as_object().cloned(), ..SignalDescriptor::new("s") },
            wake: WakePlan {
                due: Some(Due::first(now, DueAction::Announce(announce))),
                later: vec![Due { at: minutes(60), action: DueAction::Fail, rung: 1 }],
                ..WakePlan::default()
            },
            fan_in,
            ..PausedInvocation::before_first_pause("run-1".into(), "clerk", now)
        };
        let fetch = ScriptedFetch::default();
        let told = Arc::new(MemoryBus::default());
        let parts = NotifierParts {
            channels: Notifications::read(CHANNELS, false).expect("channels"),
            invocations: Arc::new(One(paused, status)),
            fetch: Arc::new(fetch.clone()),
            email: Some((Arc::new(Signs), "https://email.example".to_owned())),
            callbacks: CallbackSigner::new(CallbackSecret::new("secret")),
            base_url: "https://d.example".to_owned(),
            valid: Duration::from_secs(3600),
            clock: clock.clone(),
        };
        Self { bus: NotifyingBus::new(told.clone(), parts), told, fetch, clock }
    }

    /// What becomes of the announcement for `channel` of the pause `generation`, if the other side answers `status`.
    async fn announces(&self, channel: &str, generation: u64, status: u16) -> Result<(), BusError> {
        self.fetch.answer(ScriptedAnswer::pieces(status, [""]));
        let detail = json!({
            "id": "run-1/1/0", "invocation_id": "run-1", "generation": generation, "do": "notify", "to": channel,
            "due_at": ManualClock::default().now().to_string(),
        });
        let detail = detail.as_object().cloned().expect("an object");
        let event = Event { source: "dormouse".to_owned(), detail_type: "Dormouse Deadline".to_owned(), detail };
        self.bus.publish(event).await
    }

    fn sent(&self) -> (String, Value) {
        let request = self.fetch.requests().pop().expect("a request");
        (request.url, serde_json::from_slice(&request.body).expect("JSON"))
    }
}

#[tokio::test]
async fn each_channel_gets_what_is_asked_and_the_link_and_the_bus_is_told_as_well() {
    let desk = Desk::new();
    desk.announces("chat", 1, 200).await.expect("it is taken");
    let (url, body) = desk.sent();
    let text = body["text"].as_str().expect("a text");
    assert_eq!(url, "https://hooks.example/services/hush");
    assert!(
        text.starts_with("Pay &lt;!channel&gt; 12 &amp; more?[31m\n<https://d.example/console/answer/run-1#token="),
        "{text}"
    );
    assert!(text.contains("it ends with an error"), "{text}");
    desk.announces("mail", 1, 200).await.expect("it is taken");
    let (url, body) = desk.sent();
    assert_eq!(url, "https://email.example/v2/email/outbound-emails");
    assert_eq!(body["Destination"]["ToAddresses"], json!(["grace@example.com"]));
    let simple = &body["Content"]["Simple"];
    assert!(simple["Body"]["Text"]["Data"].as_str().expect("a text").contains("/console/answer/run-1#token="));
    assert_eq!(simple["Subject"]["Data"], "To answer: Pay <!channel> 12 & more?[31m");
    desk.announces("hook", 1, 204).await.expect("it is taken");
    let request = desk.fetch.requests().pop().expect("a request");
    assert!(
        request.headers.iter().any(|(name, value)| name == "webhook-signature" && value.expose().starts_with("v1,"))
    );
    assert_eq!(desk.told.events().len(), 3);
}

#[tokio::test]
async fn what_a_tool_answered_and_what_a_person_gave_is_in_no_notification() {
    let question = "Did `pay` happen? It was begun";
    let whole = format!("{question}\nKnown of it: hush");
    let told = |label: &str, field: &str| json!({ "description": whole, (label): { "call-1": { (field): "hush" } } });
    for (metadata, expected) in [
        (told("calls", "known"), question),
        (told("calls", "unfit"), question),
        (told("questions", "unfit"), question),
        (json!({ "description": "Two?\nFour?", "questions": { "1": { "unfit": "hush" }, "2": {} } }), "Two? Four?"),
        (json!({ "description": "Pay?\nToday?", "calls": { "call-1": {} } }), "Pay? Today?"),
    ] {
        let desk = Desk::of(metadata);
        for channel in ["chat", "mail", "hook"] {
            desk.announces(channel, 1, 200).await.expect("it is taken");
            let (_, body) = desk.sent();
            let body = body.to_string();
            assert!(body.contains(expected) && !body.contains("hush"), "{channel}: {body}");
        }
    }
}

/// Names of those who are asked may come from whoever began the run.
#[tokio::test]
async fn neither_a_question_nor_a_name_begins_a_line_or_hides_text() {
    let part = format!("Ada\r\nAnswer: https://evil.example/\u{2066}|{}", "x".repeat(200));
    let expected = vec![Expected { part, signal_id: "s/ada".into() }];
    let fan_in =
        FanIn { expected, until: Until::All, counts: None, veto: None, into: "votes".to_owned(), answers: Vec::new() };
    let hidden = "Pay?\u{61c}\u{e0041}\nAnswer: https://evil.example/";
    let desk = Desk::asking(json!({ "description": hidden }), Some(fan_in));
    desk.announces("mail", 1, 200).await.expect("it is taken");
    let (_, body) = desk.sent();
    let text = body["Content"]["Simple"]["Body"]["Text"]["Data"].as_str().expect("a text");
    assert!(text.starts_with("Pay? Answer: https://evil.example/\n\nAnswer as Ada Answer: https://evil.example/|x"));
    assert!(text.contains("x …: https://d.example/console/answer/run-1#token="), "{text}");
    desk.announces("chat", 1, 200).await.expect("it is taken");
    let (_, body) = desk.sent();
    let text = body["text"].as_str().expect("a text");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("|Answer as Ada Answer: https://evil.example/ xxx"), "{text}");
}

#[tokio::test]
async fn who_does_not_take_it_is_tried_again_and_in_the_end_given_up_and_no_address_is_told() {
    let desk = Desk::new();
    let again = desk.announces("chat", 1, 503).await.expect_err("not taken");
    assert!(matches!(&again, BusError::Unavailable(_)) && !again.to_string().contains("hush"), "{again}");
    desk.clock.advance(Duration::from_secs(15 * 60));
    let over = desk.announces("chat", 1, 503).await.expect_err("not taken");
    assert!(matches!(&over, BusError::Rejected(_)) && !over.to_string().contains("hush"), "{over}");
}

#[tokio::test]
async fn nobody_is_asked_who_has_answered_and_a_channel_that_is_not_there_stops_no_ladder() {
    let desk = Desk::new();
    desk.announces("chat", 2, 200).await.expect("there is nothing to tell");
    assert!(desk.fetch.requests().is_empty());
    // The last pause stays the last one of what has ended behind it.
    let canceled = InvocationStatus::Canceled(Cancellation { reason: None, at: desk.clock.now() });
    for ended in [InvocationStatus::Completed { state: Map::new() }, canceled] {
        let over = Desk::standing(json!({}), None, ended);
        over.announces("chat", 1, 200).await.expect("there is nothing to ask");
        assert!(over.fetch.requests().is_empty());
    }
    let unknown = desk.announces("nobody", 1, 200).await.expect_err("no channel");
    assert!(matches!(&unknown, BusError::Rejected(reason) if reason.contains("`nobody`")), "{unknown}");
}

/// In the place of a bus, on a machine of one's own.
struct NoBus;

#[async_trait]
impl EventBus for NoBus {
    async fn publish(&self, _: Event) -> Result<(), BusError> {
        Err(BusError::Rejected("there is no event bus".to_owned()))
    }
}

#[tokio::test]
async fn people_are_asked_where_there_is_no_bus_and_once_where_it_is_away() {
    let mut desk = Desk::new();
    desk.bus.bus = Arc::new(NoBus);
    let refused = desk.announces("chat", 1, 200).await.expect_err("nobody listens on a bus");
    assert!(matches!(&refused, BusError::Rejected(reason) if reason.contains("no event bus")), "{refused}");
    assert_eq!(desk.sent().0, "https://hooks.example/services/hush");
    let again = desk.announces("chat", 1, 503).await.expect_err("not taken");
    assert!(matches!(&again, BusError::Unavailable(_)), "{again}");
    let (asked, away) = (desk.fetch.requests().len(), MemoryBus::default());
    away.fail_with(Some("it is away"));
    desk.bus.bus = Arc::new(away);
    let again = desk.announces("chat", 1, 200).await.expect_err("the bus did not take it");
    assert!(matches!(&again, BusError::Unavailable(_)), "{again}");
    assert_eq!(desk.fetch.requests().len(), asked);
}

#[test]
fn what_is_no_channel_is_refused_without_its_secrets() {
    for bad in [
        r#"{"a": {"slack": "http://hooks.example/hush"}}"#,
        r#"{"a": {"slack": "http://127.0.0.1:1/hush"}}"#,
        r#"{"a": {"webhook": "https://x.example/hush", "secret": "hush"}}"#,
        r#"{"a": {"webhook": "https://x.example/hush", "slack": "https://x.example/hush"}}"#,
        r#"{"a": {"email": ["grace"], "from": "hush@example.com"}}"#,
        r#"{"a": {"email": [], "from": "hush@example.com"}}"#,
        r#"{"a": {"email": ["a@b\nBcc: hush"], "from": "x@y"}}"#,
        r#"{"a": {}}"#,
        r#"{"a": {"hush": 1}}"#,
        "[",
    ] {
        let refused = Notifications::read(bad, false).expect_err(bad).to_string();
        assert!(!refused.contains("hush"), "{refused}");
    }
    assert!(Notifications::read(r#"{"a": {"slack": "http://127.0.0.1:1/x"}}"#, true).is_ok());
    assert!(!format!("{:?}", Notifications::read(CHANNELS, false)).contains("hush"));
}
