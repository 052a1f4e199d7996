//! Who may begin turns and send messages, and whose sessions are reached.

use std::time::Duration;

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_http::{Authorization, Request};
use dormouse_ports::{
    Cancellation, Category, Clock, Commit, Commits, InvocationWrite, Journal, PausedInvocation, Sessions,
    SignalDescriptor, SuspendFrom, owned,
};
use dormouse_protocol::Scope;
use dormouse_tests::HttpAnswer;
use serde_json::{Value, json};

use crate::world::{World, header, path_of, refused, request};

const TURNS: &str = "/graphs/approval/turns";
const CHAT_TURNS: &str = "/graphs/chat/turns";
const MESSAGES: &str = "/chat/chat/sessions/team/7/messages";

/// What a key may do that is for whoever begins turns and chats.
const WORK: [Scope; 2] = [Scope::SessionsWrite, Scope::TasksWrite];

async fn keep(world: &World, id: &str, journal: Journal) {
    let commit = Commit { journal, ..Commit::new(id, world.clock.now()) };
    world.store.commit(&commit).await.expect("it is kept");
}

/// The key number `number`, with what it lets its holder do.
async fn key(world: &World, number: u8, grant: Grant) -> KeyToken {
    let token = KeyToken::generate([number; CHANCE]);
    keep(world, &format!("key {number}"), Keys::creation(&token, grant, world.clock.now())).await;
    token
}

fn grant(actor: &str, scopes: &[Scope]) -> Grant {
    let actor = actor.to_owned();
    let tenant = "acme".to_owned();
    Grant { actor, tenant, workspaces: None, scopes: scopes.iter().copied().collect(), expires_at: None }
}

fn with_key(path: &str, token: &KeyToken, body: &Value) -> Request {
    let mut request = request("POST", path, body.to_string().as_bytes());
    request.headers.push(("authorization".to_owned(), format!("Bearer {}", token.reveal())));
    request
}

async fn post(world: &World, path: &str, token: &KeyToken, body: &Value) -> HttpAnswer {
    world.http(with_key(path, token, body)).await
}

fn order(id: &str) -> Value {
    json!({ "state": { "order": id, "amount": 7 }, "invocation_id": id })
}

/// The id under which the invocation is stored that keys of acme call `id`.
fn stored(id: &str) -> String {
    owned::invocation("acme", id).to_string()
}

fn says(words: &str) -> Value {
    json!({ "role": "user", "content": words })
}

fn messages(answer: &HttpAnswer) -> Option<usize> {
    answer.body["final_state"]["messages"].as_array().map(Vec::len)
}

#[tokio::test]
async fn whoever_proves_nothing_begins_nothing() {
    let world = World::asking_for(Authorization::Keys);
    let revoked = key(&world, 1, grant("ada", &WORK)).await;
    let keys = Keys::new(world.store.clone());
    let revocation = keys.revocation(revoked.id(), world.clock.now()).await.expect("the store answers");
    keep(&world, "revocation", revocation.expect("there is a key")).await;
    let end = world.clock.now() + Duration::from_secs(60);
    let expired = key(&world, 2, Grant { expires_at: Some(end), ..grant("ada", &WORK) }).await;
    world.clock.advance(Duration::from_secs(60));
    let good = key(&world, 3, grant("ada", &WORK)).await.reveal();
    let wrong = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    let unknown = KeyToken::generate([9; CHANCE]).reveal();
    let presented = [
        None,
        Some(good.clone()),
        Some(format!("Basic {good}")),
        Some(format!("Bearer {}", crate::world::KEY)),
        Some(format!("Bearer {wrong}")),
        Some(format!("Bearer {unknown}")),
        Some(format!("Bearer {}", revoked.reveal())),
        Some(format!("Bearer {}", expired.reveal())),
    ];
    let before = world.written();
    let mut told = Vec::new();
    for authorization in presented {
        // Neither the graph nor the body is looked at before.
        for (path, body) in [(TURNS, order("o1")), (MESSAGES, says("hi")), ("/graphs/none/turns", json!([]))] {
            let mut request = request("POST", path, body.to_string().as_bytes());
            let header_of = |value: &String| ("authorization".to_owned(), value.clone());
            request.headers.extend(authorization.as_ref().map(header_of));
            let answer = world.http(request).await;
            told.push(refused(&answer, 401, &Category::Unauthorized));
            assert_eq!(header(&answer, "www-authenticate"), Some("Bearer realm=\"dormouse\""), "{authorization:?}");
        }
    }
    assert_eq!(world.written(), before);
    told.dedup();
    assert_eq!(told.len(), 1, "no refusal tells what is wrong with a key: {told:?}");
    let token = KeyToken::parse(&good).expect("a key");
    assert_eq!(post(&world, TURNS, &token, &order("o1")).await.status, 202);
}

