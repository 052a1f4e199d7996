//! A pause that expects several signals: each part has an address of its own, and it opens nothing else.

use dormouse_ports::Category;
use serde_json::{Value, json};

use crate::world::{World, path_of, refused};

/// A purchase that sleeps: its answer, and the path of each approver.
async fn asleep(world: &World) -> (Value, [String; 3]) {
    let state = json!({ "state": { "item": "a lathe", "amount_cents": 120_000 }, "invocation_id": "p1" });
    let answer = world.post("/graphs/purchase/turns", &state).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let paths = ["ada", "grace", "linus"].map(|part| path_of(&answer.body["callback_urls"][part]));
    (answer.body, paths)
}

#[tokio::test]
async fn each_approver_has_an_address() {
    let world = World::new();
    let (asleep, [ada, grace, linus]) = asleep(&world).await;
    assert!(asleep.get("callback_url").is_none(), "nobody answers for all: {asleep}");
    assert_eq!((&asleep["answered"], &asleep["missing"]), (&json!([]), &json!(["ada", "grace", "linus"])));
    let yes = json!({ "vote": "yes" });
    let first = world.post(&grace, &yes).await;
    assert_eq!((first.status, &first.body["status"]), (202, &json!("suspended")), "{}", first.body);
    assert_eq!((&first.body["accepted"], &first.body["repeated"]), (&json!("grace"), &json!(false)));
    assert_eq!(first.body["missing"], json!(["ada", "linus"]));
    assert_eq!(path_of(&first.body["callback_url"]), grace, "one's own");
    assert!(first.body.get("callback_urls").is_none(), "and no other: {}", first.body);
    let other = world.post(&grace, &json!({ "vote": "no" })).await;
    refused(&other, 409, &Category::SuspensionRecordInvalid);
    let again = world.post(&grace, &yes).await;
    assert_eq!((&again.body["accepted"], &again.body["repeated"]), (&json!("grace"), &json!(true)));
    let status = world.get(&linus.replace("/callback/", "/invocations/")).await;
    assert_eq!((status.status, &status.body["answered"]), (200, &json!(["grace"])));
    let second = world.post(&ada, &yes).await;
    assert_eq!((second.status, &second.body["status"]), (200, &json!("completed")), "{}", second.body);
    let seen = world.get(&path_of(&asleep["status_url"])).await;
    assert_eq!(seen.body["state"]["result"], "a lathe bought for EUR 1200.00, approved by ada and grace");
    let late = world.post(&linus, &json!({ "vote": "no" })).await;
    refused(&late, 409, &Category::SuspensionRecordInvalid);
    assert_eq!((late.body.get("state"), late.body["error"].get("decided")), (None, None), "{}", late.body);
}

#[tokio::test]
async fn when_it_is_decided_another_answer_of_the_same_part_is_refused_and_the_same_is_repeated() {
    let world = World::new();
    let (_, [ada, grace, _]) = asleep(&world).await;
    let yes = json!({ "vote": "yes" });
    let no = json!({ "vote": "no" });
    assert_eq!(world.post(&ada, &yes).await.status, 202);
    let decides = world.post(&grace, &yes).await;
    assert_eq!((decides.status, &decides.body["repeated"]), (200, &json!(false)), "{}", decides.body);
    for path in [&ada, &grace] {
        let other = world.post(path, &no).await;
        refused(&other, 409, &Category::SuspensionRecordInvalid);
        assert_eq!(other.body["error"]["decided"], json!({ "vote": "yes" }), "{}", other.body);
        let misfit = world.post(path, &json!({ "vote": "perhaps" })).await;
        refused(&misfit, 409, &Category::SuspensionRecordInvalid);
        let again = world.post(path, &yes).await;
        assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)), "{}", again.body);
    }
}

#[tokio::test]
async fn one_no_is_enough() {
    let world = World::new();
    let (asleep, [_, _, linus]) = asleep(&world).await;
    let answer = world.post(&linus, &json!({ "vote": "no", "remark": "we have one" })).await;
    assert_eq!((answer.status, answer.body.get("state")), (200, None), "{}", answer.body);
    let answer = world.get(&path_of(&asleep["status_url"])).await;
    assert_eq!(answer.body["state"]["result"], "not bought: linus said no", "{}", answer.body);
    assert_eq!(answer.body["state"]["votes"]["answers"]["linus"]["remark"], "we have one");
}

#[tokio::test]
async fn the_address_of_a_part_opens_nothing_else() {
    let world = World::new();
    let (asleep, [ada, ..]) = asleep(&world).await;
    let before = world.written();
    let yes = json!({ "vote": "yes" });
    let plain = ada.split_once("&part=").expect("a part").0;
    for path in [plain.to_owned(), ada.replace("part=ada", "part=grace"), format!("{ada}&part=grace")] {
        refused(&world.post(&path, &yes).await, 404, &Category::NotFound);
    }
    let cancel = ada.replace("/callback/", "/invocations/").replace("?token", "/cancel?token");
    refused(&world.post(&cancel, &json!({})).await, 404, &Category::NotFound);
    // Whoever began it can look and cancel, and is told who may answer.
    let status = path_of(&asleep["status_url"]);
    refused(&world.post(&status.replace("/invocations/", "/callback/"), &yes).await, 404, &Category::NotFound);
    assert!(world.get(&status).await.body["callback_urls"]["linus"].is_string());
    refused(&world.post(&ada, &json!({ "vote": "perhaps" })).await, 422, &Category::SuspensionResumePayloadInvalid);
    assert_eq!(world.written(), before);
    let canceled = world.post(&path_of(&asleep["cancel_url"]), &json!({})).await;
    assert_eq!((canceled.status, &canceled.body["status"]), (200, &json!("canceled")), "{}", canceled.body);
    refused(&world.post(&ada, &yes).await, 410, &Category::InvocationCanceled);
}
