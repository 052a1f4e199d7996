//! What the template makes, and for whom.

use serde_json::{Value, json};

use crate::template::{STACK, Template, function_arn, rule_arn, schedule_arn};
use crate::{FOR_SERVICES, policy, text};

#[test]
fn the_template_makes_the_table_of_the_store() {
    let template = Template::read();
    let mut written = template.decided(dormouse_aws::TABLE_RESOURCE_NAME);
    // What linters are told there is nothing of the table, and when it is made neither.
    for name in ["Metadata", "Condition"] {
        written.as_object_mut().unwrap().shift_remove(name);
    }
    assert_eq!(written, dormouse_aws::table_resource());
}

#[test]
fn options_of_the_table_change_what_they_are_for() {
    let key = "arn:aws:kms:eu-central-1:123456789012:key/k";
    let template = Template::with(&[
        ("ReadCapacity", "10"),
        ("WriteCapacity", "5"),
        ("WarmReads", "12000"),
        ("WarmWrites", "4000"),
        ("KmsKeyArn", key),
    ]);
    let written = template.decided(dormouse_aws::TABLE_RESOURCE_NAME)["Properties"].clone();
    assert_eq!(written["BillingMode"], "PROVISIONED");
    assert_eq!(written["SSESpecification"]["SSEType"], "KMS");
    for throughput in [&written, &written["GlobalSecondaryIndexes"][0]] {
        assert!(throughput["ProvisionedThroughput"].is_object() && throughput["WarmThroughput"].is_object());
    }
    assert!(template.made().contains(&"UseOfTheKey") && !template.made().contains(&"TableReadsScaling"));
    let grows = [("ReadCapacityMost", "100"), ("WriteCapacityMost", "50"), ("ReadCapacity", "10")];
    assert!(Template::with(&grows).made().contains(&"TableReadsScaling"));
    assert!(!Template::with(&grows[..2]).made().contains(&"TableReadsScaling"), "what is paid by request grows anyway");
}

/// What is ignored in silence is found when it is needed.
#[test]
fn what_does_nothing_alone_is_refused_alone_and_so_is_a_table_that_a_sweep_would_starve() {
    let template = Template::read();
    let refused = |name: &str, value: &str| {
        let is_zero = |one: &Value| json!({ "Fn::Not": [{ "Fn::Equals": [{ "Ref": one }, "0"] }] });
        let asks = template.rules().values().filter(|rule| rule["RuleCondition"] == is_zero(&name.into()));
        let asserted: Vec<Value> = asks.map(|rule| rule["Assertions"][0]["Assert"].clone()).collect();
        let contained = asserted.iter().filter_map(|assert| assert["Fn::Not"][0]["Fn::Contains"][0].as_array());
        let too_few = contained.flatten().any(|one| one == value);
        let needs: Vec<String> = asserted
            .iter()
            .filter_map(|assert| assert["Fn::Not"][0]["Fn::Equals"][0]["Ref"].as_str().map(str::to_owned))
            .collect();
        (needs, too_few)
    };
    for (one, other) in [("ReadCapacity", "WriteCapacity"), ("WarmReads", "WarmWrites")] {
        assert_eq!(refused(one, "100").0, [other]);
        assert_eq!(refused(other, "100").0, [one]);
    }
    assert_eq!(refused("ReadCapacityMost", "100").0, ["WriteCapacityMost", "ReadCapacity"]);
    assert_eq!(refused("WriteCapacityMost", "100").0, ["ReadCapacityMost"]);
    for (units, too_few) in [("1", true), ("5", true), ("24", true), ("25", false), ("100", false)] {
        assert_eq!(refused("ReadCapacity", units).1, too_few, "{units}");
    }
}

/// Each change of a file writes all files of a workspace anew.
#[test]
fn versions_of_files_go_in_the_end_and_half_uploads_too() {
    let rules = |days: &'static str| {
        let template = Template::with(&[("Workspaces", "desk"), ("VersionDays", days)]);
        template.decided("WorkspaceBucket")["Properties"]["LifecycleConfiguration"]["Rules"].clone()
    };
    let expires = |rules: &Value| rules.to_string().contains("NoncurrentVersionExpiration");
    assert!(expires(&rules("30")) && !expires(&rules("0")));
    for days in ["30", "0"] {
        assert!(rules(days).to_string().contains("AbortIncompleteMultipartUpload"), "{days}");
        // A bundle is never replaced, and what sleeps needs it: nothing that is current goes.
        assert!(!rules(days).to_string().contains("\"Expiration"), "{days}");
    }
}