#[tokio::test]
async fn a_key_needs_the_scopes_and_all_workspaces() {
    let world = World::asking_for(Authorization::Keys);
    let reads = key(&world, 1, grant("ada", &[Scope::TasksRead, Scope::SessionsRead])).await;
    let submits = key(&world, 2, grant("ada", &[Scope::TasksWrite])).await;
    let says_only = key(&world, 3, grant("ada", &[Scope::SessionsWrite])).await;
    let workspaces = Some([dormouse_protocol::id::WorkspaceId::from("workspace_1".to_owned())].into());
    let bound = key(&world, 4, Grant { workspaces, ..grant("ada", &WORK) }).await;
    let before = world.written();
    let turns = [(&reads, "tasks:write"), (&says_only, "tasks:write")].map(|pair| (TURNS, order("o1"), pair));
    let chats = [(&reads, "sessions:write"), (&submits, "sessions:write"), (&says_only, "tasks:write")];
    let chats = chats.map(|pair| (MESSAGES, says("hi"), pair));
    for (path, body, (token, scope)) in turns.into_iter().chain(chats) {
        let answer = post(&world, path, token, &body).await;
        let message = refused(&answer, 403, &Category::Unauthorized);
        assert!(message.contains(scope), "{message}");
        let challenge = format!("Bearer realm=\"dormouse\", error=\"insufficient_scope\", scope=\"{scope}\"");
        assert_eq!(header(&answer, "www-authenticate"), Some(challenge.as_str()));
    }
    for (path, body) in [(TURNS, order("o1")), (MESSAGES, says("hi"))] {
        let message = refused(&post(&world, path, &bound, &body).await, 403, &Category::Unauthorized);
        assert!(message.contains("some workspaces only"), "{message}");
    }
    assert_eq!(world.written(), before);
    assert_eq!(post(&world, TURNS, &submits, &order("o1")).await.status, 202);
}

#[tokio::test]
async fn a_session_belongs_to_who_began_it() {
    let world = World::asking_for(Authorization::Keys);
    let ada = key(&world, 1, grant("ada", &WORK)).await;
    let ada_again = key(&world, 2, grant("ada", &WORK)).await;
    let grace = key(&world, 3, grant("grace", &WORK)).await;
    let cousin = key(&world, 4, Grant { tenant: "other".to_owned(), ..grant("ada", &WORK) }).await;
    let first = post(&world, MESSAGES, &ada, &says("hi")).await;
    assert_eq!((first.status, &first.body["session_id"]), (200, &json!("team/7")), "{}", first.body);
    assert_eq!(messages(&post(&world, MESSAGES, &ada_again, &says("again")).await), Some(4), "another key of hers");
    for stranger in [&grace, &cousin] {
        let other = post(&world, MESSAGES, stranger, &says("hello")).await;
        assert_eq!((messages(&other), &other.body["session_id"]), (Some(2), &json!("team/7")), "{}", other.body);
    }
    // A turn reaches the same session by the same name, and no other principal's.
    let turn = json!({ "state": { "messages": [says("more")] }, "session_id": "team/7", "intent": "existing_session" });
    for (who, length) in [(&ada, 6), (&grace, 4)] {
        let answer = post(&world, CHAT_TURNS, who, &turn).await;
        assert_eq!(answer.body["state"]["messages"].as_array().map(Vec::len), Some(length), "{}", answer.body);
        assert_eq!(answer.body["session_id"], "team/7");
    }
    assert!(world.store.load_session(&"team/7".into(), None).await.expect("the store answers").record.is_none());
}

