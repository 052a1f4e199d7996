//! `dormouse letters`: what lies in the dead-letter queues of a stack, why, and the way back for it.

mod letter;
mod post;

use std::io;
use std::process::ExitCode;

use dormouse_maintenance::doctor::in_words;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::letter::{DeadLetter, Queue, Way};
use self::post::{AwsPost, Post, PostError};
use crate::inspect::Printer;
use crate::target::{TargetError, access};
use crate::terminal::quoted;

/// The most letters of a queue that are looked at at once.
const MOST: usize = 1_000;
/// Number of characters of an id that a table shows.
const SHOWN: usize = 8;
/// Fewest characters of an id that is not whole.
const SHORTEST: usize = 4;

/// Shows the dead letters of a stack, or hands them back.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse letters --stack dormouse-dev\n  dormouse letters --stack dormouse-dev --redrive 3f2a91c0\n  \
    dormouse letters --stack dormouse-dev --redrive --all\n\n\
    --redrive --all leaves out sweeps, which later ones have made up for, what no function understands, which would \
    fail as it did, and what has no way back. The first two are handed back by their ids, or with --also-useless.\n\
    JSON: {\"letters\": [{\"id\", \"queue\", \"function\", \"about\", \"error\", \"reason\", \"attempts\", \"put_aside_at\", \
    \"looks\", \"age_seconds\", \"advice\", \"event\"}], \"more\"}; with --redrive or --drop {\"redriven\" or \"dropped\": [id], \
    \"left\": [{\"id\", \"why\"}]}, with --all also \"left_out\": [{\"id\", \"why\"}] and \"more\"\n\
    Credentials and region come from the environment. It needs sqs:GetQueueUrl, ReceiveMessage and \
    ChangeMessageVisibility; to hand back also sqs:DeleteMessage, lambda:InvokeFunction and events:PutEvents.\n\
    Exit code 1: not all were handed back. Exit code 4: there is no such letter."
)]
pub(crate) struct LettersArgs {
    /// Name of the stack, `dormouse-dev` for the stage `dev`.
    #[arg(long, value_name = "STACK")]
    stack: String,
    /// Hand this letter back to where it was on its way to, and remove it from its queue; with --all every letter.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "", conflicts_with = "drop")]
    redrive: Option<String>,
    /// Every letter that has a way back, and of which something comes.
    #[arg(long, requires = "redrive")]
    all: bool,
    /// With --all also those of which nothing comes.
    #[arg(long, requires = "all")]
    also_useless: bool,
    /// Remove this letter without handing it back.
    #[arg(long, value_name = "ID")]
    drop: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Reason for which the command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LettersError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Post(#[from] PostError),
    #[error("--redrive needs the id of a letter, or --all")]
    WhichLetter,
    #[error("there is no letter {0}; `dormouse letters` lists them")]
    NoLetter(String),
    #[error("letter {0} is not among the {MOST} of each queue that are looked at: hand these back or drop them first")]
    NotAmong(String),
    #[error("`{0}` is the beginning of several letters, or too short for one: give more of it")]
    Ambiguous(String),
    #[error("letters that stay where they were: {0}")]
    Left(usize),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl LettersError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::WhichLetter => ExitCode::from(2),
            Self::NoLetter(_) => ExitCode::from(4),
            Self::Target(_) | Self::Post(_) | Self::NotAmong(_) | Self::Ambiguous(_) | Self::Left(_) | Self::Io(_) => {
                ExitCode::FAILURE
            }
        }
    }
}

/// What is to be done with the letters.
enum LettersAction {
    Look,
    RedriveAll { also_useless: bool },
    Redrive(String),
    Drop(String),
}

impl LettersArgs {
    fn order(&self) -> Result<LettersAction, LettersError> {
        match (&self.redrive, self.all, &self.drop) {
            (Some(id), true, _) if id.is_empty() => Ok(LettersAction::RedriveAll { also_useless: self.also_useless }),
            (Some(id), false, _) if !id.is_empty() => Ok(LettersAction::Redrive(id.clone())),
            (Some(_), _, _) => Err(LettersError::WhichLetter),
            (None, _, Some(id)) => Ok(LettersAction::Drop(id.clone())),
            (None, _, None) => Ok(LettersAction::Look),
        }
    }
}

