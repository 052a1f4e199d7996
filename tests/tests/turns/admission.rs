//! Who is let in when more is asked than can be done: lines of known length, fair turns, promises that spread.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_harness::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
use dormouse_testkit::ManualClock;
use futures::FutureExt;
use futures::future::BoxFuture;

type Entering<'a> = BoxFuture<'a, Result<Admitted<&'static str>, Overloaded>>;

const LIMITS: AdmissionLimits = AdmissionLimits { running: 2, running_per_key: 1, waiting: 6, waiting_per_key: 3 };
const PATIENT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(60), refusable: true };

fn admission(limits: AdmissionLimits) -> (Admission<&'static str>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    (Admission::new(limits, clock.clone()), clock)
}

/// Somebody who has come and stands in line, or is in already.
fn comes<'a>(admission: &'a Admission<&'static str>, key: &'static str) -> Entering<'a> {
    let mut entering = admission.enter(key, PATIENT).boxed();
    match entering.as_mut().now_or_never() {
        Some(done) => futures::future::ready(done).boxed(),
        None => entering,
    }
}

fn is_in(entering: &mut Entering<'_>) -> Option<Admitted<&'static str>> {
    entering.as_mut().now_or_never().map(Result::unwrap)
}

#[tokio::test]
async fn each_key_is_served_in_the_order_of_coming_and_one_at_a_time() {
    let (admission, _clock) = admission(LIMITS);
    let first = comes(&admission, "a").await.unwrap();
    let mut second = comes(&admission, "a");
    let mut third = comes(&admission, "a");
    assert!(is_in(&mut second).is_none() && is_in(&mut third).is_none());
    drop(first);
    assert!(is_in(&mut third).is_none(), "the second came before");
    let second = is_in(&mut second).unwrap();
    assert!(is_in(&mut third).is_none());
    drop(second);
    assert!(is_in(&mut third).is_some());
}

#[tokio::test]
async fn a_key_with_a_long_line_does_not_keep_others_out() {
    let (admission, _clock) = admission(LIMITS);
    let busy = comes(&admission, "loud").await.unwrap();
    let mut loud: Vec<_> = (0..3).map(|_| comes(&admission, "loud")).collect();
    let quiet = comes(&admission, "quiet").await.unwrap();
    let mut next = comes(&admission, "next");
    assert!(is_in(&mut next).is_none(), "two are in");
    drop(quiet);
    let next = is_in(&mut next).unwrap();
    drop((busy, next));
    assert!(is_in(&mut loud[0]).is_some());
}

#[tokio::test]
async fn behind_the_end_of_a_line_somebody_is_refused_at_once() {
    let (admission, _clock) = admission(LIMITS);
    let _in = [comes(&admission, "a").await.unwrap(), comes(&admission, "b").await.unwrap()];
    let _lines: Vec<_> = ["a", "a", "a", "b", "b", "b"].map(|key| comes(&admission, key)).into();
    let refused = comes(&admission, "a").now_or_never().unwrap().unwrap_err();
    assert!(refused.retry_after >= Duration::from_secs(1));
    assert!(comes(&admission, "c").now_or_never().unwrap().is_err(), "six wait in all");
}

#[tokio::test]
async fn what_is_accepted_already_is_not_refused() {
    let (admission, _clock) = admission(AdmissionLimits { waiting: 0, waiting_per_key: 0, ..LIMITS });
    let busy = comes(&admission, "a").await.unwrap();
    assert!(comes(&admission, "a").now_or_never().unwrap().is_err());
    let mut waits = admission.enter("a", AdmissionWait { refusable: false, ..PATIENT }).boxed();
    assert!(is_in(&mut waits).is_none());
    drop(busy);
    assert!(is_in(&mut waits).is_some());
}

#[tokio::test]
async fn who_waits_too_long_is_refused_and_leaves_the_line() {
    let (admission, clock) = admission(LIMITS);
    let busy = comes(&admission, "a").await.unwrap();
    let late = comes(&admission, "a");
    let mut patient = comes(&admission, "a");
    // The clock wakes both; the second one looks only after the first has gone.
    clock.advance(Duration::from_secs(30));
    let mut fresh = comes(&admission, "a");
    clock.advance(Duration::from_secs(30));
    assert!(late.now_or_never().unwrap().is_err());
    assert!(patient.as_mut().now_or_never().unwrap().is_err());
    drop(busy);
    assert!(is_in(&mut fresh).is_some());
}

#[tokio::test]
async fn who_goes_away_holds_nothing() {
    let (admission, _clock) = admission(LIMITS);
    let busy = comes(&admission, "a").await.unwrap();
    let gone = comes(&admission, "a");
    let mut next = comes(&admission, "a");
    // Called, and gone before it could hear so.
    drop(busy);
    drop(gone);
    let next = is_in(&mut next).unwrap();
    // Gone before it was called.
    drop(comes(&admission, "a"));
    drop(next);
    assert!(comes(&admission, "a").now_or_never().unwrap().is_ok());
    assert_eq!(format!("{admission:?}"), "Admission { running: 0, waiting: 0 }");
}

#[tokio::test]
async fn promises_follow_the_pace_of_the_work_and_spread() {
    let (admission, clock) =
        admission(AdmissionLimits { running: 4, running_per_key: 4, waiting: 0, waiting_per_key: 0 });
    for _ in 0..200 {
        let work: Vec<_> = (0..4).map(|_| comes(&admission, "a")).collect();
        let work = futures::future::join_all(work).await;
        clock.advance(Duration::from_secs(2));
        drop(work);
    }
    let work = futures::future::join_all((0..4).map(|_| comes(&admission, "a"))).await;
    // Two in a second are done.
    let mut promised = Vec::new();
    for _ in 0..60 {
        promised.push(comes(&admission, "a").await.unwrap_err().retry_after.as_secs());
    }
    assert!((1..=4).contains(&promised[0]), "{promised:?}");
    assert!((28..=34).contains(&promised[59]), "half a second each: {promised:?}");
    for _ in 0..1000 {
        promised.push(comes(&admission, "a").await.unwrap_err().retry_after.as_secs());
    }
    assert!(promised.iter().all(|seconds| (1..=60).contains(seconds)));
    let apart: BTreeSet<_> = promised[60..].iter().collect();
    assert!(apart.len() >= 30, "those who are told much later do not come back together either: {apart:?}");
    drop(work);
}
