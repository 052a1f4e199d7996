//! `infra/template.yaml` as it looks when it is deployed: short forms spelled out, conditions decided by the parameters,
//! references resolved to names and ARNs of an account that does not exist.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

pub(crate) const STACK: &str = "dormouse-test";
const PLACE: &str = "eu-central-1:123456789012";
/// The id of the WebSocket API.
const SOCKETS: &str = "sockets";

/// The template, read from the tree, with parameters that are not their defaults.
pub(crate) struct Template {
    written: Value,
    given: BTreeMap<&'static str, &'static str>,
}

impl Template {
    pub(crate) fn read() -> Self {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/template.yaml");
        let text = std::fs::read_to_string(path).expect("infra/template.yaml");
        Self { written: spelled_out(serde_yaml_ng::from_str(&text).expect("YAML")), given: BTreeMap::new() }
    }

    /// The template with these values of parameters.
    pub(crate) fn with(given: &[(&'static str, &'static str)]) -> Self {
        Self { given: given.iter().copied().collect(), ..Self::read() }
    }

    /// The resource with the logical name `name`, as it is written.
    pub(crate) fn resource(&self, name: &str) -> &Value {
        self.written["Resources"].get(name).unwrap_or_else(|| panic!("the template has no resource {name}"))
    }

    /// The names of the resources that are made, by their logical names.
    pub(crate) fn made(&self) -> Vec<&str> {
        let resources = self.written["Resources"].as_object().expect("resources");
        let made = resources.iter().filter(|(_, resource)| {
            resource["Condition"].as_str().is_none_or(|condition| self.holds(self.condition(condition)))
        });
        made.map(|(name, _)| name.as_str()).collect()
    }

    /// The resource with the logical name `name`, its conditions decided; its references stay.
    pub(crate) fn decided(&self, name: &str) -> Value {
        self.chosen(self.resource(name)).expect("a resource")
    }

    /// The parameter `name`, as it is written.
    pub(crate) fn parameter(&self, name: &str) -> &Value {
        self.written["Parameters"].get(name).unwrap_or_else(|| panic!("the template has no parameter {name}"))
    }

    /// The assertions about parameters, as they are written.
    pub(crate) fn rules(&self) -> &Map<String, Value> {
        self.written["Rules"].as_object().expect("rules")
    }

    /// All parameters, as they are written.
    pub(crate) fn parameters(&self) -> &Map<String, Value> {
        self.written["Parameters"].as_object().expect("parameters")
    }

    /// The condition `name`, as it is written.
    pub(crate) fn condition(&self, name: &str) -> &Value {
        self.written["Conditions"].get(name).unwrap_or_else(|| panic!("the template has no condition {name}"))
    }

    /// The environment of the function `name`.
    pub(crate) fn environment(&self, name: &str) -> Map<String, Value> {
        let variables = self.resolved(&self.resource(name)["Properties"]["Environment"]["Variables"]);
        variables.as_object().expect("variables").clone()
    }

    /// Whether the resource with the logical name `name` adds to roles.
    pub(crate) fn is_policy(&self, name: &str) -> bool {
        ["AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"].iter().any(|kind| self.resource(name)["Type"] == *kind)
    }

    /// The statements of the role `name`, and what options add to them.
    pub(crate) fn statements(&self, name: &str) -> Vec<Value> {
        let own = self.resource(name)["Properties"]["Policies"].as_array().expect("policies");
        let made = self.made().into_iter().filter(|one| self.is_policy(one));
        let added = made.map(|one| &self.resource(one)["Properties"]);
        let added = added.filter(|policy| {
            let roles = self.chosen(&policy["Roles"]).expect("roles");
            roles.as_array().expect("roles").iter().any(|role| role["Ref"] == name)
        });
        let statements = own.iter().chain(added).map(|policy| self.resolved(&policy["PolicyDocument"]["Statement"]));
        statements.flat_map(|statements| statements.as_array().expect("statements").clone()).collect()
    }

    /// The ARN of the resource with the logical name `name`.
    pub(crate) fn arn(name: &str) -> String {
        attribute(&format!("{name}.Arn"))
    }

    fn resolved(&self, value: &Value) -> Value {
        self.chosen(value).map_or(Value::Null, |chosen| self.referring(&chosen))
    }

