//! AWS as one role sees it: what the role grants is done, everything else is denied, and both are remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use dormouse_ports::Objects;
use dormouse_testkit::MemoryObjects;
use dormouse_tests::STORE_SECRET;
use dormouse_tests::lambda::{SECRET, SIGNAL_KEY};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::policy::{Asked, Grant, grants, judge, prohibitions};
use crate::template::{
    bucket, bus_arn, connection_arn, function_arn, parameter_arn, rule_arn, schedule_arn, table_arn,
};

/// A rule on the bus that no entry names.
const UNNEEDED_RULE: &str = "dormouse-0123456789012345678901234567890123456789-0123456789ab";

/// A gate in front of the store and the objects at an address of this machine.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

/// What the gates of all roles stand in front of.
#[derive(Clone)]
pub(crate) struct Behind {
    /// Address of the store.
    pub(crate) store: String,
    /// Objects of the bucket of workspaces.
    pub(crate) objects: Arc<MemoryObjects>,
}

struct Inner {
    behind: Behind,
    client: reqwest::Client,
    grants: BTreeSet<Grant>,
    prohibitions: BTreeSet<Grant>,
    used: Mutex<BTreeSet<Grant>>,
    denied: Mutex<Vec<Asked>>,
    fails: AtomicBool,
}

impl Gate {
    /// Opens a gate that grants `statements` to whoever asks at the address it gives.
    pub(crate) async fn open(statements: &[Value], behind: Behind) -> (Self, String) {
        let inner = Inner {
            behind,
            client: dormouse_tests::client(),
            grants: grants(statements),
            prohibitions: prohibitions(statements),
            used: Mutex::default(),
            denied: Mutex::default(),
            fails: AtomicBool::default(),
        };
        let gate = Self(Arc::new(inner));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = Router::new().fallback(answer).with_state(gate.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (gate, address)
    }

    /// From now on, or no longer: what commits is done but nobody hears of it, and the bus is away.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
    }

    fn fails(&self) -> bool {
        self.0.fails.load(Ordering::SeqCst)
    }

    pub(crate) fn denied(&self) -> Vec<Asked> {
        self.0.denied.lock().expect("a lock").clone()
    }

    /// What the role grants and nobody used.
    pub(crate) fn unused(&self) -> Vec<Grant> {
        let used = self.0.used.lock().expect("a lock");
        self.0.grants.difference(&used).cloned().collect()
    }

    /// Whether everything in `asked` is granted.
    fn lets_through(&self, asked: Vec<Asked>) -> bool {
        assert!(!asked.is_empty(), "every request asks for something");
        let refused: Vec<Asked> = asked.into_iter().filter(|asked| !self.is_granted(asked)).collect();
        let all = refused.is_empty();
        self.0.denied.lock().expect("a lock").extend(refused);
        all
    }

    fn is_granted(&self, asked: &Asked) -> bool {
        let forbidden = judge(&self.0.prohibitions, asked).is_some();
        let grant = judge(&self.0.grants, asked).filter(|_| !forbidden);
        self.0.used.lock().expect("a lock").extend(grant.cloned());
        grant.is_some()
    }
}

type Parameters = Query<BTreeMap<String, String>>;

async fn answer(
    State(gate): State<Gate>,
    method: Method,
    uri: Uri,
    Query(query): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let read: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = match target.split_once('.') {
        Some((service, operation)) if service.starts_with("DynamoDB_") => on_table(operation, &read),
        Some(("AWSEvents", operation)) => on_bus(operation, &read),
        Some(("AmazonSSM", operation)) => on_parameters(operation, &read),
        _ if uri.path().contains("/@connections/") => vec![on_connection(&method, &uri)],
        _ if object(&uri).is_some() => vec![on_object(&method, &uri)],
        _ => match called(&uri) {
            Some(function) => {
                vec![Asked { action: "lambda:InvokeFunction".to_owned(), resource: function, context: Vec::new() }]
            }
            None => on_schedule(&method, &uri, query.get("groupName"), &read),
        },
    };
    if !gate.lets_through(asked) {
        let refusal = json!({ "__type": "AccessDeniedException", "message": "not authorized to perform this" });
        let headers = [("content-type", "application/x-amz-json-1.0"), ("x-amzn-errortype", "AccessDeniedException")];
        return (StatusCode::BAD_REQUEST, headers, refusal.to_string()).into_response();
    }
    match target.split_once('.') {
        Some((service, operation)) if service.starts_with("DynamoDB_") => {
            let commits =
                operation == "TransactWriteItems" || read["ExpressionAttributeValues"].get(":commit").is_some();
            let answer = passed_on(&gate, target, body).await;
            if commits && gate.fails() { away() } else { answer }
        }
        Some(("AmazonSSM", _)) => parameters(&read).to_string().into_response(),
        Some((_, "PutEvents")) if gate.fails() => away(),
        Some((_, "PutEvents")) => {
            json!({ "FailedEntryCount": 0, "Entries": [{ "EventId": "e" }] }).to_string().into_response()
        }
        Some((_, "ListRules")) => json!({ "Rules": [{ "Name": UNNEEDED_RULE }] }).to_string().into_response(),
        Some((_, "PutTargets" | "RemoveTargets")) => {
            json!({ "FailedEntryCount": 0, "FailedEntries": [] }).to_string().into_response()
        }
        Some(_) => json!({ "RuleArn": "arn:aws:events:::rule" }).to_string().into_response(),
        None if called(&uri).is_some() && gate.fails() => away(),
        None if called(&uri).is_some() => StatusCode::ACCEPTED.into_response(),
        None if uri.path().contains("/@connections/") => StatusCode::OK.into_response(),
        None if object(&uri).is_some() => found_object(&gate, &uri).await,
        None => json!({ "ScheduleArn": "arn:aws:scheduler:::schedule" }).to_string().into_response(),
    }
}