/// A trace of each twentieth call costs more than the call.
#[test]
fn traces_can_be_done_without_and_calls_counted() {
    let modes = |tracing: &'static str| {
        let template = Template::with(&[("Tracing", tracing), ("Sockets", "enabled")]);
        let functions = ["Inbound", "Signal", "Wakeup", "Sweep", "Stream", "Socket"];
        let mode =
            |name: &str| template.decided(&format!("{name}Function"))["Properties"]["TracingConfig"]["Mode"].clone();
        functions.map(mode)
    };
    assert!(modes("enabled").iter().all(|mode| mode == "Active"));
    assert!(modes("disabled").iter().all(|mode| mode == "PassThrough"));
    assert!(!Template::read().made().contains(&"InvocationsAlarm"));
    assert!(Template::with(&[("InvocationsAlarmAt", "100000")]).made().contains(&"InvocationsAlarm"));
}

#[test]
fn a_stack_takes_another_table_and_leaves_its_own() {
    let arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/restored";
    let template = Template::with(&[("TableArn", arn)]);
    assert!(!template.made().contains(&dormouse_aws::TABLE_RESOURCE_NAME));
    assert_eq!(template.resource(dormouse_aws::TABLE_RESOURCE_NAME)["DeletionPolicy"], "Retain");
    for function in ["Inbound", "Signal", "Wakeup", "Sweep", "Stream", "Socket"] {
        let statements = template.statements(&format!("{function}Role"));
        let on_tables: Vec<_> = statements
            .iter()
            .filter(|statement| statement["Action"].to_string().contains("dynamodb:"))
            .map(|statement| statement["Resource"].to_string())
            .collect();
        assert!(!on_tables.is_empty() && on_tables.iter().all(|resource| resource.contains(arn)), "{on_tables:?}");
        let variables =
            template.decided(&format!("{function}Function"))["Properties"]["Environment"]["Variables"].clone();
        assert_eq!(variables["DORMOUSE_TABLE"]["Fn::Select"][1]["Fn::Split"][1], json!({ "Ref": "TableArn" }));
    }
}

#[test]
fn where_there_are_no_function_addresses_the_streams_are_left_out() {
    let template = Template::with(&[("Streaming", "disabled")]);
    let left: Vec<&str> = template.made().into_iter().filter(|name| name.starts_with("Stream")).collect();
    assert_eq!(left, Vec::<&str>::new());
    assert_eq!(template.environment("InboundFunction").get("DORMOUSE_STREAM_URL"), None);
    assert!(Template::read().environment("InboundFunction").contains_key("DORMOUSE_STREAM_URL"));
}

#[test]
fn sockets_are_there_where_they_are_asked_for() {
    let parts = |template: &Template| {
        let made = template.made().into_iter().filter(|name| name.contains("Socket")).map(str::to_owned);
        made.collect::<Vec<_>>()
    };
    let template = Template::with(&[("Sockets", "enabled")]);
    assert!(parts(&template).len() > 10 && parts(&Template::read()).is_empty(), "{:?}", parts(&template));
    let url = template.environment("SocketFunction")["DORMOUSE_SOCKET_URL"].clone();
    assert_eq!(url, "wss://sockets.execute-api.eu-central-1.amazonaws.com/live");
    assert_eq!(template.environment("InboundFunction")["DORMOUSE_SOCKET_URL"], url, "the card tells where");
    assert_eq!(template.resource("SocketStage")["Properties"]["StageName"], "live");
    assert!(!Template::read().environment("InboundFunction").contains_key("DORMOUSE_SOCKET_URL"));
    // A follower hands over before its function is stopped.
    assert!(template.resource("SocketFunction")["Properties"]["Timeout"].as_u64() > Some(60));
}