#[tokio::test]
async fn a_session_without_a_name_belongs_to_who_began_it_too() {
    let world = World::asking_for(Authorization::Keys);
    let ada = key(&world, 1, grant("ada", &WORK)).await;
    let grace = key(&world, 2, grant("grace", &WORK)).await;
    let begin = json!({ "state": { "messages": [says("hi")] } });
    let begun = post(&world, CHAT_TURNS, &ada, &begin).await;
    let name = begun.body["session_id"].as_str().expect("a session");
    assert!(!name.contains("owned_"), "{name}");
    let more = json!({ "state": begin["state"], "session_id": name, "intent": "existing_session" });
    for (who, length) in [(&ada, 4), (&grace, 2)] {
        let answer = post(&world, CHAT_TURNS, who, &more).await;
        assert_eq!(answer.body["state"]["messages"].as_array().map(Vec::len), Some(length), "{}", answer.body);
    }
    let nameless = json!({ "state": begin["state"], "intent": "existing_session" });
    refused(&post(&world, CHAT_TURNS, &ada, &nameless).await, 422, &Category::HarnessSessionIdUnresolved);
}

/// Everything that is answered on the way of a pause names the session as its owner does.
#[tokio::test]
async fn no_answer_shows_how_a_session_is_kept() {
    let world = World::asking_for(Authorization::Keys);
    let ada = key(&world, 1, grant("ada", &WORK)).await;
    let asleep = post(&world, MESSAGES, &ada, &says("it needs approval")).await;
    assert_eq!(asleep.status, 202, "{}", asleep.body);
    let status = path_of(&asleep.body["status_url"]);
    let callback = path_of(&asleep.body["callback_url"]);
    let seen = [world.get(&status).await, world.post(&callback, &json!({ "allowed": true })).await];
    let seen = [asleep].into_iter().chain(seen).chain([world.get(&status).await]);
    for answer in seen {
        assert_eq!(answer.body["session_id"], "team/7", "{}", answer.body);
        assert!(!format!("{answer:?}").contains("owned_"), "{}", answer.body);
    }
}

#[tokio::test]
async fn an_id_or_a_key_of_somebody_else_tells_nothing() {
    let world = World::asking_for(Authorization::Keys);
    let ada = key(&world, 1, grant("ada", &WORK)).await;
    let grace = key(&world, 2, grant("grace", &WORK)).await;
    let begun = post(&world, TURNS, &ada, &order("o1")).await;
    assert_eq!(begun.status, 202);
    let again = post(&world, TURNS, &ada, &order("o1")).await;
    assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)), "{}", again.body);
    let other = post(&world, TURNS, &grace, &order("o1")).await;
    refused(&other, 409, &Category::InvocationIdInUse);
    for secret in ["state", "callback_url", "status_url", "cancel_url", "amount"] {
        assert!(!other.body.to_string().contains(secret), "{}", other.body);
    }
    // The same idempotency key is another request of another principal.
    let keyed = |who: &KeyToken| {
        let mut request = with_key(TURNS, who, &json!({ "state": { "order": "k" } }));
        request.headers.push(("idempotency-key".to_owned(), "k1".to_owned()));
        request
    };
    let hers = world.http(keyed(&ada)).await;
    let theirs = world.http(keyed(&grace)).await;
    assert_eq!(hers.status, 202, "{}", hers.body);
    assert_ne!(hers.body["invocation_id"], theirs.body["invocation_id"], "{}", theirs.body);
    for name in ["idempotency-key", "authorization"] {
        let mut request = keyed(&ada);
        let one = request.headers.iter().find(|(given, _)| given == name).expect("a header").clone();
        request.headers.push(one);
        assert!(refused(&world.http(request).await, 400, &Category::RequestInvalid).contains(name));
    }
}

