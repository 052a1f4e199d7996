//! Waits: requests of a node that suspend its invocation, as values of the graph's own types.
//!
//! A [`Wait`] becomes the [`SignalDescriptor`] that is stored and shown; which keys its metadata has is documented with
//! the harness, which reads them.

mod answer;
mod delay;
mod end;
mod votes;

use std::fmt;

use dormouse_ports::{Category, EventWait, Map, SignalDescriptor, SignalId};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{FieldKey, GraphState, NodeError, Update, suspend, suspend_and_rerun};
use end::{WaitEnd, end};

pub use answer::{Answer, Integer, Rule};
pub use delay::{Deadline, Delay, DelayError};
pub use end::Step;
pub use votes::{VoteOutcome, Voters, Votes};

/// Wait of an invocation over the state `S`, and its outcome when nothing comes.
///
/// `A` is the content of an answer: fields of the state itself, or of the record that one answer of several is.
///
/// ```
/// use dormouse_engine::{Answer, Delay, Rule, Step, Wait};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Default, Serialize, Deserialize)]
/// #[serde(rename_all = "snake_case")]
/// enum Decision {
///     #[default]
///     Open,
///     Approved,
///     Rejected,
/// }
///
/// dormouse_engine::state! {
///     #[derive(Clone, Debug, Default)]
///     struct Expense {
///         decision: Decision,
///         decided_by: String,
///     }
/// }
///
/// let answer = Answer::new()
///     .required(Expense::decision, Rule::one_of([Decision::Approved, Decision::Rejected]))
///     .optional(Expense::decided_by, Rule::text().at_most(200));
/// let wait = Wait::signal("expense-7", answer)
///     .kind("approval")
///     .describe("Ada asks for 120 euros")
///     .answers(Expense::decision.set(Decision::Approved), Expense::decision.set(Decision::Rejected))
///     .answered_by(Expense::decided_by)
///     .steps([Step::remind(Delay::days(1)), Step::escalate(Delay::days(2), "head of finance")])
///     .or_default(Delay::days(3), Expense::decision.set(Decision::Rejected));
/// assert_eq!(wait.descriptor()?.signal_id.as_str(), "expense-7");
/// # Ok::<(), dormouse_engine::NodeError>(())
/// ```
#[must_use = "a wait does nothing until it is given to the graph"]
pub struct Wait<S, A = S> {
    signal_id: SignalId,
    answer: Answer<A>,
    labels: Map,
    event: Option<EventWait>,
    into: Option<&'static str>,
    answers: Option<(Update<A>, Update<A>)>,
    answered_by: Option<&'static str>,
    parts: Option<(&'static str, Voters<A>)>,
    keeps: Vec<SignalId>,
    progress: Option<u64>,
    steps: Option<Vec<Step>>,
    end: WaitEnd<S>,
    /// The method that was called and means nothing for this kind of wait.
    misplaced: Option<&'static str>,
}

impl<S> Wait<S> {
    /// Waits for the signal `signal_id`, which sets by its payload the fields of the state that `answer` names.
    pub fn signal(signal_id: impl Into<SignalId>, answer: Answer<S>) -> Self {
        Self::new(signal_id.into(), answer)
    }

    /// Waits for an event on the bus that matches `event` and carries `signal_id` in the place that `event` names. Of
    /// its detail, the fields that `answer` names set those of the state; the others are dropped.
    pub fn event(signal_id: impl Into<SignalId>, event: EventWait, answer: Answer<S>) -> Self {
        Self { event: Some(event), ..Self::new(signal_id.into(), answer) }
    }

    /// Sleeps until `time`. The signal `signal_id` wakes it earlier, and sets nothing.
    pub fn until(signal_id: impl Into<SignalId>, time: Timestamp) -> Self {
        Self { end: WaitEnd::Wake(time.into(), None), ..Self::new(signal_id.into(), Answer::new()) }
    }

    /// Sleeps for `delay`. The signal `signal_id` wakes it earlier, and sets nothing.
    pub fn sleep(signal_id: impl Into<SignalId>, delay: impl Into<Delay>) -> Self {
        let delay: Delay = delay.into();
        Self { end: WaitEnd::Wake(delay.into(), None), ..Self::new(signal_id.into(), Answer::new()) }
    }