    /// `value` with every `Fn::If` decided; nothing where that leaves nothing.
    fn chosen(&self, value: &Value) -> Option<Value> {
        if let Some(choice) = value.get("Fn::If") {
            let which = if self.holds(self.condition(text(&choice[0]))) { 1 } else { 2 };
            return self.chosen(&choice[which]);
        }
        match value {
            Value::Object(map) if map.get("Ref").is_some_and(|name| name == "AWS::NoValue") => None,
            Value::Object(map) => {
                Some(map.iter().filter_map(|(key, value)| Some((key.clone(), self.chosen(value)?))).collect())
            }
            Value::Array(items) => Some(items.iter().filter_map(|item| self.chosen(item)).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
        }
    }

    /// Whether `condition` holds.
    fn holds(&self, condition: &Value) -> bool {
        let (function, argument) = condition.as_object().and_then(|map| map.iter().next()).expect("a function");
        match function.as_str() {
            "Fn::Condition" => self.holds(self.condition(text(argument))),
            "Fn::Not" => !self.holds(&argument[0]),
            "Fn::Or" => argument.as_array().expect("conditions").iter().any(|one| self.holds(one)),
            "Fn::And" => argument.as_array().expect("conditions").iter().all(|one| self.holds(one)),
            "Fn::Equals" => self.plain(&argument[0]) == self.plain(&argument[1]),
            other => panic!("{other} is not understood"),
        }
    }

    /// A value that is compared, as text.
    fn plain(&self, value: &Value) -> String {
        match value {
            Value::Object(map) => self.setting(text(&map["Ref"])),
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
        }
    }

    /// What the parameter `name` is set to.
    fn setting(&self, name: &str) -> String {
        match self.given.get(name) {
            Some(value) => (*value).to_owned(),
            None => self.plain(&self.parameter(name)["Default"]),
        }
    }

    fn referring(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => match map.iter().next() {
                Some((function, argument)) if map.len() == 1 && function == "Ref" => {
                    self.referred(text(argument)).into()
                }
                Some((function, argument)) if map.len() == 1 && function == "Fn::GetAtt" => {
                    attribute(text(argument)).into()
                }
                Some((function, argument)) if map.len() == 1 && function == "Fn::Sub" => {
                    self.substituted(text(argument)).into()
                }
                _ => map.iter().map(|(key, value)| (key.clone(), self.referring(value))).collect(),
            },
            Value::Array(items) => items.iter().map(|item| self.referring(item)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    fn substituted(&self, text: &str) -> String {
        let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
        let (name, after) = rest.split_once('}').expect("a closed reference");
        let value = if name.contains('.') { attribute(name) } else { self.referred(name) };
        format!("{before}{value}{}", self.substituted(after))
    }

    fn referred(&self, name: &str) -> String {
        match name {
            "AWS::Partition" => "aws".to_owned(),
            "AWS::Region" => PLACE.split_once(':').expect("a region").0.to_owned(),
            "AWS::AccountId" => PLACE.split_once(':').expect("an account").1.to_owned(),
            "AWS::StackName" | "Bus" | "ScheduleGroup" => STACK.to_owned(),
            "AWS::URLSuffix" => "amazonaws.com".to_owned(),
            "SocketApi" => SOCKETS.to_owned(),
            "StateTable" => "dormouse".to_owned(),
            "WorkspaceBucket" => bucket(),
            "ArtifactPrefix" => format!("{STACK}/0123456789abcdef"),
            parameter => self.setting(parameter),
        }
    }
}

/// Attributes that the template asks for.
fn attribute(path: &str) -> String {
    match path {
        "Api.ApiEndpoint" => "https://agents.example.com".to_owned(),
        "StreamUrl.FunctionUrl" => "https://streams.example.com/".to_owned(),
        "StateTable.Arn" => table_arn("dormouse"),
        "Bus.Arn" => format!("arn:aws:events:{PLACE}:event-bus/{STACK}"),
        "SchedulerRole.Arn" => "arn:aws:iam::123456789012:role/scheduler".to_owned(),
        "WorkspaceBucket.Arn" => format!("arn:aws:s3:::{}", bucket()),
        "FailedQueue.Arn" => format!("arn:aws:sqs:{PLACE}:{STACK}-failed"),
        "UndeliveredQueue.Arn" => format!("arn:aws:sqs:{PLACE}:{STACK}-undelivered"),
        "FunctionLogs.Arn" => format!("arn:aws:logs:{PLACE}:log-group:/dormouse/{STACK}/functions:*"),
        other => panic!("nothing is known of {other}"),
    }
}

/// Name of the bucket of workspaces.
pub(crate) fn bucket() -> String {
    format!("{STACK}-workspaces")
}

pub(crate) fn table_arn(name: &str) -> String {
    format!("arn:aws:dynamodb:{PLACE}:table/{name}")
}

/// The path `name` begins with a slash.
pub(crate) fn parameter_arn(name: &str) -> String {
    format!("arn:aws:ssm:{PLACE}:parameter{name}")
}

pub(crate) fn rule_arn(bus: &str, name: &str) -> String {
    format!("arn:aws:events:{PLACE}:rule/{bus}/{name}")
}

pub(crate) fn bus_arn(name: &str) -> String {
    format!("arn:aws:events:{PLACE}:event-bus/{name}")
}

pub(crate) fn schedule_arn(group: &str, name: &str) -> String {
    format!("arn:aws:scheduler:{PLACE}:schedule/{group}/{name}")
}

/// `place` is the stage, and the connection below it.
pub(crate) fn connection_arn(method: &str, place: &str) -> String {
    let (stage, connection) = place.split_once('/').expect("a stage");
    format!("arn:aws:execute-api:{PLACE}:{SOCKETS}/{stage}/{method}/{connection}")
}

/// The `name` may have a version behind it.
pub(crate) fn function_arn(name: &str) -> String {
    format!("arn:aws:lambda:{PLACE}:function:{name}")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

/// `!Ref x` as `{"Ref": x}`, `!Sub x` as `{"Fn::Sub": x}`, and so on.
fn spelled_out(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Tagged(tagged) => {
            let name = tagged.tag.to_string();
            let name = name.trim_start_matches('!');
            let name = if name == "Ref" { name.to_owned() } else { format!("Fn::{name}") };
            json!({ name: spelled_out(tagged.value) })
        }
        Yaml::Mapping(map) => {
            let entries =
                map.into_iter().map(|(key, value)| (key.as_str().expect("a key").to_owned(), spelled_out(value)));
            Value::Object(entries.collect())
        }
        Yaml::Sequence(items) => items.into_iter().map(spelled_out).collect(),
        plain @ (Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::String(_)) => {
            serde_json::to_value(plain).expect("a plain value")
        }
    }
}