#[test]
fn secrets_are_where_the_functions_look_for_them() {
    let place = |store: &'static str| {
        let template = Template::with(&[("SecretStore", store)]);
        let made = template
            .made()
            .into_iter()
            .filter(|name| template.resource(name)["Type"].as_str().unwrap().contains("Secret"));
        let made: Vec<String> =
            made.map(|name| text(&template.resource(name)["Properties"]["Name"], "Fn::Sub").to_owned()).collect();
        (text(&Value::Object(template.environment("SignalFunction")), "DORMOUSE_SECRETS").to_owned(), made)
    };
    assert_eq!(place("parameter-store"), ("/dormouse/dev".to_owned(), Vec::new()));
    let vault = "/aws/reference/secretsmanager/dormouse/dev".to_owned();
    assert_eq!(place("secrets-manager"), (vault.clone(), Vec::new()));
    let names = ["callback-secret", "callback-secret-second", "signal-key", "signal-key-second"];
    assert_eq!(place("stack"), (vault, names.map(|name| format!("dormouse/${{Stage}}/{name}")).to_vec()));
}

#[test]
fn who_ends_tasks_may_read_the_keys_of_receipts_and_nobody_else() {
    let functions = ["Inbound", "Signal", "Wakeup", "Stream", "Socket"];
    for (store, path) in [
        ("parameter-store", "/dormouse/dev/receipt-keys"),
        ("secrets-manager", "/aws/reference/secretsmanager/dormouse/dev/receipt-keys"),
    ] {
        let template = Template::with(&[("SecretStore", store), ("Receipts", "enabled")]);
        let named = functions.map(|function| template.environment(&format!("{function}Function")));
        let named = named.map(|variables| variables.get("DORMOUSE_RECEIPT_KEYS").cloned());
        assert_eq!(named, [Some(json!(path)), Some(json!(path)), Some(json!(path)), None, None]);
        let policy = template.decided("ReceiptKeys")["Properties"].clone();
        let role = |name: &str| json!({ "Ref": format!("{name}Role") });
        assert_eq!(policy["Roles"], json!([role("Inbound"), role("Signal"), role("Wakeup")]));
        let granted = policy["PolicyDocument"]["Statement"][0]["Resource"].to_string();
        assert!(granted.ends_with(&format!("parameter{}\"}}", path.replace("dev", "${Stage}"))), "{granted}");
        let vault = template.made().contains(&"ReceiptKeysOfSecretsManager");
        assert_eq!(vault, store == "secrets-manager");
    }
    let without = Template::read();
    assert!(!without.made().iter().any(|name| name.starts_with("ReceiptKeys")));
    assert!(functions.iter().all(|function| {
        !without.environment(&format!("{function}Function")).contains_key("DORMOUSE_RECEIPT_KEYS")
    }));
}

#[test]
fn who_ends_tasks_may_sign_with_the_key_of_kms_that_is_named_and_do_nothing_else_with_it() {
    let key = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    let template = Template::with(&[("Receipts", "enabled"), ("SecretStore", "stack"), ("ReceiptsKmsKeyArn", key)]);
    let policy = template.decided("ReceiptSignatures")["Properties"].clone();
    let role = |name: &str| json!({ "Ref": format!("{name}Role") });
    assert_eq!(policy["Roles"], json!([role("Inbound"), role("Signal"), role("Wakeup")]));
    let grants = json!([{
        "Effect": "Allow",
        "Action": "kms:Sign",
        "Resource": { "Ref": "ReceiptsKmsKeyArn" },
        "Condition": { "StringEquals": { "kms:SigningAlgorithm": "ED25519_SHA_512" } },
    }]);
    assert_eq!(policy["PolicyDocument"]["Statement"], grants);
    assert!(!template.made().contains(&"ReceiptKeysSecret"), "no key is made up beside it");
    for without in [&[("Receipts", "enabled")][..], &[("ReceiptsKmsKeyArn", key)]] {
        assert!(!Template::with(without).made().contains(&"ReceiptSignatures"), "{without:?}");
    }
}

