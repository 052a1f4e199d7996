//! Runs whose model works in the background: they sleep, and look now and then whether there is an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dormouse::json;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CompletionRequest, ModelError, ModelErrorCategory, StartedJob,
};

use crate::cast::{ScriptedModel, calls, contents, message, says};
use crate::runs::{MATTER, asleep, bed_with, mailer};

/// A model that works in the background: the first job is done when it is looked at for the fifth time, later ones never.
#[derive(Default)]
struct Slow {
    begun: AtomicUsize,
    looks: AtomicUsize,
    canceled: Mutex<Vec<String>>,
}

#[async_trait]
impl BackgroundProvider for Slow {
    async fn start(&self, _: &CompletionRequest, _: &str) -> Result<StartedJob, ModelError> {
        Ok(StartedJob::running(format!("job-{}", self.begun.fetch_add(1, Ordering::Relaxed) + 1)))
    }

    async fn poll(&self, job: &BackgroundJob, _: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(match job.id == "job-1" && looks == 5 {
            true => BackgroundStatus::Completed(Box::new(calls(&[("c1", "look", json!({ "to": "x" }))]))),
            false => BackgroundStatus::Running,
        })
    }

    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError> {
        self.canceled.lock().expect("not poisoned").push(job.id.clone());
        Ok(())
    }
}

#[test]
fn a_run_whose_model_thinks_in_the_background_ends_when_its_own_time_is_over() {
    let (slow, tools) = (Arc::new(Slow::default()), mailer());
    let provider = slow.clone();
    let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
    let mut bed = bed_with("policy: {run_timeout_seconds: 100}", &model, &tools, move |parts| {
        parts.model.background = Some(provider.clone());
    });
    let run = bed.start("helper", message("look"));
    // It is looked at after 2, 3, 5, 10 and 20 seconds.
    bed.pass(Duration::from_secs(40));
    assert_eq!((tools.made().len(), slow.begun.load(Ordering::Relaxed)), (1, 2), "the first one has answered");
    bed.pass(Duration::from_secs(59));
    assert!(bed.status(&run).is_asleep() && slow.canceled.lock().unwrap().is_empty());
    bed.pass(Duration::from_secs(1));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["dormouse_shortfall"]["code"]), (&json!("time"), &json!("time")));
    assert_eq!((&state["usage"]["active_ms"], &state["thinking"]), (&json!(100_000), &json!(null)));
    assert_eq!(*slow.canceled.lock().unwrap(), ["job-2"], "its provider need not go on");
}

/// A model in the background whose provider has other things to say for a while, and then the answer.
#[derive(Default)]
struct Confused {
    failures: usize,
    status: Option<u16>,
    begun: AtomicUsize,
    looks: AtomicUsize,
    canceled: AtomicUsize,
}