    /// Sets fields of the state when time wakes it: of [`until`](Self::until) and [`sleep`](Self::sleep).
    pub fn waking_with(mut self, update: Update<S>) -> Self {
        self.end = match self.end {
            WaitEnd::Wake(at, _) => WaitEnd::Wake(at, Some(update)),
            other @ (WaitEnd::Never | WaitEnd::Default(..) | WaitEnd::Fail(_)) => {
                self.misplaced.get_or_insert("`waking_with` is for a wait that time ends: `until` or `sleep`");
                other
            }
        };
        self
    }
}

impl<S, A> Wait<S, A> {
    /// Waits for the signal `signal_id`; its whole payload becomes the value of `field`.
    pub fn signal_into(signal_id: impl Into<SignalId>, field: FieldKey<S, A>, answer: Answer<A>) -> Self {
        Self { into: Some(field.name()), ..Self::new(signal_id.into(), answer) }
    }

    /// Waits for several answers, each from one of the `parts`, and gathers them in `field`. `answer` declares what each
    /// of them may hold.
    pub fn votes(
        signal_id: impl Into<SignalId>,
        field: FieldKey<S, Votes<A>>,
        answer: Answer<A>,
        parts: Voters<A>,
    ) -> Self {
        Self { parts: Some((field.name(), parts)), ..Self::new(signal_id.into(), answer) }
    }

    fn new(signal_id: SignalId, answer: Answer<A>) -> Self {
        Self {
            signal_id,
            answer,
            labels: Map::new(),
            event: None,
            into: None,
            answers: None,
            answered_by: None,
            parts: None,
            keeps: Vec::new(),
            progress: None,
            steps: None,
            end: WaitEnd::Never,
            misplaced: None,
        }
    }

    /// Sets the kind of the wait: `approval`, `vote`, `job`, or a word of your own.
    pub fn kind(self, kind: impl Into<String>) -> Self {
        self.label("kind", kind.into())
    }

    /// Describes the request in a sentence.
    pub fn describe(self, sentence: impl Into<String>) -> Self {
        self.label("description", sentence.into())
    }

    /// Adds data of your own, which is stored and shown with the wait. Keys that have a meaning for Dormouse are
    /// refused when the wait begins.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the answers for which a plain yes and a plain no stand, where a person is only asked for these.
    pub fn answers(mut self, approved: Update<A>, denied: Update<A>) -> Self {
        self.answers = Some((approved, denied));
        self
    }

    /// Names the field that receives the name of the person who answered, whatever name the answer holds.
    pub fn answered_by(mut self, field: FieldKey<A, String>) -> Self {
        self.answered_by = Some(field.name());
        self
    }

    /// Names signals for which the pause before waited and a later one will: what they bring meanwhile is parked for that one.
    /// Without this, a signal whose pause is over brings nothing any more.
    pub fn keeping(mut self, signals: impl IntoIterator<Item = SignalId>) -> Self {
        self.keeps.extend(signals);
        self
    }

    /// Says how far the work is: of pauses in a row that wake by themselves at once, those are counted together that say the
    /// same ([`InvocationLimits::self_wakes`](dormouse_ports::InvocationLimits::self_wakes)).
    pub fn progress(mut self, done: u64) -> Self {
        self.progress = Some(done);
        self
    }

    /// Announces these steps, nine at most, on the way to the end, in the order of time. There must be an end:
    /// [`or_default`](Self::or_default) or [`or_fail`](Self::or_fail).
    pub fn steps(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.steps.get_or_insert_default().extend(steps);
        self
    }

    /// Reminds the people who were asked; a [step](Self::steps).
    pub fn remind(self, at: impl Into<Deadline>) -> Self {
        self.steps([Step::remind(at)])
    }

    /// Notifies `to`, who is responsible; a [step](Self::steps).
    pub fn escalate(self, at: impl Into<Deadline>, to: impl Into<String>) -> Self {
        self.steps([Step::escalate(at, to)])
    }