/// Executes `ask`.
pub(crate) async fn letters(ask: LettersArgs) -> Result<(), LettersError> {
    let order = ask.order()?;
    let post = AwsPost::open(ask.stack.clone(), access(None)?).await?;
    obey(&order, &post, &ask.stack, &Printer::new(ask.json), ask.json).await
}

async fn obey(
    order: &LettersAction,
    post: &dyn Post,
    stack: &str,
    printer: &Printer,
    as_json: bool,
) -> Result<(), LettersError> {
    let found = collect(post).await?;
    let done = match order {
        LettersAction::Look => look(&found, stack, printer, as_json),
        LettersAction::RedriveAll { also_useless } => {
            report(printer, "redriven", redrive_all(post, &found, *also_useless).await)
        }
        LettersAction::Redrive(id) => match named(&found, id) {
            Ok(letter) => report(printer, "redriven", redrive(post, &[letter]).await),
            Err(error) => Err(error),
        },
        LettersAction::Drop(id) => match named(&found, id) {
            Ok(letter) => dropped(post, letter, printer).await,
            Err(error) => Err(error),
        },
    };
    // What was not done is told before what it left hidden for two minutes.
    let released = release(post, &found.letters).await;
    done.and(released.map_err(LettersError::from))
}

async fn dropped(post: &dyn Post, letter: &DeadLetter, printer: &Printer) -> Result<(), LettersError> {
    post.remove(letter.queue, &letter.message).await?;
    report(printer, "dropped", Handled { done: vec![letter.message.id.clone()], ..Handled::default() })
}

/// Letters of both queues, the oldest first.
struct FoundLetters {
    letters: Vec<DeadLetter>,
    /// There are more than are looked at.
    more: bool,
}

async fn collect(post: &dyn Post) -> Result<FoundLetters, PostError> {
    let mut found = FoundLetters { letters: Vec::new(), more: false };
    for queue in Queue::ALL {
        let mut received = 0;
        loop {
            let messages = post.receive(queue).await?;
            if messages.is_empty() {
                break;
            }
            received += messages.len();
            found.letters.extend(messages.into_iter().map(|message| DeadLetter::read(queue, message)));
            if received >= MOST {
                found.more = true;
                break;
            }
        }
    }
    // A queue may give one out twice.
    found.letters.sort_by(|a, b| (a.message.sent, &a.message.id).cmp(&(b.message.sent, &b.message.id)));
    found.letters.dedup_by(|a, b| a.message.id == b.message.id);
    Ok(found)
}

/// Shows what was looked at to others again; what was removed is not there any more, which is no failure.
async fn release(post: &dyn Post, letters: &[DeadLetter]) -> Result<(), PostError> {
    for queue in Queue::ALL {
        let messages: Vec<_> =
            letters.iter().filter(|letter| letter.queue == queue).map(|letter| &letter.message).collect();
        post.release(queue, &messages).await?;
    }
    Ok(())
}

/// The letter with the id `typed`, or the only one with an id that begins so.
fn named<'l>(found: &'l FoundLetters, typed: &str) -> Result<&'l DeadLetter, LettersError> {
    let FoundLetters { letters, more } = found;
    if let Some(whole) = letters.iter().find(|letter| letter.message.id == typed) {
        return Ok(whole);
    }
    let mut found = letters.iter().filter(|letter| letter.message.id.starts_with(typed));
    match (found.next(), found.next()) {
        (Some(only), None) if typed.len() >= SHORTEST => Ok(only),
        (None, _) if *more => Err(LettersError::NotAmong(typed.to_owned())),
        (None, _) => Err(LettersError::NoLetter(typed.to_owned())),
        (Some(_), _) => Err(LettersError::Ambiguous(typed.to_owned())),
    }
}