#[test]
fn wakeup_alone_may_tell_people_that_they_are_asked_and_send_only_as_who_is_named() {
    let identity = "arn:aws:ses:eu-central-1:111122223333:identity/example.com";
    for (store, path) in
        [("parameter-store", "/dormouse/dev"), ("secrets-manager", "/aws/reference/secretsmanager/dormouse/dev")]
    {
        let asked = [("SecretStore", store), ("Notifications", "enabled"), ("EmailIdentityArn", identity)];
        let template = Template::with(&asked);
        let told = template.environment("WakeupFunction");
        assert_eq!(told["DORMOUSE_NOTIFICATIONS"], json!(format!("{path}/notifications")));
        assert_eq!(told["DORMOUSE_SECRETS"], json!(path), "it signs the links");
        assert!(told.contains_key("DORMOUSE_SECRETS_CHANGED") && told.contains_key("DORMOUSE_BASE_URL"));
        for other in ["Inbound", "Signal", "Stream", "Socket"] {
            let told = template.environment(&format!("{other}Function"));
            assert!(!told.contains_key("DORMOUSE_NOTIFICATIONS"), "{other}");
        }
        let wakeup = json!([{ "Ref": "WakeupRole" }]);
        let read = template.decided("NotificationChannels")["Properties"].clone();
        assert_eq!(read["Roles"], wakeup);
        let granted = json!(template.statements("WakeupRole")).to_string();
        for secret in ["notifications", "callback-secret", "callback-secret-second"] {
            assert!(granted.contains(&format!("{path}/{secret}\"")), "{granted}");
        }
        assert_eq!(template.made().contains(&"NotificationChannelsOfSecretsManager"), store == "secrets-manager");
        let send = template.decided("NotificationsByEmail")["Properties"].clone();
        let grants =
            json!([{ "Effect": "Allow", "Action": "ses:SendEmail", "Resource": { "Ref": "EmailIdentityArn" } }]);
        assert_eq!((&send["Roles"], &send["PolicyDocument"]["Statement"]), (&wakeup, &grants));
    }
    let by_slack = Template::with(&[("Notifications", "enabled")]);
    assert!(!by_slack.made().contains(&"NotificationsByEmail"));
    for without in [&[][..], &[("EmailIdentityArn", identity)]] {
        let template = Template::with(without);
        assert!(!template.made().iter().any(|name| name.starts_with("Notification")), "{without:?}");
        let told = template.environment("WakeupFunction");
        assert!(!told.contains_key("DORMOUSE_NOTIFICATIONS") && !told.contains_key("DORMOUSE_SECRETS"));
    }
}

/// Whoever keeps calling a function itself would run code that a deployment has not let on yet, or has taken back.
#[test]
fn everybody_calls_the_version_that_is_live() {
    let template = Template::read();
    for integration in ["Inbound", "Signal"] {
        let called = &template.resource(&format!("{integration}Integration"))["Properties"]["IntegrationUri"];
        assert_eq!(*called, json!({ "Ref": format!("{integration}Live") }));
    }
    for rule in ["DormouseSignalRule", "DormouseWorkRule"] {
        let called = template.resource(rule)["Properties"]["Targets"][0]["Arn"]["Ref"].as_str().unwrap();
        assert!(called.ends_with("Live"), "{rule}: {called}");
    }
    assert_eq!(template.resource("Sweep")["Properties"]["Target"]["Arn"], json!({ "Ref": "SweepLive" }));
    for function in ["Inbound", "Signal", "Wakeup", "Sweep", "Socket"] {
        let environment = template.environment(&format!("{function}Function"));
        for name in ["DORMOUSE_SIGNAL_ARN", "DORMOUSE_WAKEUP_ARN"] {
            assert!(text(&Value::Object(environment.clone()), name).ends_with(":live"), "{function}: {name}");
        }
    }
    for function in ["Inbound", "Signal", "Wakeup", "Sweep"] {
        // A version is published when its description changes, which is when the function changes.
        let described = &template.resource(&format!("{function}Version"))["Properties"]["Description"];
        let variables = &template.resource(&format!("{function}Function"))["Properties"]["Environment"]["Variables"];
        assert_eq!(*described, variables["DORMOUSE_RELEASE"], "{function}");
    }
}

#[test]
fn a_turn_ends_before_its_function_does() {
    let template = Template::read();
    let number = |name: &str| template.parameter(name)["Default"].as_u64().unwrap();
    assert!(number("TurnSeconds") + 5 < number("SignalTimeout").min(number("WakeupTimeout")));
    assert!(template.environment("WakeupFunction").contains_key("DORMOUSE_TURN"));
}

/// A policy of the bus may let others in, with events that graphs wait for; they send no signals and call no workers.
#[test]
fn events_of_our_own_form_come_from_our_own_account() {
    let template = Template::read();
    for rule in ["DormouseSignalRule", "DormouseWorkRule"] {
        let pattern = &template.resource(rule)["Properties"]["EventPattern"];
        assert_eq!(pattern["account"], json!([{ "Ref": "AWS::AccountId" }]), "{rule}");
    }
}