    /// Goes on with `update` when nothing came in time.
    pub fn or_default(self, at: impl Into<Deadline>, update: Update<S>) -> Self {
        self.ending(WaitEnd::Default(at.into(), update))
    }

    /// Ends the invocation with an error when nothing came in time.
    pub fn or_fail(self, at: impl Into<Deadline>) -> Self {
        self.ending(WaitEnd::Fail(at.into()))
    }

    /// Ends by `end`. A wait that sleeps ends at its own time: in the place of that it would never wake.
    fn ending(mut self, end: WaitEnd<S>) -> Self {
        match self.end {
            WaitEnd::Wake(..) => {
                let reason = "it sleeps, and goes on at its time: `or_default` and `or_fail` are for a wait for an answer, \
                              and `waking_with` says what a sleep sets";
                self.misplaced.get_or_insert(reason);
            }
            WaitEnd::Never | WaitEnd::Default(..) | WaitEnd::Fail(_) => self.end = end,
        }
        self
    }

    /// The wait as it is stored.
    ///
    /// # Errors
    /// `harness_signal_subscription_failed` for a wait that cannot be right, with what to do.
    pub fn descriptor(self) -> Result<SignalDescriptor, NodeError> {
        let id = self.signal_id.clone();
        let metadata = self.metadata().map_err(|reason| {
            let message = format!("the wait for `{id}` cannot be right: {reason}");
            NodeError::new(message).with_category(Category::HarnessSignalSubscriptionFailed)
        })?;
        Ok(SignalDescriptor { signal_id: id, metadata: Some(metadata) })
    }

    fn metadata(self) -> Result<Map, String> {
        if let Some(reason) = self.misplaced {
            return Err(reason.to_owned());
        }
        let mut metadata = labels(self.labels)?;
        let mut put = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
        if let Some(event) = self.event {
            put("event", json!(event));
        }
        let answers = answers(self.answers, self.answered_by, &self.answer)?;
        if let Some((_, parts)) = &self.parts {
            parts.check_tests(&self.answer)?;
        }
        if let Some(schema) = self.answer.schema()? {
            put("accepts", schema);
        }
        if let Some(field) = self.into {
            put("into", field.into());
        }
        if let Some(answers) = answers {
            put("answers", answers);
        }
        if let Some((into, parts)) = self.parts {
            put("expects", parts.json(into)?);
        }
        if !self.keeps.is_empty() {
            put("keeps", json!(self.keeps));
        }
        if let Some(progress) = self.progress {
            put("progress", progress.into());
        }
        for (key, value) in end(self.steps, self.end)? {
            put(key, value);
        }
        Ok(metadata)
    }
}

impl<S: GraphState, A> Wait<S, A> {
    /// Lets the invocation sleep, out of a node that does more than wait: `Err(wait.suspend().await)`. See [`suspend`].
    pub async fn suspend(self) -> NodeError {
        match self.descriptor() {
            Ok(descriptor) => suspend(descriptor).await,
            Err(error) => error,
        }
    }

    /// As [`suspend`](Self::suspend), but the node runs again on the state with the answer. See [`suspend_and_rerun`].
    pub async fn suspend_and_rerun(self) -> NodeError {
        match self.descriptor() {
            Ok(descriptor) => suspend_and_rerun(descriptor).await,
            Err(error) => error,
        }
    }
}

impl<S, A> fmt::Debug for Wait<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("signal_id", &self.signal_id).finish_non_exhaustive()
    }
}

/// The keys of the metadata that a wait writes itself, besides those that are for the server alone.
const OWN_KEYS: [&str; 3] = ["accepts", "expects", "into"];

fn is_own(key: &str) -> bool {
    OWN_KEYS.contains(&key) || SignalDescriptor::FOR_THE_SERVER.contains(&key)
}

fn labels(labels: Map) -> Result<Map, String> {
    match labels.keys().find(|key| is_own(key)) {
        Some(key) => Err(format!("label `{key}` means something to Dormouse: use the method for it, or another key")),
        None => Ok(labels),
    }
}