/// Key of the object that a request asks for, if it asks for one.
fn object(uri: &Uri) -> Option<&str> {
    uri.path().strip_prefix('/')?.strip_prefix(&bucket())?.strip_prefix('/')
}

fn on_object(method: &Method, uri: &Uri) -> Asked {
    let action = if *method == Method::GET { "s3:GetObject" } else { "s3:PutObject" };
    let resource = format!("arn:aws:s3:::{}", uri.path().trim_start_matches('/'));
    Asked { action: action.to_owned(), resource, context: Vec::new() }
}

async fn found_object(gate: &Gate, uri: &Uri) -> Response {
    let key = object(uri).expect("a key");
    match gate.0.behind.objects.get(key, u64::MAX).await.expect("the objects are there") {
        Some(found) => ([("etag", found.version.as_str().to_owned())], found.bytes).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The version of a function that a request calls, if it calls one.
fn called(uri: &Uri) -> Option<String> {
    let name = uri.path().strip_prefix("/2015-03-31/functions/")?.strip_suffix("/invocations")?;
    Some(function_arn(&name.replace("%3A", ":")))
}

/// Something is sent over a connection, or it is closed.
fn on_connection(method: &Method, uri: &Uri) -> Asked {
    let resource = connection_arn(method.as_str(), uri.path().trim_start_matches('/'));
    Asked { action: "execute-api:ManageConnections".to_owned(), resource, context: Vec::new() }
}

/// A secret of the tenant `acme`, in a vault.
pub(crate) const HOOK: &str = "it is a secret to everybody";

/// The key of the model that agents of workspaces ask.
pub(crate) const MODEL_KEY: &str = "key-of-the-model";

/// What the parameters that `body` names hold.
fn parameters(body: &Value) -> Value {
    let held = |name: &str| match name.rsplit('/').next() {
        Some("callback-secret") => Some(SECRET),
        Some("signal-key") => Some(SIGNAL_KEY),
        Some("acme.HOOK") => Some(HOOK),
        Some("MODEL_KEY") => Some(MODEL_KEY),
        // Nothing is being replaced.
        Some("callback-secret-second" | "signal-key-second") => None,
        other => panic!("there is no parameter {other:?}"),
    };
    let names: Vec<&str> = body["Names"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    let found = names
        .iter()
        .filter_map(|name| held(name).map(|value| json!({ "Name": name, "Type": "SecureString", "Value": value })));
    let missing: Value = names.iter().filter(|name| held(name).is_none()).copied().collect();
    json!({ "Parameters": found.collect::<Value>(), "InvalidParameters": missing })
}

fn away() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, json!({ "__type": "InternalServerError" }).to_string()).into_response()
}

async fn passed_on(gate: &Gate, target: &str, body: Bytes) -> Response {
    let request = gate.0.client.post(&gate.0.behind.store).header("x-amz-target", target);
    let request = request.header("content-type", "application/x-amz-json-1.0");
    let signature =
        "AWS4-HMAC-SHA256 Credential=a/20240101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0";
    let request = request.header("authorization", signature).header("x-amz-date", "20240101T000000Z");
    let request = request.header("x-amz-security-token", STORE_SECRET);
    let answer = request.body(body).send().await.expect("the store answers");
    let status = answer.status().as_u16();
    let status = StatusCode::from_u16(status).expect("a status");
    let content = answer.bytes().await.expect("the store's answer");
    (status, [("content-type", "application/x-amz-json-1.0")], content).into_response()
}

/// A transaction needs what each of its parts needs; the transaction itself is not an action.
fn on_table(operation: &str, body: &Value) -> Vec<Asked> {
    match operation {
        "TransactWriteItems" => body["TransactItems"].as_array().expect("parts").iter().map(part).collect(),
        "Query" if body["IndexName"].is_string() => {
            let index = body["IndexName"].as_str().expect("an index");
            let resource = format!("{}/index/{index}", table_arn(body["TableName"].as_str().expect("a table")));
            vec![Asked { action: "dynamodb:Query".to_owned(), resource, context: Vec::new() }]
        }
        "Query" => {
            let condition = body["KeyConditionExpression"].as_str().expect("a condition");
            let placeholder = condition.strip_prefix("pk = ").and_then(|rest| rest.split(' ').next());
            let placeholder = placeholder.expect("a condition that begins with the partition key");
            vec![on_item("Query", body, &body["ExpressionAttributeValues"][placeholder]["S"])]
        }
        "BatchGetItem" => {
            let tables = body["RequestItems"].as_object().expect("tables").iter();
            let keys = tables.flat_map(|(table, wanted)| {
                wanted["Keys"].as_array().into_iter().flatten().map(move |key| (json!({ "TableName": table }), key))
            });
            keys.map(|(table, key)| on_item("BatchGetItem", &table, &key["pk"]["S"])).collect()
        }
        "PutItem" => vec![on_item("PutItem", body, &body["Item"]["pk"]["S"])],
        other => vec![on_item(other, body, &body["Key"]["pk"]["S"])],
    }
}

fn part(part: &Value) -> Asked {
    let (name, body) = part.as_object().and_then(|part| part.iter().next()).expect("a part");
    match name.as_str() {
        "Put" => on_item("PutItem", body, &body["Item"]["pk"]["S"]),
        "ConditionCheck" => on_item("ConditionCheckItem", body, &body["Key"]["pk"]["S"]),
        name => on_item(&format!("{name}Item"), body, &body["Key"]["pk"]["S"]),
    }
}

fn on_item(action: &str, body: &Value, pk: &Value) -> Asked {
    let context = pk.as_str().map(|pk| ("dynamodb:LeadingKeys", pk.to_owned()));
    let resource = table_arn(body["TableName"].as_str().expect("a table"));
    Asked { action: format!("dynamodb:{action}"), resource, context: context.into_iter().collect() }
}

fn on_bus(operation: &str, body: &Value) -> Vec<Asked> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let asked = |resource, context| Asked { action: format!("events:{operation}"), resource, context };
    match operation {
        "PutEvents" => {
            let entries = body["Entries"].as_array().expect("entries").iter();
            entries.map(|entry| asked(bus_arn(&text(&entry["EventBusName"])), Vec::new())).collect()
        }
        "PutTargets" => {
            let rule = rule_arn(&text(&body["EventBusName"]), &text(&body["Rule"]));
            let targets = body["Targets"].as_array().expect("targets").iter();
            targets.map(|target| asked(rule.clone(), vec![("events:TargetArn", text(&target["Arn"]))])).collect()
        }
        "RemoveTargets" => {
            vec![asked(rule_arn(&text(&body["EventBusName"]), &text(&body["Rule"])), Vec::new())]
        }
        "ListRules" => vec![asked("*".to_owned(), Vec::new())],
        _ => vec![asked(rule_arn(&text(&body["EventBusName"]), &text(&body["Name"])), Vec::new())],
    }
}

fn on_parameters(operation: &str, body: &Value) -> Vec<Asked> {
    let names = body["Names"].as_array().expect("names").iter().filter_map(Value::as_str);
    let asked = |name| Asked { action: format!("ssm:{operation}"), resource: parameter_arn(name), context: Vec::new() };
    names.map(asked).collect()
}

/// Whoever makes a schedule also hands the scheduler a role.
fn on_schedule(method: &Method, uri: &Uri, group: Option<&String>, body: &Value) -> Vec<Asked> {
    let name = uri.path().strip_prefix("/schedules/").expect("the path of a schedule");
    let asked = |action: &str, group: &str| Asked {
        action: format!("scheduler:{action}"),
        resource: schedule_arn(group, name),
        context: Vec::new(),
    };
    if *method == Method::DELETE {
        return vec![asked("DeleteSchedule", group.expect("a group"))];
    }
    let pass = Asked {
        action: "iam:PassRole".to_owned(),
        resource: body["Target"]["RoleArn"].as_str().expect("a role").to_owned(),
        context: vec![("iam:PassedToService", "scheduler.amazonaws.com".to_owned())],
    };
    vec![asked("CreateSchedule", body["GroupName"].as_str().expect("a group")), pass]
}