/// A hundred turns that take minutes would keep it from every timer of everybody.
#[test]
fn no_work_takes_the_concurrency_of_the_sweep() {
    let template = Template::with(&[("WakeupConcurrency", "100"), ("SweepConcurrency", "2")]);
    let reserved = |function: &str| {
        let limit = &template.decided(function)["Properties"]["ReservedConcurrentExecutions"];
        limit["Ref"].as_str().map(str::to_owned)
    };
    assert_eq!(reserved("SweepFunction").as_deref(), Some("SweepConcurrency"));
    assert_eq!(reserved("WakeupFunction").as_deref(), Some("WakeupConcurrency"));
    let calls = |name: &str| template.resource(name).to_string().contains("Sweep");
    let callers = ["DormouseWorkRule", "InboundRole", "SignalRole", "WakeupRole", "SweepRole"];
    let called = callers.into_iter().filter(|name| calls(name)).collect::<Vec<_>>();
    assert_eq!(called, Vec::<&str>::new(), "only the schedule calls it");
    // Neither is a failed one tried again by Lambda, nor put aside: the next one comes in a minute.
    let retries = &template.resource("SweepRetries")["Properties"];
    assert_eq!((&retries["MaximumRetryAttempts"], retries.get("DestinationConfig")), (&json!(0), None));
}

/// An operator has an address, or a topic that leads to whoever is on call; what happened once is never over.
#[test]
fn alarms_tell_an_address_and_a_topic_and_those_of_states_also_that_they_are_over() {
    let topic = "arn:aws:sns:eu-central-1:123456789012:on-call";
    let given: [(&[(&str, &str)], usize); 4] = [
        (&[], 0),
        (&[("AlarmEmail", "a@example.com")], 1),
        (&[("AlarmTopicArn", topic)], 1),
        (&[("AlarmEmail", "a@example.com"), ("AlarmTopicArn", topic)], 2),
    ];
    for (given, told) in given {
        let template = Template::with(given);
        let alarms =
            template.made().into_iter().filter(|name| template.resource(name)["Type"] == "AWS::CloudWatch::Alarm");
        for name in alarms {
            let alarm = template.decided(name)["Properties"].clone();
            assert_eq!(alarm["AlarmActions"].as_array().map(Vec::len), Some(told), "{name}");
            let is_over = alarm.get("OKActions");
            assert!(is_over.is_none_or(|actions| *actions == alarm["AlarmActions"]), "{name}");
            let once = ["Failed", "Undelivered", "Terminated", "ExpiredClaims", "OrphanTimers", "ScheduleDrop"];
            let once = once.iter().any(|one| name == format!("{one}Alarm")) || name.ends_with("LostLetterAlarm");
            assert_eq!(is_over.is_none(), once, "{name}");
        }
        assert_eq!(template.made().contains(&"AlarmTopic"), given.iter().any(|(name, _)| *name == "AlarmEmail"));
    }
}

/// Each costs, and the guide of costs sums them up.
#[test]
fn the_guide_of_costs_counts_the_alarms_and_metrics_that_are_made() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/dormouse/guide/costs.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let count = |alarms: &'static str, kind: &str, named: &str| {
        let template = Template::with(&[("Alarms", alarms)]);
        let of_kind = template.made().into_iter().map(|name| template.resource(name)).filter(|one| one["Type"] == kind);
        of_kind.filter(|one| one["Properties"].to_string().contains(named)).count()
    };
    let [few, all] = ["few", "all"].map(|alarms| count(alarms, "AWS::CloudWatch::Alarm", ""));
    let metrics = count("few", "AWS::Logs::MetricFilter", "$.message = \\\"sweep");
    let few_of = format!("| {few} alarms (`ALARMS=few`), dashboard, {metrics} metrics |");
    let sum = format!("| {few} × 0.10 + 3.00 + {metrics} × 0.30 |");
    let all_of = format!("| all {all} alarms, which is the default | a stage | {} × 0.10 more |", all - few);
    for line in [few_of, sum, all_of] {
        assert!(guide.contains(&line), "costs.md does not say: {line}");
    }
}

