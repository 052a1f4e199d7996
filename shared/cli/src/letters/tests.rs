use std::sync::Mutex;

use async_trait::async_trait;
use clap::Parser;
use serde_json::{Value, json};

use super::letter::QueuedMessage;
use super::letter::tests::{failed, message};
use super::*;
use crate::letters::letter::Taker;

/// Queues in memory; functions and a bus that remember what they were given.
#[derive(Default)]
struct FakePost {
    queues: Mutex<Vec<(Queue, QueuedMessage, bool)>>,
    calls: Mutex<Vec<(Taker, Value)>>,
    published: Mutex<Vec<Value>>,
    refuses_calls: bool,
}

impl FakePost {
    fn holding(letters: Vec<(Queue, QueuedMessage)>) -> Self {
        let queues = letters.into_iter().map(|(queue, message)| (queue, message, false)).collect();
        Self { queues: Mutex::new(queues), ..Self::default() }
    }

    /// Ids that are in the queues and visible.
    fn seen(&self) -> Vec<String> {
        let queues = self.queues.lock().expect("a lock");
        queues.iter().filter(|(_, _, hidden)| !hidden).map(|(_, message, _)| message.id.clone()).collect()
    }
}

#[async_trait]
impl Post for FakePost {
    async fn receive(&self, queue: Queue) -> Result<Vec<QueuedMessage>, PostError> {
        let mut queues = self.queues.lock().expect("a lock");
        let mut of_queue = queues.iter_mut().filter(|(of, _, hidden)| *of == queue && !hidden).take(2);
        Ok(of_queue
            .by_ref()
            .map(|(_, message, hidden)| {
                *hidden = true;
                message.clone()
            })
            .collect())
    }

    async fn release(&self, queue: Queue, messages: &[&QueuedMessage]) -> Result<(), PostError> {
        for (of, message, hidden) in self.queues.lock().expect("a lock").iter_mut() {
            *hidden &= !(*of == queue && messages.iter().any(|released| released.id == message.id));
        }
        Ok(())
    }

    async fn remove(&self, queue: Queue, message: &QueuedMessage) -> Result<(), PostError> {
        self.queues.lock().expect("a lock").retain(|(of, kept, _)| *of != queue || kept.receipt != message.receipt);
        Ok(())
    }

    async fn call(&self, taker: Taker, event: &Value) -> Result<(), PostError> {
        if self.refuses_calls {
            let action = "lambda:InvokeFunction".to_owned();
            return Err(PostError { action, sentence: "AccessDeniedException: no".to_owned() });
        }
        self.calls.lock().expect("a lock").push((taker, event.clone()));
        Ok(())
    }

    async fn publish(&self, event: &Value) -> Result<(), PostError> {
        self.published.lock().expect("a lock").push(event.clone());
        Ok(())
    }
}

fn wakeup() -> Value {
    json!({ "dormouse_wakeup": { "invocation_id": "i-1", "generation": 2 } })
}

fn foreign() -> Value {
    json!({ "id": "e", "source": "exporter", "detail-type": "Export Finished", "detail": { "job": 1 } })
}

fn full() -> FakePost {
    FakePost::holding(vec![
        (Queue::Failed, failed("aaaa-1", "wakeup", &wakeup(), "store_unavailable")),
        (Queue::Failed, failed("aaaa-2", "signal", &json!({ "nothing": 1 }), "unreadable_event")),
        (Queue::Failed, failed("bbbb-1", "signal", &json!({ "dormouse_signal": { "signal_id": "s" } }), "x")),
        (Queue::Undelivered, message("cccc-1", &foreign(), &json!({ "ERROR_CODE": "THROTTLED" }))),
        (Queue::Undelivered, message("dddd-1", &json!("?"), &json!({}))),
        (Queue::Undelivered, message("eeee-1", &json!({ "dormouse_sweep": "everything" }), &json!({}))),
    ])
}

async fn told(order: LettersAction, post: &FakePost) -> Result<(), LettersError> {
    obey(&order, post, "dormouse-dev", &Printer::new(true), true).await
}

#[tokio::test]
async fn a_look_changes_nothing() {
    let post = full();
    told(LettersAction::Look, &post).await.expect("a list");
    assert_eq!(post.seen(), ["aaaa-1", "aaaa-2", "bbbb-1", "cccc-1", "dddd-1", "eeee-1"]);
    assert!(post.calls.lock().expect("a lock").is_empty());
}

#[tokio::test]
async fn all_letters_go_back_where_they_were_on_their_way_to() {
    let post = full();
    let all = LettersAction::RedriveAll { also_useless: true };
    let left = told(all, &post).await.expect_err("one has no way back");
    assert_eq!(left.to_string(), "letters that stay where they were: 1");
    assert_eq!(post.seen(), ["dddd-1"]);
    let calls = post.calls.lock().expect("a lock").clone();
    assert_eq!(calls.len(), 4);
    assert!(calls.contains(&(Taker::Wakeup, wakeup())), "{calls:?}");
    assert_eq!(*post.published.lock().expect("a lock"), [foreign()]);
}