#[tokio::test]
async fn an_id_of_one_tenant_is_neither_known_to_another_nor_taken_by_it() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    let expense = |employee: &str| {
        let state = json!({ "employee": employee, "amount_cents": 12000, "purpose": "a keyboard" });
        json!({ "state": state, "invocation_id": "o1" })
    };
    let turns = "/graphs/expense-approval/turns";
    let ours = post(&world, turns, &acme, &expense("Ada")).await;
    let theirs = post(&world, turns, &globex, &expense("Eve")).await;
    assert_eq!((ours.status, theirs.status), (202, 202), "{}", theirs.body);
    for answer in [&ours, &theirs] {
        assert_eq!((&answer.body["invocation_id"], &answer.body["repeated"]), (&json!("o1"), &json!(false)));
    }
    let yes = json!({ "decision": "approved" });
    let answered = post(&world, "/signals/expense-o1", &globex, &yes).await;
    assert_eq!((answered.status, &answered.body["status"]), (200, &json!("delivered")), "{}", answered.body);
    let seen = async |answer: &HttpAnswer| {
        world.http(request("GET", &path_of(&answer.body["status_url"]), b"")).await.body["status"].clone()
    };
    assert_eq!((seen(&ours).await, seen(&theirs).await), (json!("suspended"), json!("completed")));
    for id in ["delivery_x", "task_x", &stored("o1"), &"a".repeat(181)] {
        let body = json!({ "state": expense("Ada")["state"], "invocation_id": id });
        refused(&post(&world, turns, &acme, &body).await, 400, &Category::RequestInvalid);
    }
    let longest = json!({ "state": expense("Ada")["state"], "invocation_id": "a".repeat(180) });
    let answer = post(&world, turns, &acme, &longest).await;
    assert_eq!(answer.status, 202, "the signal that is named after it fits: {}", answer.body);
}

#[tokio::test]
async fn sessions_and_correlations_may_be_called_as_deliveries_are() {
    let world = World::asking_for(Authorization::Keys);
    let ada = key(&world, 1, grant("ada", &WORK)).await;
    let id = "delivery_x";
    let begin = json!({ "state": { "messages": [says("hi")] }, "session_id": id, "correlation_id": id });
    let begun = post(&world, CHAT_TURNS, &ada, &begin).await;
    assert_eq!((begun.status, &begun.body["session_id"]), (200, &json!(id)), "{}", begun.body);
}

#[tokio::test]
async fn a_request_of_an_earlier_version_is_answered_under_the_id_that_it_had() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    // As the version before kept it.
    let elsewhere = World::asking_for(Authorization::Keys);
    let same = sender(&elsewhere, 1, "acme").await;
    assert_eq!(post(&elsewhere, TURNS, &same, &order("o1")).await.status, 202);
    let record = elsewhere.record(&stored("o1")).await;
    let paused = PausedInvocation { invocation_id: "o1".into(), ..record.paused };
    let descriptor = SignalDescriptor::new("approval-of-before");
    let paused = Box::new(PausedInvocation { descriptor, ..paused });
    let write = InvocationWrite::Suspend { paused, from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
    let commit = Commit { invocation: Some(write), ..Commit::new("of before", world.clock.now()) };
    world.store.commit(&commit).await.expect("it is kept");

    let again = post(&world, TURNS, &acme, &order("o1")).await;
    assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)), "{}", again.body);
    assert_eq!(again.body["waiting_for"]["signal_id"], "approval-of-before");
    let seen = world.http(request("GET", &path_of(&again.body["status_url"]), b"")).await;
    assert_eq!((seen.status, &seen.body["status"]), (200, &json!("suspended")));
    let other = json!({ "state": { "order": "another" }, "invocation_id": "o1" });
    refused(&post(&world, TURNS, &acme, &other).await, 409, &Category::InvocationIdInUse);
    let other = order("o1");
    let theirs = json!({ "state": { "order": "theirs" }, "invocation_id": other["invocation_id"] });
    let theirs = post(&world, TURNS, &globex, &theirs).await;
    assert_eq!((theirs.status, &theirs.body["repeated"]), (202, &json!(false)), "{}", theirs.body);
}

/// Cancels `id` with the key of the deployment.
async fn cancel(world: &World, id: &str, body: &Value) -> HttpAnswer {
    let mut request = request("POST", &format!("/invocations/{id}/cancel"), body.to_string().as_bytes());
    request.headers.push(("authorization".to_owned(), format!("Bearer {}", crate::world::KEY)));
    world.http(request).await
}