fn look(found: &FoundLetters, stack: &str, printer: &Printer, as_json: bool) -> Result<(), LettersError> {
    let now = Timestamp::now();
    if as_json {
        let letters: Vec<Value> = found.letters.iter().cloned().map(|letter| letter.into_json(now)).collect();
        return Ok(printer.json(&json!({ "letters": letters, "more": found.more }))?);
    }
    if found.letters.is_empty() {
        return Ok(printer.line("there are no dead letters")?);
    }
    let head = ["LETTER", "AGE", "QUEUE", "FOR", "ABOUT", "ERROR", "ATTEMPTS", "LOOKS", "WHAT HELPS"];
    printer.table(head, &found.letters.iter().map(|letter| cells(letter, now)).collect::<Vec<_>>())?;
    if found.more {
        printer.line("there are more: hand these back or drop them first")?;
    }
    printer
        .line(&format!("hand back: dormouse letters --stack {} --redrive LETTER, or --redrive --all", quoted(stack)))?;
    Ok(())
}

fn cells(letter: &DeadLetter, now: Timestamp) -> [String; 9] {
    let goes_to = match letter.way {
        Way::Call(taker) => taker.as_str(),
        Way::Publish => "the bus",
        Way::Nowhere => "-",
    };
    let error = match letter.reason.is_empty() {
        true => letter.error.clone(),
        false => format!("{}: {}", letter.error, letter.reason.chars().take(80).collect::<String>()),
    };
    [
        letter.message.id.chars().take(SHOWN).collect(),
        in_words(now.duration_since(letter.message.sent)),
        letter.queue.as_str().to_owned(),
        goes_to.to_owned(),
        letter.about(),
        error,
        counted(letter.attempts),
        counted(letter.message.looks),
        letter.advice(),
    ]
}

fn counted(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Ids of letters that something was done with, and those that stay, with the reason.
#[derive(Default)]
struct Handled {
    done: Vec<String>,
    left: Vec<(String, String)>,
    /// Those that were not tried, where letters were not named.
    left_out: Option<Vec<(String, String)>>,
    /// True if there are others, which were not looked at.
    more: bool,
}

impl Handled {
    /// It in JSON, with `what` for what was done.
    fn into_json(self, what: &str) -> Value {
        let told = |letters: Vec<(String, String)>| {
            letters.into_iter().map(|(id, why)| json!({ "id": id, "why": why })).collect::<Vec<_>>()
        };
        let mut fields = json!({ what: self.done, "left": told(self.left) });
        if let Some(left_out) = self.left_out {
            fields["left_out"] = told(left_out).into();
            fields["more"] = self.more.into();
        }
        fields
    }
}

/// Hands back those of which something comes, or all.
async fn redrive_all(post: &dyn Post, found: &FoundLetters, also_useless: bool) -> Handled {
    let (useless, useful): (Vec<_>, Vec<_>) = found.letters.iter().partition(|one| one.is_useless() && !also_useless);
    let left_out = useless.into_iter().map(|letter| (letter.message.id.clone(), letter.advice())).collect();
    Handled { left_out: Some(left_out), more: found.more, ..redrive(post, &useful).await }
}

/// Hands letters back, each before it is removed: what happens in between happens again, which no invocation minds.
async fn redrive(post: &dyn Post, letters: &[&DeadLetter]) -> Handled {
    let mut handled = Handled::default();
    for letter in letters {
        let id = letter.message.id.clone();
        match hand_back(post, letter).await {
            Ok(()) => handled.done.push(id),
            Err(why) => handled.left.push((id, why)),
        }
    }
    handled
}

async fn hand_back(post: &dyn Post, letter: &DeadLetter) -> Result<(), String> {
    match letter.way {
        Way::Call(taker) => post.call(taker, &letter.event).await,
        Way::Publish => post.publish(&letter.event).await,
        Way::Nowhere => return Err(letter.advice()),
    }
    .map_err(|error| error.to_string())?;
    post.remove(letter.queue, &letter.message).await.map_err(|error| format!("it was handed back, but stays: {error}"))
}

fn report(printer: &Printer, what: &str, handled: Handled) -> Result<(), LettersError> {
    let count = handled.left.len();
    printer.fields(&handled.into_json(what))?;
    if count == 0 { Ok(()) } else { Err(LettersError::Left(count)) }
}

#[cfg(test)]
mod tests;