#[test]
fn each_function_that_is_made_has_an_alarm_for_its_errors() {
    let template =
        Template::with(&[("Sockets", "enabled"), ("Workspaces", "desk"), ("Tools", "enabled"), ("Alarms", "few")]);
    for function in template.made().into_iter().filter_map(|name| name.strip_suffix("Function")) {
        let alarm = &template.resource(&format!("{function}ErrorAlarm"))["Properties"];
        assert_eq!(alarm["Dimensions"][0]["Value"], json!({ "Ref": format!("{function}Function") }));
        assert!(template.made().contains(&format!("{function}ErrorAlarm").as_str()), "{function}");
    }
}

/// An age would leave out letters that were looked at more than three times, and a depth those that come beside others.
#[test]
fn new_dead_letters_are_told_and_those_that_lie_there_once_more_before_they_are_lost() {
    let template = Template::read();
    for (alarm, queue) in [("Failed", "FailedQueue"), ("Undelivered", "UndeliveredQueue")] {
        let new = &template.resource(&format!("{alarm}Alarm"))["Properties"];
        let told = [&new["MetricName"], &new["Statistic"], &new["TreatMissingData"]];
        assert_eq!(told, ["NumberOfMessagesSent", "Sum", "notBreaching"], "{alarm}");
        assert!(new.get("OKActions").is_none(), "that nothing came for a while says nothing of the letter");
        // The metric of a queue that was idle comes up to a quarter of an hour late.
        let (period, periods) = (new["Period"].as_u64().unwrap(), new["EvaluationPeriods"].as_u64().unwrap());
        assert!(period * periods >= 1_800 && new["DatapointsToAlarm"] == 1, "{alarm}");
        let old = &template.resource(&format!("{alarm}AgeAlarm"))["Properties"];
        let told = [&old["MetricName"], &old["Statistic"]];
        assert_eq!(told, ["ApproximateNumberOfMessagesVisible", "Maximum"], "{alarm}");
        let seconds = |value: &Value| value.as_u64().unwrap();
        let (period, looked_back) =
            (seconds(&old["Period"]), seconds(&old["Period"]) * seconds(&old["EvaluationPeriods"]));
        // Longer than a look hides letters; as long as CloudWatch looks back at most; half of what they are kept for.
        let kept = seconds(&template.resource(queue)["Properties"]["MessageRetentionPeriod"]);
        assert!(period > 120 && looked_back <= 7 * 86_400 && looked_back * 2 <= kept, "{period} {looked_back} {kept}");
        for watched in [new, old] {
            assert_eq!(watched["Dimensions"][0]["Value"]["Fn::GetAtt"], format!("{queue}.QueueName"), "{alarm}");
        }
    }
    let all = template.made().into_iter().map(|name| template.resource(name));
    let by_age = all.filter(|one| one["Properties"]["MetricName"] == "ApproximateAgeOfOldestMessage");
    assert_eq!(by_age.count(), 0);
}

#[test]
fn the_silence_of_the_sweep_is_an_alarm() {
    let template = Template::read();
    let alarm = &template.resource("SweepAlarm")["Properties"];
    let counted = &template.resource("SweepsMetric")["Properties"]["MetricTransformations"][0];
    assert_eq!((&alarm["MetricName"], &alarm["Namespace"]), (&counted["MetricName"], &counted["MetricNamespace"]));
    assert_eq!(alarm["TreatMissingData"], "breaching");
    let few = Template::with(&[("Alarms", "few")]);
    let alarms = |template: &Template| {
        let made: Vec<String> = template.made().into_iter().map(str::to_owned).collect();
        made.into_iter().filter(|name| template.resource(name)["Type"] == "AWS::CloudWatch::Alarm").collect::<Vec<_>>()
    };
    for wanted in ["SweepAlarm", "FailedAlarm", "UndeliveredAlarm", "SignalErrorAlarm", "ScheduleDropAlarm"] {
        assert!(alarms(&few).iter().any(|name| name == wanted), "{wanted}");
    }
    assert!(alarms(&few).len() < alarms(&template).len());
}