#[tokio::test]
async fn the_key_of_the_deployment_cancels_what_a_tenant_calls_so_if_it_names_the_tenant() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let begun = post(&world, TURNS, &acme, &order("o1")).await;
    assert_eq!((begun.status, &begun.body["invocation_id"]), (202, &json!("o1")), "{}", begun.body);
    let message = refused(&cancel(&world, "o1", &json!({})).await, 404, &Category::NotFound);
    assert!(message.contains("`tenant`"), "{message}");
    assert_eq!(post(&world, TURNS, &acme, &order("o1")).await.status, 202, "it sleeps on");
    let by_address = path_of(&begun.body["cancel_url"]);
    refused(&world.post(&by_address, &json!({ "tenant": "acme" })).await, 400, &Category::RequestInvalid);
    for (id, body) in
        [("o1", json!({ "tenant": "acme" })), ("o2", json!({ "tenant": "acme" })), (&stored("o3"), json!({}))]
    {
        let canceled = cancel(&world, id, &body).await;
        assert_eq!((canceled.status, &canceled.body["status"]), (200, &json!("canceled")), "{}", canceled.body);
    }
    for id in ["o1", "o2", "o3"] {
        refused(&post(&world, TURNS, &acme, &order(id)).await, 410, &Category::InvocationCanceled);
    }
    assert_eq!(cancel(&world, "o1", &json!({ "tenant": "acme" })).await.body["repeated"], true);
}

#[tokio::test]
async fn what_an_earlier_version_canceled_ahead_does_not_begin() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let cancellation = Cancellation { reason: None, at: world.clock.now() };
    let write = InvocationWrite::CancelBeforeStart { invocation_id: "o1".into(), cancellation };
    let commit = Commit { invocation: Some(write), ..Commit::new("of before", world.clock.now()) };
    world.store.commit(&commit).await.expect("it is kept");
    refused(&post(&world, TURNS, &acme, &order("o1")).await, 410, &Category::InvocationCanceled);
    assert_eq!(post(&world, TURNS, &acme, &order("o2")).await.status, 202);
}

#[tokio::test]
async fn a_signed_request_is_its_callers() {
    let world = World::asking_for(Authorization::AwsIam);
    let post = async |caller: Option<&str>, path: &str, body: &Value| {
        let request = request("POST", path, body.to_string().as_bytes());
        world.http(Request { caller: caller.map(str::to_owned), ..request }).await
    };
    let ada = Some("arn:aws:iam::123456789012:user/ada");
    let grace = Some("arn:aws:iam::123456789012:user/grace");
    let unsigned = post(None, TURNS, &order("o1")).await;
    refused(&unsigned, 401, &Category::Unauthorized);
    assert_eq!(header(&unsigned, "www-authenticate"), Some("AWS4-HMAC-SHA256"));
    assert_eq!(post(ada, TURNS, &order("o1")).await.status, 202);
    refused(&post(grace, TURNS, &order("o1")).await, 409, &Category::InvocationIdInUse);
    assert_eq!(messages(&post(ada, MESSAGES, &says("hi")).await), Some(2));
    assert_eq!(messages(&post(grace, MESSAGES, &says("hi")).await), Some(2));
    assert_eq!(messages(&post(ada, MESSAGES, &says("hi")).await), Some(4));
}