/// A stop of an hour leaves 60 sweeps; what nobody understands would come back with fourteen fresh days.
#[tokio::test]
async fn what_nothing_comes_of_goes_back_only_where_it_is_asked_for() {
    let post = full();
    let found = collect(&post).await.expect("letters");
    let shown = redrive_all(&post, &found, false).await.into_json("redriven");
    assert_eq!(shown["left"], json!([]), "{shown}");
    let left_out = shown["left_out"].as_array().expect("letters");
    let [unreadable, homeless, sweep] = left_out.as_slice() else { panic!("{shown}") };
    assert_eq!((&unreadable["id"], &sweep["id"]), (&json!("aaaa-2"), &json!("eeee-1")), "{shown}");
    assert_eq!(homeless["id"], "dddd-1", "{shown}");
    assert!(homeless["why"].to_string().contains("by its content"), "{shown}");
    assert!(unreadable["why"].to_string().contains("send it anew"), "{shown}");
    assert!(sweep["why"].to_string().contains("later sweeps did"), "{shown}");
    release(&post, &found.letters).await.expect("they are shown again");
    let all = LettersAction::RedriveAll { also_useless: false };
    told(all, &post).await.expect("what is left out is no failure");
    assert_eq!(post.seen(), ["aaaa-2", "dddd-1", "eeee-1"]);
    assert_eq!(post.calls.lock().expect("a lock").len(), 2);
    told(LettersAction::Redrive("eeee-1".to_owned()), &post).await.expect("it is named");
    assert_eq!(post.seen(), ["aaaa-2", "dddd-1"]);
    let sweep = (Taker::Sweep, json!({ "dormouse_sweep": "everything" }));
    assert!(post.calls.lock().expect("a lock").contains(&sweep));
}

#[tokio::test]
async fn that_there_are_more_letters_than_are_looked_at_is_told() {
    let letter = |at: usize| failed(&format!("{at:04}-x"), "wakeup", &wakeup(), "store_unavailable");
    let post = FakePost::holding((0..=MOST).map(|at| (Queue::Failed, letter(at))).collect());
    let beyond = told(LettersAction::Drop("1000-x".to_owned()), &post).await.expect_err("it was not looked at");
    assert!(matches!(beyond, LettersError::NotAmong(_)), "{beyond}");
    assert_eq!(post.seen().len(), MOST + 1, "all are shown again");
    let found = collect(&post).await.expect("letters");
    let shown = redrive_all(&post, &found, false).await.into_json("redriven");
    assert_eq!((&shown["more"], post.seen()), (&json!(true), vec!["1000-x".to_owned()]));
}

#[tokio::test]
async fn one_letter_goes_back_by_its_id_or_the_beginning_of_it() {
    let post = full();
    for id in ["bbbb-1", "aaaa-1"] {
        told(LettersAction::Redrive(id.to_owned()), &post).await.expect("it is handed back");
    }
    told(LettersAction::Redrive("cccc".to_owned()), &post).await.expect("it is handed back");
    assert_eq!(post.seen(), ["aaaa-2", "dddd-1", "eeee-1"]);
    let unknown = told(LettersAction::Redrive("ffff".to_owned()), &post).await.expect_err("there is none");
    assert_eq!(unknown.to_string(), "there is no letter ffff; `dormouse letters` lists them");
    for short in ["aa", "aaa"] {
        let refused = told(LettersAction::Redrive(short.to_owned()), &post).await.expect_err("too short");
        assert!(matches!(refused, LettersError::Ambiguous(_)), "{refused}");
    }
    assert_eq!(post.seen(), ["aaaa-2", "dddd-1", "eeee-1"]);
}

#[tokio::test]
async fn what_cannot_be_handed_back_stays_with_the_reason() {
    let post = FakePost { refuses_calls: true, ..full() };
    let left = told(LettersAction::Redrive("aaaa-1".to_owned()), &post).await.expect_err("it is refused");
    assert_eq!(left.to_string(), "letters that stay where they were: 1");
    assert_eq!(post.seen().len(), 6, "nothing is lost");
}

#[tokio::test]
async fn a_letter_is_dropped() {
    let post = full();
    told(LettersAction::Drop("dddd-1".to_owned()), &post).await.expect("it is dropped");
    assert_eq!(post.seen(), ["aaaa-1", "aaaa-2", "bbbb-1", "cccc-1", "eeee-1"]);
    assert!(post.calls.lock().expect("a lock").is_empty());
}

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    letters: LettersArgs,
}

#[test]
fn arguments_tell_which_letters() {
    let order = |arguments: &[&str]| {
        let line = ["letters", "--stack", "dormouse-dev"].iter().chain(arguments);
        CommandLine::try_parse_from(line).ok().map(|line| line.letters.order())
    };
    assert!(matches!(order(&[]), Some(Ok(LettersAction::Look))));
    assert!(matches!(order(&["--redrive", "--all"]), Some(Ok(LettersAction::RedriveAll { also_useless: false }))));
    let useless = order(&["--redrive", "--all", "--also-useless"]);
    assert!(matches!(useless, Some(Ok(LettersAction::RedriveAll { also_useless: true }))));
    assert!(matches!(order(&["--redrive", "aaaa"]), Some(Ok(LettersAction::Redrive(id))) if id == "aaaa"));
    assert!(matches!(order(&["--drop", "aaaa"]), Some(Ok(LettersAction::Drop(id))) if id == "aaaa"));
    for wrong in [&["--redrive"][..], &["--redrive", "aaaa", "--all"]] {
        assert!(matches!(order(wrong), Some(Err(LettersError::WhichLetter))), "{wrong:?}");
    }
    assert!(order(&["--all"]).is_none() && order(&["--redrive", "a", "--also-useless"]).is_none());
    assert!(order(&["--redrive", "a", "--drop", "b"]).is_none());
}
