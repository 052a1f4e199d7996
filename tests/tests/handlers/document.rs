//! The document that the server serves has every route and every answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use dormouse_http::{Authorization, Content, Server};
use dormouse_tests::HttpAnswer;
use futures::FutureExt;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::world::{KEY, World, header, path_of, request};

/// The tag of what is no part of the protocol.
const TAG: &str = "Graphs and chat";

/// The routes in a server's document.
pub(crate) struct Described {
    document: Value,
    page: String,
    /// Those that were needed so far, by operation and status.
    validators: Mutex<BTreeMap<(String, u16), Arc<Validator>>>,
}

/// The documents of all worlds, one for each authorization.
static DOCUMENTS: [OnceLock<Described>; 3] = [const { OnceLock::new() }; 3];

impl Described {
    /// The document that `server` serves, which asks for `authorization`; all servers do with the same graphs.
    pub(crate) fn by(server: &Server, authorization: Authorization) -> &'static Self {
        let place = match authorization {
            Authorization::None => 0,
            Authorization::Keys => 1,
            Authorization::AwsIam => 2,
        };
        DOCUMENTS[place].get_or_init(|| Self::read(server))
    }

    /// Fields that it does not name may not be.
    fn read(server: &Server) -> Self {
        let bytes = |path| {
            let response = server.http(request("GET", path, b"")).now_or_never().expect("nothing is read");
            let Content::Whole(bytes) = response.content else { panic!("it streams") };
            bytes
        };
        let mut document: Value = serde_json::from_slice(&bytes("/openapi.json")).expect("JSON");
        let page = String::from_utf8(bytes("/docs")).expect("text");
        let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
        for schema in schemas.values_mut().filter(|schema| schema.get("properties").is_some()) {
            schema["additionalProperties"] = false.into();
        }
        Self { document, page, validators: Mutex::default() }
    }

    /// All operations of the routes: path, method and what is told of them.
    fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().into_iter().flatten();
        let all = paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        });
        all.filter(|(_, _, operation)| operation["tags"] == json!([TAG]))
    }

    /// The ids of operations with the statuses of their answers.
    fn answers(&self) -> BTreeSet<(String, u16)> {
        let answers = self.operations().flat_map(|(_, _, operation)| {
            let id = text(&operation["operationId"]);
            let statuses = operation["responses"].as_object().into_iter().flatten();
            statuses.map(move |(status, _)| (id.to_owned(), status.parse().expect("a status")))
        });
        answers.collect()
    }

    /// Checks that `answer` is documented for the operation that was asked for, and names that; `None` if there is none.
    pub(crate) fn judge(&self, (method, path): (&str, &str), answer: &HttpAnswer) -> Option<String> {
        let of_path = self.operations().filter(|(template, _, _)| fits(template, path));
        let of_method = of_path.filter(|(_, of, _)| of.eq_ignore_ascii_case(method));
        // An invocation may be called what ends like a cancellation.
        let (_, _, operation) = of_method.max_by_key(|(template, _, _)| template.len())?;
        let id = text(&operation["operationId"]);
        let status = answer.status.to_string();
        let response = &operation["responses"][&status];
        assert!(response.is_object(), "{id} answers {status}, which no document has: {}", answer.body);
        for name in ["retry-after", "www-authenticate", "location"] {
            let named = &response["headers"][name];
            assert!(header(answer, name).is_none() || named.is_object(), "{id} {status} has {name}");
        }
        assert!(answer.status != 503 || header(answer, "retry-after").is_some(), "{id} {status}: when again?");
        let validator = self.validator((id.to_owned(), answer.status), response);
        let mut faults = validator.iter_errors(&answer.body).map(|error| error.to_string());
        let fault = faults.next();
        assert!(
            fault.is_none(),
            "{id} {status}: {:.2000}\n{:.2000}",
            fault.unwrap_or_default(),
            answer.body.to_string()
        );
        Some(id.to_owned())
    }

    fn validator(&self, of: (String, u16), response: &Value) -> Arc<Validator> {
        let make = || {
            let schema = &response["content"]["application/json"]["schema"];
            let root = json!({ "allOf": [schema], "components": self.document["components"] });
            Arc::new(jsonschema::options().should_validate_formats(true).build(&root).expect("a schema"))
        };
        self.validators.lock().expect("a lock").entry(of).or_insert_with(make).clone()
    }
}