#[tokio::test]
async fn nobody_reaches_what_belongs_to_somebody() {
    let world = World::new();
    let stored = format!("owned_{}:team", "0123456789abcdef".repeat(2));
    for (path, body) in [
        (format!("/chat/chat/sessions/{stored}/messages"), says("hi")),
        (CHAT_TURNS.to_owned(), json!({ "session_id": stored })),
    ] {
        let message = refused(&world.post(&path, &body).await, 400, &Category::RequestInvalid);
        assert!(message.contains("`session_id` must not begin with `owned_`"), "{message}");
    }
    let answer = world.post(MESSAGES, &says("hi")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let kept = world.store.load_session(&"team/7".into(), None).await.expect("the store answers");
    assert!(kept.record.is_some(), "nobody's sessions are kept under the names that they are given");
}

/// A key of `tenant` that may begin turns and send signals.
async fn sender(world: &World, number: u8, tenant: &str) -> KeyToken {
    let scopes = [Scope::TasksWrite, Scope::SignalsWrite];
    key(world, number, Grant { tenant: tenant.to_owned(), ..grant("ada", &scopes) }).await
}

#[tokio::test]
async fn a_signal_with_a_tenants_key_reaches_only_what_the_tenant_began() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    assert_eq!(post(&world, TURNS, &acme, &order("o1")).await.status, 202);
    let decision = json!({ "decision": "yes" });
    // Whether somebody else waits for it is not to be seen.
    let theirs = post(&world, "/signals/approval-o1", &globex, &decision).await;
    let nobodys = post(&world, "/signals/approval-o2", &globex, &decision).await;
    assert_eq!((theirs.status, theirs.body["status"].as_str()), (202, Some("buffered")), "{}", theirs.body);
    assert_eq!(theirs.body["expires_at"], nobodys.body["expires_at"]);
    assert_eq!(theirs.body.as_object().map(serde_json::Map::len), nobodys.body.as_object().map(serde_json::Map::len));
    assert_eq!(world.continuations(), 0);
    // Nor is what that other tenant said in the way of the one that waits.
    let delivered = post(&world, "/signals/approval-o1", &acme, &json!({ "decision": "no" })).await;
    assert_eq!((delivered.status, &delivered.body["status"]), (200, &json!("delivered")), "{}", delivered.body);
    assert_eq!(delivered.body.get("state"), None, "who sends signals is not shown the state");
    assert_eq!(
        (world.continuations(), &world.record(&stored("o1")).await.status),
        (1, &completed(&world, &stored("o1")).await)
    );
    let again = post(&world, "/signals/approval-o1", &acme, &json!({ "decision": "no" })).await;
    assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)), "{}", again.body);
    // The key of the deployment reaches what tenants began, as before.
    assert_eq!(post(&world, TURNS, &globex, &order("o3")).await.status, 202);
    assert_eq!(world.signal("approval-o3", &decision).await.body["state"]["result"], "yes 7");
}

/// The status of `id`, which has completed.
async fn completed(world: &World, id: &str) -> dormouse_ports::InvocationStatus {
    let status = world.record(id).await.status;
    assert!(status.clone().into_final_state().is_some(), "{status:?}");
    status
}

#[tokio::test]
async fn where_signals_of_tenants_are_not_taken_their_waits_cost_nothing_and_their_keys_are_refused() {
    let world = World::made(Authorization::Keys, false);
    let acme = sender(&world, 1, "acme").await;
    assert_eq!(post(&world, TURNS, &acme, &order("o1")).await.status, 202);
    assert_eq!(world.record(&stored("o1")).await.paused.waits().count(), 1, "it has its plain name alone");
    let refusal = post(&world, "/signals/approval-o1", &acme, &json!({ "decision": "yes" })).await;
    assert!(refused(&refusal, 403, &Category::Unauthorized).contains("SIGNALS_OF_TENANTS=enabled"));
    assert_eq!(world.continuations(), 0);
    assert_eq!(world.signal("approval-o1", &json!({ "decision": "yes" })).await.status, 200);
}

#[tokio::test]
async fn an_early_signal_with_a_tenants_key_is_kept_for_that_tenant() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    for (token, word) in [(&globex, "stolen"), (&acme, "yes")] {
        let early = post(&world, "/signals/approval-o1", token, &json!({ "decision": word })).await;
        assert_eq!((early.status, &early.body["status"]), (202, &json!("buffered")), "{}", early.body);
    }
    let other = post(&world, "/signals/approval-o1", &acme, &json!({ "decision": "no" })).await;
    refused(&other, 400, &Category::RequestInvalid);
    let begun = post(&world, TURNS, &acme, &order("o1")).await;
    assert_eq!((begun.status, begun.body["state"]["result"].as_str()), (200, Some("yes 7")), "{}", begun.body);
    // What came for a tenant is never offered to who began in another way.
    let open = World::new();
    let stranger = sender(&open, 3, "globex").await;
    post(&open, "/signals/approval-o1", &stranger, &json!({ "decision": "stolen" })).await;
    assert_eq!(open.begun("o1").await["status"], "suspended");
    let decided = post(&open, "/signals/approval-o1", &stranger, &json!({ "decision": "stolen" })).await;
    assert_eq!((decided.status, &decided.body["status"]), (202, &json!("buffered")), "{}", decided.body);
    assert_eq!(open.continuations(), 0);
}