#[async_trait]
impl BackgroundProvider for Confused {
    async fn start(&self, _: &CompletionRequest, _: &str) -> Result<StartedJob, ModelError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(StartedJob::running("job-1"))
    }

    async fn poll(&self, _: &BackgroundJob, _: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        if self.looks.fetch_add(1, Ordering::Relaxed) >= self.failures {
            return Ok(BackgroundStatus::Completed(Box::new(says("thought through"))));
        }
        let category = match self.status {
            Some(401) => ModelErrorCategory::Authentication,
            Some(404) => ModelErrorCategory::InvalidRequest,
            _ => ModelErrorCategory::InvalidResponse,
        };
        let mut error = ModelError::new(category, "a page of somebody else's");
        error.status = self.status;
        Err(error)
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        self.canceled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A provider of jobs that have ended when they are handed over, so; it keeps none of them.
struct AtOnce {
    ends: Mutex<Vec<BackgroundStatus>>,
    keys: Mutex<Vec<String>>,
}

#[async_trait]
impl BackgroundProvider for AtOnce {
    async fn start(&self, _: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError> {
        self.keys.lock().expect("not poisoned").push(key.rsplit('/').next().unwrap_or_default().to_owned());
        let status = self.ends.lock().expect("not poisoned").remove(0);
        Ok(StartedJob { status, ..StartedJob::running("job") })
    }

    async fn poll(&self, _: &BackgroundJob, _: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        panic!("nothing is kept")
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        panic!("nothing is kept")
    }
}

#[test]
fn an_answer_that_is_there_when_the_work_is_handed_over_is_taken_and_a_job_that_has_failed_is_begun_again() {
    let oops = ModelError::new(ModelErrorCategory::Unavailable, "oops");
    let provider = Arc::new(AtOnce {
        ends: Mutex::new(vec![
            BackgroundStatus::Failed(Box::new(oops)),
            BackgroundStatus::Canceled,
            BackgroundStatus::Completed(Box::new(calls(&[("c1", "look", json!({ "to": "x" }))]))),
            BackgroundStatus::Completed(Box::new(says("thought through"))),
        ]),
        keys: Mutex::default(),
    });
    let (asked, tools) = (provider.clone(), mailer());
    let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
    let mut bed = bed_with(MATTER, &model, &tools, move |parts| {
        parts.model.background = Some(asked.clone());
    });
    let run = bed.start("helper", message("think"));
    bed.pass(Duration::from_secs(3_600));
    let state = bed.status(&run).completed();
    assert_eq!(
        (contents(&state, "assistant").last().map(String::as_str), tools.made().len()),
        (Some("thought through"), 1)
    );
    assert_eq!(
        *provider.keys.lock().unwrap(),
        ["model-1", "model-2", "model-3", "model-1"],
        "each job has a key of its own"
    );
}

#[test]
fn a_provider_that_does_not_tell_how_a_job_stands_is_asked_again_and_told_when_nobody_waits_any_more() {
    for (status, failures, words, looks, canceled, begun) in [
        (None, 3, None, 4, 0, 1),
        (Some(401), 12, None, 13, 0, 1),
        // The job is kept until the key is mended.
        (Some(401), 16, None, 17, 0, 1),
        (None, 1000, Some("a page of somebody else's"), 13, 1, 1),
        (Some(404), 1, None, 2, 0, 1),
        // A job that is forgotten is begun once more, and not for ever.
        (Some(404), 2, None, 3, 0, 2),
        (Some(404), 1000, Some("does not know the model call `job-1` any more"), 4, 0, 2),
    ] {
        let confused = Arc::new(Confused { failures, status, ..Confused::default() });
        let provider = confused.clone();
        let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
        let mut bed = bed_with(MATTER, &model, &mailer(), move |parts| {
            parts.model.background = Some(provider.clone());
        });
        let run = bed.start("helper", message("think"));
        bed.pass(Duration::from_secs(3_600));
        match words {
            None => assert_eq!(contents(&bed.status(&run).completed(), "assistant"), ["thought through"]),
            Some(words) => {
                let told = format!("{:?}", bed.status(&run));
                assert!(told.contains(words), "{told}");
            }
        }
        let seen = (confused.looks.load(Ordering::Relaxed), confused.canceled.load(Ordering::Relaxed));
        assert_eq!(seen, (looks, canceled), "{status:?} {failures}");
        assert_eq!(confused.begun.load(Ordering::Relaxed), begun, "{status:?} {failures}");
    }
}

#[test]
fn whoever_looks_at_a_run_of_whose_job_nobody_tells_sees_why() {
    let provider = Arc::new(Confused { failures: 1000, status: Some(401), ..Confused::default() });
    let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
    let mut bed = bed_with(MATTER, &model, &mailer(), move |parts| {
        parts.model.background = Some(provider.clone());
    });
    let run = bed.start("helper", message("think"));
    assert_eq!(asleep(&bed, &run).1["description"], "The model thinks");
    bed.pass(Duration::from_secs(3_600));
    let (_, waits) = asleep(&bed, &run);
    assert_eq!((&waits["kind"], &waits["reason"]), (&json!("model"), &json!("a page of somebody else's")));
    assert!(waits["description"].as_str().unwrap().contains("does not tell how far the model is: a page"), "{waits:?}");
}

/// A model in the background whose second job ends since the account has no money.
#[derive(Default)]
struct Poor(AtomicUsize);

#[async_trait]
impl BackgroundProvider for Poor {
    async fn start(&self, _: &CompletionRequest, _: &str) -> Result<StartedJob, ModelError> {
        Ok(StartedJob::running(format!("job-{}", self.0.fetch_add(1, Ordering::Relaxed) + 1)))
    }

    async fn poll(&self, job: &BackgroundJob, _: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        Ok(match job.id.as_str() {
            "job-1" => BackgroundStatus::Completed(Box::new(calls(&[("c1", "look", json!({ "to": "x" }))]))),
            "job-2" => {
                let error = ModelError::new(ModelErrorCategory::RateLimit, "there is no money");
                BackgroundStatus::Failed(Box::new(ModelError { may_pass: Some(false), ..error }))
            }
            _ => BackgroundStatus::Completed(Box::new(says("thought through"))),
        })
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        panic!("each job has ended")
    }
}

#[test]
fn a_job_that_ended_for_want_of_money_is_begun_anew_once_there_is_some() {
    let (poor, tools) = (Arc::new(Poor::default()), mailer());
    let provider = poor.clone();
    let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
    let mut bed = bed_with(MATTER, &model, &tools, move |parts| {
        parts.model.background = Some(provider.clone());
    });
    let run = bed.start("helper", message("look"));
    bed.pass(Duration::from_secs(30));
    let (_, waits) = asleep(&bed, &run);
    assert_eq!((&waits["needs_mending"], &waits["reason"]), (&json!(true), &json!("there is no money")));
    bed.pass(Duration::from_secs(120));
    let said = contents(&bed.status(&run).completed(), "assistant");
    assert_eq!((said.last().map(String::as_str), tools.made().len()), (Some("thought through"), 1));
    assert_eq!(poor.0.load(Ordering::Relaxed), 3);
}

/// A model in the background that begins each job, and ends it behind the first one since the account has no money.
#[derive(Default)]
struct Penniless(AtomicUsize);

#[async_trait]
impl BackgroundProvider for Penniless {
    async fn start(&self, _: &CompletionRequest, _: &str) -> Result<StartedJob, ModelError> {
        Ok(StartedJob::running(format!("job-{}", self.0.fetch_add(1, Ordering::Relaxed) + 1)))
    }

    async fn poll(&self, job: &BackgroundJob, _: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        if job.id == "job-1" {
            return Ok(BackgroundStatus::Completed(Box::new(calls(&[("c1", "look", json!({ "to": "x" }))]))));
        }
        let error = ModelError::new(ModelErrorCategory::RateLimit, "there is no money");
        Ok(BackgroundStatus::Failed(Box::new(ModelError { may_pass: Some(false), ..error })))
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        panic!("each job has ended")
    }
}

#[test]
fn a_job_that_ends_for_want_of_money_is_begun_every_hour_for_a_week_and_not_every_minute() {
    let penniless = Arc::new(Penniless::default());
    let provider = penniless.clone();
    let model = ScriptedModel::new(|_| panic!("it is asked in the background"));
    let mut bed = bed_with(MATTER, &model, &mailer(), move |parts| {
        parts.model.background = Some(provider.clone());
    });
    let run = bed.start("helper", message("look"));
    bed.pass_days(1);
    let begun = penniless.0.load(Ordering::Relaxed);
    assert!((20..=29).contains(&begun), "{begun} jobs in a day");
    bed.pass_days(6);
    assert!(bed.status(&run).is_asleep());
    bed.pass_days(1);
    assert_eq!(bed.status(&run).failed().category, "limit_exceeded");
}