/// Whether `path` is of the form `template`. Ids may contain slashes, names of graphs may not.
fn fits(template: &str, path: &str) -> bool {
    let segments: Vec<&str> = template.split('/').collect();
    let mut rest = Some(path);
    for (place, segment) in segments.iter().enumerate().skip(1) {
        rest = rest.and_then(|rest| rest.strip_prefix('/')).and_then(|rest| match *segment {
            "{graph}" => rest.find('/').filter(|end| *end > 0).map(|end| &rest[end..]),
            id if id.starts_with('{') => {
                let tail: String = segments[place + 1..].iter().map(|segment| format!("/{segment}")).collect();
                rest.strip_suffix(&tail).filter(|id| !id.is_empty()).map(|id| &rest[id.len()..])
            }
            word => rest.strip_prefix(word),
        });
    }
    rest == Some("")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// The index is the list by which requests are routed.
#[tokio::test]
async fn every_route_is_in_the_document_and_no_other() {
    let world = World::new();
    let index = world.get("/").await.body;
    let routes = index["routes"].as_array().expect("routes").iter();
    let routes = routes.map(|route| {
        let path = text(&route["path"]).split('?').next().unwrap_or_default();
        (path.to_owned(), text(&route["method"]).to_ascii_lowercase())
    });
    let documented = world.described().operations();
    let documented = documented.map(|(path, method, _)| (path.to_owned(), method.to_owned()));
    assert_eq!(routes.collect::<BTreeSet<_>>(), documented.collect::<BTreeSet<_>>());
    for (path, _, operation) in world.described().operations() {
        let heading = format!("<h3 id=\"{}\">", text(&operation["operationId"]));
        assert_eq!(world.described().page.matches(&heading).count(), 1, "{path}");
    }
}

#[tokio::test]
async fn who_may_ask_is_told_as_it_is_configured() {
    for (authorization, security, refusals) in [
        (Authorization::None, json!([]), [false, false]),
        (Authorization::Keys, json!([{ "bearerAuth": [] }]), [true, true]),
        (Authorization::AwsIam, json!([{ "signature": [] }]), [true, false]),
    ] {
        let world = World::asking_for(authorization);
        let described = world.described();
        let schemes = described.document["components"]["securitySchemes"].as_object().expect("schemes");
        for (path, _, operation) in described.operations() {
            let of_keys = path.starts_with("/graphs/") || path.starts_with("/chat/");
            assert_eq!(operation["security"] == security, of_keys || (path == "/" && security == json!([])), "{path}");
            let names = operation["security"].as_array().into_iter().flatten();
            let mut names = names.filter_map(Value::as_object).flat_map(serde_json::Map::keys);
            assert!(names.all(|name| schemes.contains_key(name)), "{path}");
            if of_keys {
                let responses = &operation["responses"];
                assert_eq!(["401", "403"].map(|status| responses[status].is_object()), refusals, "{path}");
                assert_eq!(operation["x-scopes"].is_array(), authorization == Authorization::Keys, "{path}");
                let key = operation["parameters"].as_array().into_iter().flatten();
                assert!(key.into_iter().any(|parameter| parameter["name"] == "Idempotency-Key"), "{path}");
            }
        }
    }
}

/// What only a failure of others brings about; other tests see these.
const FAILURES: [u16; 4] = [500, 502, 503, 504];

/// Answers that no request of this walk can have, and why.
const NOT_WALKED: [(&str, u16, &str); 8] = [
    ("runGraph", 429, "many turns of one session at once"),
    ("sendChatMessage", 429, "many turns of one session at once"),
    ("answerPause", 429, "many turns of one session at once"),
    ("sendSignal", 429, "many turns of one session at once"),
    ("sendChatMessage", 410, "a chat whose message was canceled"),
    ("sendSignal", 403, "a key without the scope"),
    ("sendSignal", 404, "a deployment that keeps no early signals"),
    ("sendSignal", 410, "a pause that ended by its time"),
];

#[tokio::test]
async fn every_answer_of_the_routes_is_documented() {
    let world = World::new();
    let turns = "/graphs/approval/turns";
    let messages = "/chat/chat/sessions/s1/messages";
    let callback = world.asleep("o1").await;
    let begun = world.begun("o1").await;
    let status = path_of(&begun["status_url"]);
    let cancel = path_of(&begun["cancel_url"]);
    let large = vec![b' '; crate::world::BODY + 1];
    let plain =
        |target: &str, body: &[u8]| dormouse_http::Request { headers: Vec::new(), ..request("POST", target, body) };
    let keyed = |target: &str| {
        let mut request = request("POST", target, b"{}");
        request.headers.push(("authorization".to_owned(), format!("Bearer {KEY}")));
        request
    };
    world.get("/").await;
    world.get(&status).await;
    for target in [turns, messages, &callback, &cancel] {
        world.http(request("POST", target, b"[")).await;
        world.http(request("POST", target, &large)).await;
        world.http(plain(target, b"{}")).await;
    }
    for body in [&b"["[..], &large] {
        world.http(dormouse_http::Request { body: body.to_vec(), ..keyed("/signals/x") }).await;
    }
    let mut bare = keyed("/signals/x");
    bare.headers.retain(|(name, _)| name == "authorization");
    world.http(bare).await;
    world.post("/signals/x", &json!({})).await;
    world.signal("x", &json!({})).await;
    world.post("/graphs/nobody/turns", &json!({})).await;
    world.post("/chat/nobody/sessions/s/messages", &json!({ "role": "user", "content": "hi" })).await;
    world.post(messages, &json!({ "role": "nobody" })).await;
    world.post(messages, &json!({ "role": "user", "content": "hi" })).await;
    world.post(messages, &json!({ "role": "user", "content": "please get an approval" })).await;
    for text in ["one", "two"] {
        let body = json!({ "role": "user", "content": text }).to_string();
        let mut said = request("POST", "/chat/chat/sessions/s2/messages", body.as_bytes());
        said.headers.push(("idempotency-key".to_owned(), "k".to_owned()));
        world.http(said).await;
    }
    world.post(turns, &json!({ "state": { "amount": "many" } })).await;
    world.post(turns, &json!({ "state": { "order": "other" }, "invocation_id": "o1" })).await;
    world.get("/invocations/o1?token=AAAA").await;
    world.post("/callback/o1?token=AAAA", &json!({})).await;
    world.post("/invocations/o1/cancel?token=AAAA", &json!({})).await;
    world.post(&callback, &json!({ "decision": 1 })).await;
    world.post(&callback, &json!({ "decision": "yes" })).await;
    world.get(&status).await;
    world.post(&callback, &json!({ "decision": "yes" })).await;
    world.post(&callback, &json!({ "decision": "no" })).await;
    world.signal("approval-o1", &json!({ "decision": "no" })).await;
    world.signal("approval-o1", &json!({ "decision": "yes" })).await;
    world.post(&cancel, &json!({})).await;
    let second = world.begun("o2").await;
    world.post(&path_of(&second["cancel_url"]), &json!({ "reason": "no need" })).await;
    world.begun("o2").await;
    for url in ["status_url", "callback_url", "cancel_url"] {
        world.post(&path_of(&second[url]), &json!({})).await;
    }
    world.get(&path_of(&second["callback_url"]).replace("/callback/", "/invocations/")).await;
    world.get(&path_of(&second["status_url"])).await;
    let tea = json!({ "state": { "employee": "Ada", "amount_cents": 900, "purpose": "tea" } });
    world.post("/graphs/expense-approval/turns", &tea).await;
    let two = world.post("/graphs/two-questions/turns", &json!({ "state": { "order": "q" } })).await;
    world.post(&path_of(&two.body["callback_url"]), &json!({ "decision": "a" })).await;
    world.post("/graphs/two-questions/turns", &json!({ "state": { "order": "r" } })).await;
    world.signal("r-1", &json!({ "decision": 1 })).await;
    world.signal("r-1", &json!({ "decision": "a" })).await;
    world.clock.advance(std::time::Duration::from_secs(367 * 24 * 60 * 60));
    world.post(&path_of(&second["cancel_url"]), &json!({})).await;
    let seen = world.seen.lock().expect("a lock").clone();
    let missed = world.described().answers().into_iter().filter(|answer| !seen.contains(answer));
    let missed = missed.filter(|(_, status)| !FAILURES.contains(status));
    let excused: BTreeSet<(String, u16)> =
        NOT_WALKED.iter().map(|(operation, status, _)| ((*operation).to_owned(), *status)).collect();
    assert_eq!(missed.collect::<BTreeSet<_>>(), excused);
}