#[tokio::test]
async fn a_signal_with_a_tenants_key_answers_in_the_name_of_its_actor() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let expense = |id: &str| {
        let state = json!({ "employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard" });
        json!({ "state": state, "invocation_id": id })
    };
    let turns = "/graphs/expense-approval/turns";
    let answers = [json!({ "decision": "approved", "decided_by": "claims-ceo" }), json!({ "decision": "approved" })];
    for (place, answer) in answers.iter().enumerate() {
        let (early, late) = (format!("early{place}"), format!("late{place}"));
        let parked = post(&world, &format!("/signals/expense-{early}"), &acme, answer).await;
        assert_eq!(parked.status, 202, "{}", parked.body);
        assert_eq!(post(&world, turns, &acme, &expense(&early)).await.status, 200, "it takes up what was there");
        assert_eq!(post(&world, turns, &acme, &expense(&late)).await.status, 202);
        assert_eq!(post(&world, &format!("/signals/expense-{late}"), &acme, answer).await.status, 200);
        for id in [&early, &late] {
            let state = world.record(&stored(id)).await.status.into_final_state().expect("it has ended");
            assert_eq!(state["decided_by"], "ada", "{id}: {answer}");
        }
        let again = post(&world, &format!("/signals/expense-{late}"), &acme, answer).await;
        assert_eq!((again.status, &again.body["repeated"]), (200, &json!(true)), "{}", again.body);
    }
    // Who has the key of the deployment speaks for others.
    assert_eq!(post(&world, turns, &acme, &expense("o1")).await.status, 202);
    let signal = format!("expense-{}", stored("o1"));
    assert_eq!(world.signal(&signal, &answers[0]).await.body["state"]["decided_by"], "claims-ceo");
}

#[tokio::test]
async fn a_key_sends_signals_with_the_scope_for_it_only_and_under_no_borrowed_name() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    assert_eq!(post(&world, TURNS, &acme, &order("o1")).await.status, 202);
    let works = key(&world, 3, grant("ada", &WORK)).await;
    let refusal = post(&world, "/signals/approval-o1", &works, &json!({ "decision": "yes" })).await;
    assert!(refused(&refusal, 403, &Category::Unauthorized).contains("signals:write"));
    let workspaces = Some([dormouse_protocol::id::WorkspaceId::from("workspace_1".to_owned())].into());
    let bound = key(&world, 4, Grant { workspaces, ..grant("ada", &[Scope::SignalsWrite]) }).await;
    let refusal = post(&world, "/signals/approval-o1", &bound, &json!({ "decision": "yes" })).await;
    refused(&refusal, 403, &Category::Unauthorized);
    let borrowed = post(&world, "/signals/tenant!acme!approval-o1", &globex, &json!({ "decision": "yes" })).await;
    refused(&borrowed, 400, &Category::RequestInvalid);
    assert_eq!(world.continuations(), 0);
}

#[tokio::test]
async fn an_id_that_another_tenants_wait_has_is_a_mistake_of_the_graph_that_names_it() {
    let world = World::asking_for(Authorization::Keys);
    let acme = sender(&world, 1, "acme").await;
    let globex = sender(&world, 2, "globex").await;
    assert_eq!(post(&world, TURNS, &acme, &order("o1")).await.status, 202);
    // Without an id, and with one of its own that may be sent again.
    let theirs = json!({ "state": { "order": "o1", "amount": 8 }, "invocation_id": "theirs" });
    let before = world.written();
    for body in [&json!({ "state": theirs["state"] }), &theirs, &theirs] {
        let answer = post(&world, TURNS, &globex, body).await;
        let message = refused(&answer, 409, &Category::SignalIdInUse);
        assert!(message.contains("`approval-o1`") && message.contains("invocation id"), "{message}");
        assert!(!message.contains("acme"), "{message}");
        assert_eq!(
            (&answer.body["error"]["bucket"], header(&answer, "retry-after")),
            (&json!("user_correctable"), None)
        );
    }
    let id = owned::invocation("globex", "theirs");
    assert!(world.is_unknown(id.as_str()).await && world.written() == before, "nothing of it is written");
    let answered = post(&world, "/signals/approval-o1", &acme, &json!({ "decision": "yes" })).await;
    assert_eq!((answered.status, world.continuations()), (200, 1), "{}", answered.body);
    assert_eq!(post(&world, TURNS, &globex, &theirs).await.status, 202, "the id is free again");
}
