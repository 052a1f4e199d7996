//! What goes wrong between a client and DynamoDB, as rules of the proxy.

use serde_json::{Value, json};

/// What changes the table.
const WRITES: [&str; 5] = ["TransactWriteItems", "UpdateItem", "PutItem", "DeleteItem", "BatchWriteItem"];
/// What only looks.
const READS: [&str; 4] = ["GetItem", "BatchGetItem", "Query", "Scan"];

/// Something that goes wrong with a request.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Which requests it can happen to.
    meets: Meets,
    /// What the proxy does to `operation`.
    effect: fn(operation: &str) -> Value,
}

/// The requests to which a fault can happen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meets {
    All,
    Writes,
}

pub(crate) const FAULTS: [Fault; 9] = [
    Fault { name: "a throttled request", meets: Meets::All, effect: |_| error("ThrottlingException") },
    Fault {
        name: "a partition that is too hot",
        meets: Meets::All,
        effect: |_| error("ProvisionedThroughputExceededException"),
    },
    Fault { name: "an error of the service", meets: Meets::All, effect: |_| error("InternalServerError") },
    Fault { name: "a conflict of transactions", meets: Meets::Writes, effect: conflict },
    Fault { name: "a connection that breaks before", meets: Meets::All, effect: |_| json!({"reset": true}) },
    Fault {
        name: "a connection that breaks behind, so that the acknowledgement is lost",
        meets: Meets::All,
        effect: |_| json!({"response": {"abort_bytes": 0}}),
    },
    Fault { name: "an answer that is cut", meets: Meets::All, effect: |_| json!({"response": {"truncate_frac": 0.5}}) },
    Fault { name: "a gateway that waits in vain", meets: Meets::All, effect: |_| json!({"timeout_ms": 1}) },
    Fault {
        name: "a request that takes effect when it was given up",
        meets: Meets::All,
        effect: |_| json!({"latency": 1500}),
    },
];

fn error(code: &str) -> Value {
    json!({"error": {"code": code}})
}

fn conflict(operation: &str) -> Value {
    if operation != "TransactWriteItems" {
        return error("TransactionConflictException");
    }
    // Beside a condition that failed: nobody knows yet whether it fails once the other transaction is over.
    let reasons = json!([{"Code": "ConditionalCheckFailed"}, {"Code": "TransactionConflict"}, {"Code": "None"}]);
    json!({"error": {"code": "TransactionCanceledException", "fields": {"CancellationReasons": reasons}}})
}

impl Fault {
    /// The rules by which it happens to every second write of each kind, four times, and to one read of each kind.
    pub(crate) fn everywhere(&self) -> Vec<Value> {
        let mut rules: Vec<_> = WRITES.iter().map(|operation| self.rule(operation, "times", json!(4))).collect();
        for rule in &mut rules {
            rule["sequence"] = json!({"fail": 1, "pass": 1});
        }
        rules.extend(self.reads().iter().map(|operation| self.rule(operation, "times", json!(1))));
        rules
    }

    /// The rules by which it happens to each request with that probability.
    pub(crate) fn by_chance(&self, probability: f64) -> Vec<Value> {
        let requests = WRITES.iter().chain(self.reads());
        requests.map(|operation| self.rule(operation, "probability", json!(probability))).collect()
    }

    fn reads(&self) -> &'static [&'static str] {
        match self.meets {
            Meets::All => &READS,
            Meets::Writes => &[],
        }
    }

    fn rule(&self, operation: &str, how: &str, often: Value) -> Value {
        let mut rule = (self.effect)(operation);
        rule["service"] = "dynamodb".into();
        rule["operation"] = operation.into();
        rule[how] = often;
        rule
    }
}
