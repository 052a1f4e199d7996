//! Models that cannot be asked now: how long a run rests, what ends its rest, and what ends the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cast::{ScriptedModel, calls, contents, message, results, says};
use crate::runs::{APPROVED, MATTER, asleep, bed, bed_with, mailer};
use dormouse::json;
use dormouse_ports::model::{ModelError, ModelErrorCategory};

#[test]
fn a_model_that_cannot_be_asked_is_asked_later() {
    let busy = || ModelError::new(ModelErrorCategory::RateLimit, "slow down");
    let model = ScriptedModel::playing(vec![Err(busy()), Err(busy()), Ok(says("hello"))]);
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("hi"));
    assert!(bed.status(&run).is_asleep());
    bed.pass(Duration::from_secs(30));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(model.calls(), 3);
    let told = |seconds| {
        let mut error = busy();
        error.retry_after = Some(Duration::from_secs(seconds));
        Err(error)
    };
    let model = ScriptedModel::playing(vec![told(5_000), Ok(says("hello"))]);
    let mut patient = bed_with(MATTER, &model, &mailer(), |_| {});
    let run = patient.start("helper", message("hi"));
    patient.pass(Duration::from_secs(4_999));
    assert_eq!((patient.status(&run).is_asleep(), model.calls()), (true, 1), "it is not asked before");
    patient.pass(Duration::from_secs(1));
    assert_eq!((&patient.status(&run).completed()["reason"], model.calls()), (&json!("completed"), 2));
    let model = ScriptedModel::playing(vec![told(90_000)]);
    let mut hasty = bed_with(MATTER, &model, &mailer(), |_| {});
    let refused = hasty.try_start("helper", message("hi")).expect_err("nobody waits as long");
    assert!(refused.message.contains("in 90000 seconds"), "{refused:?}");
    let wrong_key = ModelError::new(ModelErrorCategory::Authentication, "the key was refused");
    let model = ScriptedModel::playing(vec![Err(wrong_key)]);
    let mut bed = bed_with(MATTER, &model, &mailer(), |_| {});
    let run = bed.try_start("helper", message("hi"));
    let refused = run.expect_err("an operator has to act");
    assert!(refused.message.contains("the key was refused"), "{refused:?}");
    assert_eq!(refused.category, "provider_authentication");
}

/// The error of a provider that takes nothing until somebody mends what is wrong there.
fn refusal(category: ModelErrorCategory) -> ModelError {
    ModelError { may_pass: Some(false), ..ModelError::new(category, "the account does not take this") }
}

#[test]
fn a_run_whose_model_refuses_what_somebody_can_mend_sleeps_until_that_is_mended() {
    // Behind an approval the key, the model or the money is gone for two days.
    for category in
        [ModelErrorCategory::Authentication, ModelErrorCategory::InvalidModel, ModelErrorCategory::RateLimit]
    {
        let is_mended = Arc::new(AtomicBool::new(true));
        let mended = is_mended.clone();
        let model =
            ScriptedModel::new(move |request| match (mended.load(Ordering::Relaxed), results(request).last()) {
                (false, _) => Err(refusal(category)),
                (true, None) => Ok(calls(&[("c1", "send", json!({ "to": "ada" }))])),
                (true, Some(result)) => Ok(says(&format!("done: {result}"))),
            });
        let tools = mailer();
        let mut bed = bed(APPROVED, &model, &tools);
        let run = bed.start("helper", message("write to ada"));
        is_mended.store(false, Ordering::Relaxed);
        bed.answer(&run, json!({ "decision": "approve" })).unwrap();
        bed.pass_days(2);
        let (_, waits) = asleep(&bed, &run);
        assert_eq!((&waits["kind"], &waits["reason"]), (&json!("rest"), &json!("the account does not take this")));
        let told =
            "The model refuses to be asked: the account does not take this\nThe run tries again now and then, until";
        assert!(waits["description"].as_str().unwrap().starts_with(told), "{waits:?}");
        assert_eq!(waits["needs_mending"], json!(true));
        is_mended.store(true, Ordering::Relaxed);
        // An operator need not wait for the next attempt.
        bed.answer(&run, json!({})).unwrap();
        let state = bed.status(&run).completed();
        assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done: send to \"ada\""));
        assert_eq!((tools.made().len(), &state["steps"]), (1, &json!(2)), "{category:?}");
    }
}

#[test]
fn a_provider_that_asks_for_rests_of_hours_is_given_up_behind_a_week_too() {
    let busy = ModelError::new(ModelErrorCategory::Unavailable, "busy");
    let refused = refusal(ModelErrorCategory::Authentication);
    for (error, category) in [(busy, "limit_exceeded"), (refused, "provider_authentication")] {
        for hours in [6, 24] {
            let asking = ModelError { retry_after: Some(Duration::from_secs(hours * 60 * 60)), ..error.clone() };
            let model = ScriptedModel::new(move |request| match results(request).is_empty() {
                true => Ok(calls(&[("c1", "look", json!({ "to": "ada" }))])),
                false => Err(asking.clone()),
            });
            let mut bed = bed(MATTER, &model, &mailer());
            let run = bed.start("helper", message("look"));
            bed.pass_days(6);
            assert!(bed.status(&run).is_asleep(), "{category}, {hours} hours");
            bed.pass_days(3);
            assert_eq!(bed.status(&run).failed().category, category, "{hours} hours");
        }
    }
}

#[test]
fn a_model_that_is_away_behind_a_refusal_is_not_said_to_need_mending() {
    let look = calls(&[("c1", "look", json!({ "to": "ada" }))]);
    let busy = ModelError::new(ModelErrorCategory::Unavailable, "busy");
    let refused = refusal(ModelErrorCategory::Authentication);
    let model = ScriptedModel::playing(vec![Ok(look), Err(refused), Err(busy), Ok(says("done"))]);
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look"));
    assert_eq!(asleep(&bed, &run).1["needs_mending"], json!(true));
    bed.answer(&run, json!({})).unwrap();
    let (_, waits) = asleep(&bed, &run);
    assert_eq!((&waits["description"], &waits["reason"]), (&json!("The model cannot be asked now"), &json!("busy")));
    assert_eq!((waits.get("needs_mending"), waits.get("may_be_paid")), (None, None));
    bed.answer(&run, json!({})).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
}

#[test]
fn a_run_whose_model_refuses_to_be_asked_for_a_week_fails_as_its_provider_says() {
    let model = ScriptedModel::new(|request| match results(request).is_empty() {
        true => Ok(calls(&[("c1", "look", json!({ "to": "ada" }))])),
        false => Err(refusal(ModelErrorCategory::Authentication)),
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look"));
    bed.pass_days(7);
    assert!(bed.status(&run).is_asleep());
    bed.pass_days(1);
    assert_eq!(bed.status(&run).failed().category, "provider_authentication");
}

/// Whatever a user says to it has it try at once.
#[test]
fn attempts_that_somebody_has_a_run_make_take_nothing_from_the_week_of_a_refusal() {
    let model = ScriptedModel::new(|request| match results(request).is_empty() {
        true => Ok(calls(&[("c1", "look", json!({ "to": "ada" }))])),
        false => Err(refusal(ModelErrorCategory::Authentication)),
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("look"));
    for said in 0..200 {
        assert!(bed.status(&run).is_asleep(), "behind {said} words");
        bed.answer(&run, json!({})).unwrap();
    }
    assert_eq!(model.calls(), 202);
    bed.pass_days(6);
    assert!(bed.status(&run).is_asleep());
    bed.pass_days(2);
    assert_eq!(bed.status(&run).failed().category, "provider_authentication");
}