fn answers<A>(
    answers: Option<(Update<A>, Update<A>)>,
    by: Option<&'static str>,
    answer: &Answer<A>,
) -> Result<Option<Value>, String> {
    if let Some(field) = by.filter(|field| !answer.sets(field)) {
        return Err(format!(
            "field `{field}` receives the name of who answers, and the answer may not set it: name it in the `Answer`"
        ));
    }
    let mut named = Map::new();
    if let Some((approved, denied)) = answers {
        let approved = fields(approved)?;
        let denied = fields(denied)?;
        if let Some(field) = approved.keys().chain(denied.keys()).find(|field| !answer.sets(field)) {
            return Err(format!(
                "a plain yes or no sets field `{field}`, which the answer may not set: name it in the `Answer`"
            ));
        }
        for (word, fields) in [("yes", &approved), ("no", &denied)] {
            answer.admits(fields).map_err(|reason| format!("a plain {word} would be refused: {reason}"))?;
        }
        named.insert("approved".to_owned(), approved.into());
        named.insert("denied".to_owned(), denied.into());
    }
    if let Some(field) = by {
        named.insert("by".to_owned(), field.into());
    }
    Ok((!named.is_empty()).then_some(Value::Object(named)))
}

/// The fields that `update` sets, as an object.
fn fields<S>(update: Update<S>) -> Result<Map, String> {
    let update = update.untyped().map_err(|error| error.message().to_owned())?;
    if let Some(field) = update.appended() {
        return Err(format!(
            "it would append to field `{field}`, and what ends a wait replaces a field, whatever its reducer: let a node \
             behind the wait append, or `set` the whole list"
        ));
    }
    Ok(update.iter().map(|(field, value)| (field.to_string(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::state! {
        #[derive(Clone, Debug, Default)]
        struct Order {
            approved: Option<bool>,
            amount: u32,
            reply: Reply,
            votes: Votes<Reply>,
            notes: Vec<String>,
        }
    }

    crate::record! {
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        struct Reply {
            yes: bool,
            by: String,
        }
    }

    fn metadata<A>(wait: Wait<Order, A>) -> Value {
        Value::Object(wait.descriptor().unwrap().metadata.unwrap())
    }

    fn votes(parts: Voters<Reply>) -> Wait<Order, Reply> {
        Wait::votes("s", Order::votes, Answer::new().required(Reply::yes, Rule::boolean()), parts)
    }

    #[test]
    fn a_method_of_another_kind_of_wait_is_refused() {
        let error =
            Wait::<Order>::signal("s", Answer::new()).waking_with(Order::amount.set(1)).descriptor().unwrap_err();
        assert!(error.to_string().contains("`until` or `sleep`"), "{error}");
    }

    #[test]
    fn rules_are_written_as_json_schema() {
        let answer = Answer::new()
            .required(Order::approved, Rule::boolean())
            .optional(Order::amount, Rule::between(1, 9))
            .optional(Order::reply, Rule::anything());
        let properties = json!({
            "approved": { "type": "boolean" },
            "amount": { "type": "integer", "minimum": 1, "maximum": 9 },
            "reply": {},
        });
        let accepts = json!({ "type": "object", "properties": properties, "required": ["approved"] });
        assert_eq!(metadata(Wait::signal("s", answer)), json!({ "accepts": accepts }));
        assert_eq!(metadata(Wait::<Order>::signal("s", Answer::anything()).label("to", "Ada")), json!({ "to": "Ada" }));
    }

    #[test]
    fn a_whole_answer_goes_into_one_field() {
        let answer = Answer::new().required(Reply::by, Rule::text().at_least(1)).optional(Reply::yes, Rule::boolean());
        let wait = Wait::signal_into("s", Order::reply, answer).answered_by(Reply::by);
        let wait = wait.answers(Reply::yes.set(true), Reply::yes.set(false));
        let properties = json!({ "by": { "type": "string", "minLength": 1 }, "yes": { "type": "boolean" } });
        let expected = json!({
            "accepts": { "type": "object", "properties": properties, "required": ["by"] },
            "into": "reply",
            "answers": { "approved": { "yes": true }, "denied": { "yes": false }, "by": "by" },
        });
        assert_eq!(metadata(wait), expected);
        let signed = Answer::new().optional(Reply::by, Rule::text());
        let written = metadata(Wait::signal_into("s", Order::reply, signed).answered_by(Reply::by));
        assert_eq!(written["answers"], json!({ "by": "by" }), "also where no plain yes or no is an answer");
    }

    #[test]
    fn parts_may_have_signals_of_their_own() {
        let parts = Voters::with_signals([("ada", "order-ada"), ("grace", "order-grace")]);
        let written = metadata(votes(parts).or_fail(Delay::minutes(5)));
        let parts = json!({ "ada": { "signal_id": "order-ada" }, "grace": { "signal_id": "order-grace" } });
        assert_eq!(written["expects"], json!({ "parts": parts, "into": "votes" }));
        assert_eq!(written["timeout"], json!({ "after": "PT5M", "then": "fail" }));
        let written = metadata(votes(Voters::of(["ada", "grace", "linus"]).at_least(2).counting(Reply::yes, true)));
        assert_eq!(written["expects"]["counts"], json!({ "field": "yes", "is": true }));
    }

    #[test]
    fn a_sleep_may_wake_with_an_update() {
        let time: Timestamp = "2027-01-31T09:00:00Z".parse().unwrap();
        let written = metadata(Wait::<Order>::until("s", time).waking_with(Order::amount.set(1)));
        assert_eq!(written["wake_at"], "2027-01-31T09:00:00Z");
        assert_eq!(written["wake_payload"], json!({ "amount": 1 }));
        let written = metadata(Wait::<Order>::sleep("s", Delay::seconds(20)));
        assert_eq!(written["wake_after"], "PT20S");
    }

    #[test]
    fn steps_lead_to_an_end() {
        let time: Timestamp = "2027-01-31T09:00:00Z".parse().unwrap();
        let wait = Wait::<Order>::signal("s", Answer::new()).remind(Delay::hours(1)).escalate(time, "the board");
        let wait = wait.steps([Step::reassign(Delay::days(2), "Grace")]);
        let written =
            metadata(wait.or_default(Delay::try_from(std::time::Duration::from_secs(90)).unwrap(), Update::none()));
        let expected = json!([
            { "after": "PT1H", "do": "remind" },
            { "at": "2027-01-31T09:00:00Z", "do": "escalate", "to": "the board" },
            { "after": "P2D", "do": "reassign", "to": "Grace" },
            { "after": "PT90S", "then": { "resume": {} } },
        ]);
        assert_eq!(written["deadlines"], expected);
    }

    #[test]
    fn a_wait_that_cannot_be_right_says_what_to_do() {
        let plain = || Wait::<Order>::signal("s", Answer::new());
        let refused = |wait: Result<SignalDescriptor, NodeError>| wait.unwrap_err();
        let many = (0..26).map(|part| format!("p{part}"));
        let names = ["ada", "grace"];
        let nobody: [&str; 0] = [];
        for (error, reason) in [
            (refused(votes(Voters::each(nobody)).descriptor()), "it asks 0 parts, and must ask 1 to 25"),
            (refused(votes(Voters::each(many)).descriptor()), "it asks 26 parts, and must ask 1 to 25"),
            (
                refused(votes(Voters::of(["ada", "ada"])).descriptor()),
                "the wait asks part `ada` twice: name each part once",
            ),
            (
                refused(votes(Voters::of(names).at_least(3)).descriptor()),
                "it needs 3 answers of 2 parts: `at_least` takes 1 to 2",
            ),
            (
                refused(votes(Voters::of(names).at_least(0)).descriptor()),
                "it needs 0 answers of 2 parts: `at_least` takes 1 to 2",
            ),
            (
                refused(votes(Voters::of(names).counting(Reply::by, "me")).descriptor()),
                "it counts answers by field `by`, which the answer may not set: name it in the `Answer`",
            ),
            (
                refused(votes(Voters::of(names).veto(Reply::by, "me")).descriptor()),
                "it takes a veto from field `by`, which the answer may not set: name it in the `Answer`",
            ),
            (
                refused(Wait::<Order>::sleep("s", Delay::hours(2)).or_fail(Delay::days(1)).descriptor()),
                "it sleeps, and goes on at its time: `or_default` and `or_fail` are for a wait for an answer, and \
                 `waking_with` says what a sleep sets",
            ),
            (
                refused(plain().or_fail(Delay::seconds(0)).descriptor()),
                "the end comes at once: give it a delay of more than 0",
            ),
            (
                refused(plain().remind(Delay::days(0)).or_fail(Delay::days(1)).descriptor()),
                "a step comes at once: give it a delay of more than 0",
            ),
            (
                refused(Wait::<Order>::sleep("s", Delay::seconds(0)).descriptor()),
                "the sleep comes at once: give it a delay of more than 0",
            ),
            (
                refused(plain().or_default(Delay::days(1), Order::notes.append(["late"])).descriptor()),
                "it would append to field `notes`, and what ends a wait replaces a field, whatever its reducer: let a node \
                 behind the wait append, or `set` the whole list",
            ),
            (
                refused(plain().remind(Delay::days(1)).descriptor()),
                "its steps lead nowhere: end it with `or_default` or `or_fail`",
            ),
            (
                refused(Wait::<Order>::sleep("s", Delay::days(1)).remind(Delay::hours(1)).descriptor()),
                "steps belong to a wait that ends with `or_default` or `or_fail`, not to one that sleeps",
            ),
            (
                refused(plain().steps(vec![Step::remind(Delay::days(1)); 10]).or_fail(Delay::days(2)).descriptor()),
                "it has 10 steps and an end, and may have 10 in all: leave some out",
            ),
            (
                refused(plain().escalate(Delay::days(1), "").or_fail(Delay::days(2)).descriptor()),
                "the step `escalate` names nobody: say who is told",
            ),
            (
                refused(plain().label("timeout", 1).descriptor()),
                "label `timeout` means something to Dormouse: use the method for it, or another key",
            ),
            (
                refused(Wait::signal("s", Answer::anything().required(Order::amount, Rule::integer())).descriptor()),
                "its answer may set everything, and yet names fields: begin with `Answer::new()`",
            ),
            (
                refused(Wait::signal_into("s", Order::reply, Answer::new()).answered_by(Reply::by).descriptor()),
                "field `by` receives the name of who answers, and the answer may not set it: name it in the `Answer`",
            ),
            (
                refused(plain().answers(Order::amount.set(1), Order::amount.set(0)).descriptor()),
                "a plain yes or no sets field `amount`, which the answer may not set: name it in the `Answer`",
            ),
            (
                refused(
                    Wait::signal("s", Answer::new().required(Order::amount, Rule::between(1, 9)))
                        .answers(Order::amount.set(1), Order::amount.set(0))
                        .descriptor(),
                ),
                "a plain no would be refused: field `amount` must be at least 1, not 0; accepted are `amount` (an integer)",
            ),
            (
                refused(Wait::signal("s", Answer::new().required(Order::amount, Rule::between(2, 1))).descriptor()),
                "the rule of field `amount` cannot be right: no number is between 2 and 1: name the smaller one first",
            ),
        ] {
            assert_eq!(error.message(), format!("the wait for `s` cannot be right: {reason}"));
            assert_eq!(error.category(), Some(&Category::HarnessSignalSubscriptionFailed));
        }
    }

    #[test]
    fn a_delay_may_be_of_any_number() {
        for delay in [Delay::days, Delay::hours, Delay::minutes, Delay::seconds].map(|of| of(u32::MAX)) {
            assert_eq!(delay.to_string().parse::<Delay>(), Ok(delay));
        }
        assert_eq!(Delay::days(u32::MAX), Delay::hours(u32::MAX), "longer than the calendar");
    }

    #[test]
    fn a_text_that_is_no_delay_is_refused() {
        for text in ["", "soon", "-PT1S", "P1M", "P1Y"] {
            let refused = text.parse::<Delay>().unwrap_err().to_string();
            assert_eq!(refused, format!("{text:?} must be an ISO-8601 duration such as PT10M or P3D"));
        }
    }
}