/// A function that somebody took over would silence the second line, or aim signals elsewhere.
#[test]
fn no_function_may_touch_the_schedule_and_the_rules_of_the_stack() {
    let template = Template::read();
    let digits = "0123456789abcdef0123456789abcdef01234567";
    for role in ["InboundRole", "SignalRole", "WakeupRole", "SweepRole"] {
        let grants = policy::grants(&template.statements(role));
        let may = |action: &str, resource: String| {
            let context = match action {
                "events:PutTargets" => vec![("events:TargetArn", function_arn(&format!("{STACK}-signal:live")))],
                _ => Vec::new(),
            };
            policy::judge(&grants, &policy::Asked { action: action.to_owned(), resource, context }).is_some()
        };
        for action in ["scheduler:CreateSchedule", "scheduler:DeleteSchedule"] {
            let own = may(action, schedule_arn(STACK, &format!("dormouse-{digits}")));
            assert_eq!(own, role != "SweepRole" || action.ends_with("CreateSchedule"), "{role}: {action} of a pause");
            assert!(!may(action, schedule_arn(STACK, "dormouse-sweep")), "{role} may {action} of the sweep");
        }
        for action in ["events:PutRule", "events:PutTargets", "events:RemoveTargets", "events:DeleteRule"] {
            let own = format!("dormouse-{digits}-0123456789ab");
            let removes = role == "SweepRole" || action.starts_with("events:Put");
            assert_eq!(may(action, rule_arn(STACK, &own)), removes, "{role}: {action}");
            for rule in ["dormouse-signal", "dormouse-work"] {
                assert!(!may(action, rule_arn(STACK, rule)), "{role} may {action} of {rule}");
            }
        }
    }
}

/// Others may use the same key: a role that leaks decrypts nothing of theirs.
#[test]
fn the_key_is_used_through_services_only() {
    let key = "arn:aws:kms:eu-central-1:123456789012:key/k";
    let given = [("KmsKeyArn", key), ("EarlierKmsKeyArns", key), ("Workspaces", "desk"), ("Receipts", "enabled")];
    let template = Template::with(&given);
    let policies = template.made().into_iter().filter(|name| template.is_policy(name));
    let mut by_services = 0;
    for name in policies {
        for statement in template.decided(name)["Properties"]["PolicyDocument"]["Statement"].as_array().unwrap() {
            if statement["Resource"].to_string().contains("KmsKeyArn") {
                let services = statement["Condition"]["StringLike"]["kms:ViaService"].as_array().unwrap();
                assert!(services.iter().all(|one| one["Fn::Sub"].as_str().unwrap().contains(".${AWS::Region}.")));
                by_services += 1;
            }
        }
    }
    assert_eq!(by_services, 2, "that of now, and those of before");
}

/// Only people make, change and take away keys, from outside.
#[test]
fn no_function_may_write_a_key() {
    let template = Template::read();
    for role in ["InboundRole", "SignalRole", "WakeupRole", "SweepRole", "StreamRole", "SocketRole"] {
        let statements = template.statements(role);
        let grants = policy::grants(&statements);
        let prohibitions = policy::prohibitions(&statements);
        let may = |action: &str, key: &str| {
            let context = vec![("dynamodb:LeadingKeys", key.to_owned())];
            let resource = Template::arn("StateTable");
            let asked = policy::Asked { action: action.to_owned(), resource, context };
            policy::judge(&grants, &asked).is_some() && policy::judge(&prohibitions, &asked).is_none()
        };
        for action in ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"] {
            for key in ["DOCUMENT#key#0123456789abcdef", "LIST#keys"] {
                assert!(!may(action, key), "{role} may {action} {key}");
            }
        }
        let writes = !["SweepRole", "StreamRole", "SocketRole"].contains(&role);
        assert_eq!(may("dynamodb:PutItem", "DOCUMENT#task#1"), writes, "{role}");
    }
}

/// It reads what streams are made of, and writes who has how many open, where that is counted.
#[test]
fn the_function_that_streams_may_put_seats_and_write_nothing_else() {
    let granted = |template: &Template| {
        let statements = template.statements("StreamRole");
        let mut granted: Vec<_> = policy::grants(&statements).iter().map(|grant| grant.action().to_owned()).collect();
        granted.retain(|action| !FOR_SERVICES.iter().any(|(of_services, _)| action == of_services));
        granted.sort_unstable();
        granted.dedup();
        granted
    };
    assert_eq!(granted(&Template::read()), ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"]);
    let template = Template::with(&[("StreamsOfTenant", "50")]);
    let counting = granted(&template);
    assert_eq!(counting, ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"]);
    let statements = template.statements("StreamRole");
    let put = statements.iter().find(|statement| statement["Action"] == "dynamodb:PutItem").unwrap();
    let keys = &put["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"];
    assert_eq!(*keys, json!(["DOCUMENT#stream_seats#*"]));
    let environment = template.environment("StreamFunction");
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    assert!(!names.iter().any(|name| name.contains("SECRET") || name.ends_with("_ARN")), "{names:?}");
}

/// Commands that a model wrote run in it: neither its role nor its environment is of any use to them.
#[test]
fn the_function_for_tools_may_write_its_log_and_nothing_else() {
    let template = Template::with(&[("Workspaces", "desk"), ("Tools", "enabled")]);
    let statements = template.statements("ToolsRole");
    let granted: Vec<_> = policy::grants(&statements).iter().map(|grant| grant.action().to_owned()).collect();
    assert_eq!(granted, ["logs:CreateLogStream", "logs:PutLogEvents"]);
    let function = template.decided("ToolsFunction");
    assert!(function["Properties"].get("Environment").is_none(), "{function}");
    let made = template.made();
    assert!(made.contains(&"ToolsFunction") && !Template::read().made().contains(&"ToolsFunction"));
    for policy in made.iter().filter(|name| template.is_policy(name)) {
        let roles = template.decided(policy)["Properties"]["Roles"].to_string();
        assert!(!roles.contains("ToolsRole"), "{policy} adds to it");
    }
    for function in ["Inbound", "Signal", "Wakeup"] {
        let decided = template.decided(&format!("{function}Function"));
        let known = &decided["Properties"]["Environment"]["Variables"]["DORMOUSE_TOOLS_FUNCTION"];
        assert!(known.to_string().contains("ToolsFunction"), "{function} calls it: {known}");
    }
}

/// The functions that run turns ask the models that are named, and no others.
#[test]
fn models_of_bedrock_are_granted_by_their_names() {
    let named = "arn:aws:bedrock:eu-central-1::foundation-model/amazon.nova-lite-v1:0,arn:aws:bedrock:eu-central-1:1:inference-profile/eu.x";
    let template = Template::with(&[("Workspaces", "desk"), ("BedrockModels", named)]);
    assert!(
        template.made().contains(&"NamedModelsOfBedrock") && !Template::read().made().contains(&"NamedModelsOfBedrock")
    );
    let unserved = Template::with(&[("BedrockModels", named)]);
    assert!(!unserved.made().contains(&"NamedModelsOfBedrock"), "without a workspace nobody asks");
    let policy = template.decided("NamedModelsOfBedrock")["Properties"].clone();
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Action"], json!(["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"]));
    assert_eq!(statement["Resource"], json!({ "Fn::Split": [",", { "Ref": "BedrockModels" }] }), "no pattern");
    assert!(!policy["Roles"].to_string().contains("Stream"), "{}", policy["Roles"]);
}

/// A tool that a run calls in any function may report at an address that is good.
#[test]
fn whoever_runs_turns_of_workspaces_signs_addresses() {
    for store in ["parameter-store", "secrets-manager"] {
        let template = Template::with(&[("Workspaces", "desk"), ("SecretStore", store)]);
        assert!(path_of(&template, "Wakeup").is_some(), "{store}");
        assert_eq!(path_of(&template, "Wakeup"), path_of(&template, "Signal"), "{store}");
        let granted = json!(template.statements("WakeupRole")).to_string();
        assert!(granted.contains("/callback-secret\"") && granted.contains("/callback-secret-second\""), "{granted}");
    }
    assert_eq!(path_of(&Template::read(), "Wakeup"), None);
}

fn path_of(template: &Template, function: &str) -> Option<Value> {
    let variables = template.decided(&format!("{function}Function"))["Properties"]["Environment"]["Variables"].clone();
    variables.get("DORMOUSE_SECRETS").cloned()
}

/// Whoever may look at a function or a stack reads its environment and its parameters.
#[test]
fn no_secret_stands_in_the_template() {
    let template = Template::read();
    let hidden = template.parameters().iter().filter(|(_, parameter)| parameter["NoEcho"] == true);
    assert_eq!(hidden.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<&String>::new(), "parameters that are secret");
    for function in ["Inbound", "Signal", "Wakeup", "Sweep", "Stream", "Socket"] {
        let environment = template.environment(&format!("{function}Function"));
        let found = environment.keys().find(|name| name.ends_with("_SECRET") || name.ends_with("_KEY"));
        assert_eq!(found, None, "{function}");
    }
}
