"""An AWS command line for the tests of the scripts (scripts.py): an account in one file, $FAKE_ACCOUNT, with what the scripts
ask for and change. It answers as the real one does, `--query` and `--output text` included, keeps every call, and fails
where the account says so. What it does not know it refuses."""

import itertools
import json
import os
import signal
import sys

import jmespath

OURS = "123456789012"
PLACE = os.environ["FAKE_ACCOUNT"]
with open(PLACE) as file:
    account = json.load(file)


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def options(name):
    """What stands behind `name`, up to the next option."""
    behind = sys.argv[sys.argv.index(name) + 1 :] if name in sys.argv else []
    return list(itertools.takewhile(lambda one: not one.startswith("--"), behind))


def text(value):
    if isinstance(value, dict):
        return "\t".join(text(one) for one in value.values())
    if isinstance(value, list) and any(isinstance(one, list) for one in value):
        return "\n".join(text(one) for one in value if one != [])
    if isinstance(value, list):
        return "\t".join(text(one) for one in value)
    return str(value)


def end(answer=None, failure=None):
    with open(PLACE, "w") as file:
        json.dump(account, file, indent=1)
    if failure:
        print(failure, file=sys.stderr)
        sys.exit(254)
    if answer is not None:
        query = option("--query")
        found = jmespath.search(query, answer) if query else answer
        print(text(found) if option("--output") == "text" else json.dumps(found))
    sys.exit(0)


def given_file(name):
    # Without that variable it is the encoding of the locale, which may know no other letters.
    with open(option(name).removeprefix("file://"), encoding=os.environ.get("AWS_CLI_FILE_ENCODING", "ascii")) as file:
        return json.load(file)


def update(parameters):
    """The stack has `parameters` from now on, and is in the states that it `becomes` one after the other."""
    account["updated"] = True
    stack = account["stack"] = account["stack"] or {"Parameters": {}, "Table": "dormouse-dev-StateTable"}
    stack["StackStatus"] = "UPDATE_COMPLETE"
    stack["Parameters"] |= parameters
    if stack["Parameters"].get("TableArn"):
        stack["Table"] = stack["Parameters"]["TableArn"].split("/")[1]


service, action = sys.argv[1:3]
command = f"{service} {action}"
account["calls"].append(sys.argv[1:])
# A command, or one of its calls: `ssm get-parameters NAME`. One that is throttled is so once.
if command in account["throttled"]:
    account["throttled"].remove(command)
    end(failure=f"An error occurred (Throttling) when calling {command}: Rate exceeded")
if command in account.get("denied", []):
    end(failure=f"An error occurred (AccessDeniedException) when calling {command}: User is not authorized to perform it")
if command in account.get("interrupted", []):
    # Somebody presses Ctrl-C, which all of them are told of.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGINT)
    with open(PLACE, "w") as file:
        json.dump(account, file, indent=1)
    sys.exit(130)
if any(set(one.split()) <= set(sys.argv[1:]) for one in account["fails"]):
    end(failure=f"An error occurred when calling {command}")

if command == "sts get-caller-identity":
    end({"Account": OURS, "Arn": "arn:aws-us-gov:iam::123456789012:user/ada"})
if command == "events list-rules":
    if account["stack"]["StackStatus"] == "ROLLBACK_COMPLETE":
        end(failure=f"An error occurred (ResourceNotFoundException) when calling {command}: Event bus {option('--event-bus-name')} does not exist.")
    listed = [{"Name": name} for name in account["rules"]]
    # The next sweep makes those again that graphs declare.
    if account["concurrency"].get(f"{option('--event-bus-name')}-sweep") != 0:
        account["rules"] += [name for name in account.get("declared", []) if name not in account["rules"]]
    end({"Rules": listed})
if command in ("events remove-targets", "events delete-rule"):
    if action == "delete-rule":
        account["rules"].remove(option("--name"))
    end()
if command == "cloudformation delete-stack":
    # What becomes of it while it is waited for; without a word of it, it is gone at once.
    states = account.get("removed", [None])
    account["stack"] = account["stack"] | {"StackStatus": states[0]} if states[0] else None
    account["removed"] = states[1:] or [None]
    end()
if command == "ssm get-parameters-by-path":
    below = [name for name in account["secrets"] if name.startswith(option("--path") + "/")]
    end({"Parameters": [{"Name": name} for name in below]})
if command == "cloudformation wait":
    if account["stack"] and account["stack"]["StackStatus"] == "DELETE_IN_PROGRESS":
        state, *account["removed"] = account["removed"]
        account["stack"] = account["stack"] | {"StackStatus": state} if state else None
        if state:
            end(failure="Waiter StackDeleteComplete failed: Max attempts exceeded")
    end(failure="Waiter StackDeleteComplete failed: Waiter encountered a terminal failure state" if account["stack"] else None)
if service == "s3":
    place = next(one for one in sys.argv if one.startswith("s3://")).removeprefix("s3://")
    name, _, below = place.partition("/")
    if action == "mb":
        account["buckets"][name] = {"objects": []}
    if action == "rm":
        account["buckets"][name]["objects"] = [key for key in account["buckets"][name]["objects"] if not key.startswith(below)]
    end()
if command == "s3api list-buckets":
    end({"Buckets": [{"Name": name} for name, one in account["buckets"].items() if one.get("owner", OURS) == OURS]})
if service == "s3api":
    found = account["buckets"].get(option("--bucket"))
    if action == "head-bucket" and account.get("no_bucket_seen"):
        end(failure=account["no_bucket_seen"])
    if found is None:
        end(failure=f"An error occurred (404) when calling {command}: Not Found")
    # Each call says whose it has to be.
    if option("--expected-bucket-owner") != found.get("owner", OURS):
        end(failure=f"An error occurred (403) when calling {command}: Forbidden")
    objects = found["objects"]
    if action == "get-bucket-location":
        end({"LocationConstraint": found.get("region", "eu-central-1")})
    if action == "list-objects-v2":
        end({"Contents": [{"Key": key} for key in objects if key.startswith(option("--prefix"))] or None})
    if action == "list-object-versions":
        end({"Versions": [{"Key": key, "VersionId": "1"} for key in objects]})
    if action == "put-object":
        objects.append(option("--key"))
    if action == "delete-object":
        objects.remove(option("--key"))
    if action == "delete-bucket":
        if objects:
            end(failure=f"An error occurred (BucketNotEmpty) when calling {command}")
        del account["buckets"][option("--bucket")]
    if action in ("head-bucket", "put-public-access-block", "put-object", "delete-object", "delete-bucket"):
        end()
if command in ("lambda list-versions-by-function", "lambda get-alias"):
    end({"Versions": [], "FunctionVersion": "1"} if service == "lambda" else None)
if command == "ssm put-parameter":
    secret = given_file("--cli-input-json")
    if len(secret["Value"]) > {"Standard": 4096}.get(secret.get("Tier", "Standard"), 8192):
        end(failure=f"An error occurred (ValidationException) when calling {command}: larger than its tier takes")
    account["secrets"][secret["Name"]] = secret["Value"]
    end()
if command == "ssm get-parameters":
    names = sys.argv[sys.argv.index("--names") + 1 :]
    known = [name for name in names if name in account["secrets"]]
    end({"Parameters": [{"Name": name, "Value": account["secrets"][name], "LastModifiedDate": 1} for name in known]})
if command == "ssm delete-parameters":
    account["secrets"].pop(option("--names"), None)
    end()
if service == "secretsmanager":
    if action in ("create-secret", "put-secret-value"):
        secret = given_file("--cli-input-json")
        account["secrets"][secret.get("Name") or secret["SecretId"]] = secret["SecretString"]
        end()
    if action == "list-secrets":
        end({"SecretList": [{"Name": name} for name in account["secrets"] if name.startswith(option("--filters").split("=")[-1])]})
    if option("--secret-id") not in account["secrets"]:
        end(failure=f"An error occurred (ResourceNotFoundException) when calling {command}")
    if action == "get-secret-value":
        end({"SecretString": account["secrets"][option("--secret-id")]})
    if action == "delete-secret":
        del account["secrets"][option("--secret-id")]
        end()
    if action == "describe-secret":
        end({"LastChangedDate": 1})
if command == "lambda get-account-settings":
    reserved = sum(one for one in account["concurrency"].values() if one)
    unreserved = account["limit"] - reserved
    end({"AccountLimit": {"ConcurrentExecutions": account["limit"], "UnreservedConcurrentExecutions": unreserved}})
if command == "lambda put-function-concurrency":
    account["concurrency"][option("--function-name")] = int(option("--reserved-concurrent-executions"))
    end()
if command == "lambda invoke":
    # A file of bytes: text is Base64 to the command line of today, and was none to the one before.
    with open(option("--payload").removeprefix("fileb://")) as file:
        json.load(file)
    name = option("--function-name").rpartition("-")[2]
    # How many more calls it fails on.
    left = account["broken"].get(name, 0)
    if left:
        account["broken"][name] = left - 1
    with open(sys.argv[-1], "w") as file:
        file.write("hush, this is what it answered")
    end({"StatusCode": 200, "ExecutedVersion": "2"} | ({"FunctionError": "Unhandled"} if left else {}))
if command == "lambda get-function-concurrency":
    end({"ReservedConcurrentExecutions": account["concurrency"].get(option("--function-name"))})
if command == "lambda delete-function-concurrency":
    account["concurrency"].pop(option("--function-name"), None)
    end()
if command == "cloudformation describe-stacks":
    if not account["stack"]:
        end(failure=f"An error occurred (ValidationError) when calling {command}: Stack with id {option('--stack-name')} does not exist")
    stack = account["stack"]
    parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in stack["Parameters"].items()]
    outputs = [{"OutputKey": "TableName", "OutputValue": stack["Table"]}, {"OutputKey": "BusName", "OutputValue": "dormouse-dev"}]
    outputs.append({"OutputKey": "WorkspaceBucket", "OutputValue": "dormouse-dev-workspacebucket-1a"})
    if stack["StackStatus"] in ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"):
        outputs = []
    if account.get("updated") and account["becomes"]:
        state = account["becomes"].pop(0)
        # A state of nothing: this look is not answered.
        if state is None:
            end(failure=f"An error occurred (Throttling) when calling {command}: Rate exceeded")
        stack["StackStatus"] = state
    known = {"Parameters": parameters, "Outputs": outputs, "StackStatus": stack["StackStatus"]}
    known["Tags"] = [{"Key": name, "Value": value} for name, value in stack.get("Tags", {}).items()]
    end({"Stacks": [known]})
if command == "cloudformation list-stack-resources":
    kind = "AWS::Lambda::Function"
    functions = [{"ResourceType": kind, "LogicalResourceId": name} for name in account["stack"]["Functions"]]
    table = {"ResourceType": "AWS::DynamoDB::Table", "LogicalResourceId": "StateTable"}
    end({"StackResourceSummaries": [*functions, *([table] if not account["stack"]["Parameters"].get("TableArn") else [])]})
if command == "cloudformation deploy":
    update(dict(one.split("=", 1) for one in given_file("--parameter-overrides")))
    # It hands on an empty list where it is told of none, and an update takes that for "no tags".
    account["stack"]["Tags"] = dict(one.split("=", 1) for one in options("--tags"))
    if account["becomes"]:
        end(failure="Waiter StackUpdateComplete failed: Max attempts exceeded")
    end()
if command == "cloudformation update-stack":
    changed = {}
    for one in sys.argv[sys.argv.index("--parameters") + 1 :]:
        name, value = one.removeprefix("ParameterKey=").split(",", 1)
        if value != "UsePreviousValue=true":
            changed[name] = value.removeprefix("ParameterValue=")
    update(changed)
    end()
if command == "cloudwatch describe-alarms":
    end({"MetricAlarms": [{"AlarmName": name} for name in account["alarms"]]})
if command == "dynamodb wait" and "table-not-exists" in sys.argv:
    end()
if command == "dynamodb list-tables":
    end({"TableNames": list(account["tables"])})
if command == "dynamodb restore-table-to-point-in-time":
    # What the account says becomes of a restore; without a word of it, a whole table with its indexes.
    of_original = {"GlobalSecondaryIndexes": [{"IndexName": "claims"}], "TableStatus": "ACTIVE"}
    if account.get("restored", of_original):
        account["tables"][option("--target-table-name")] = {"Table": account.get("restored", of_original)}
    end()
if service == "dynamodb":
    table = account["tables"].get(option("--table-name"))
    if table is None:
        end(failure="An error occurred (ResourceNotFoundException)")
    if action == "describe-table":
        end({"Table": {"TableArn": f"arn:aws:dynamodb:eu-central-1:123456789012:table/{option('--table-name')}"} | table["Table"]})
    if action == "wait" and table["Table"].get("TableStatus", "ACTIVE") != "ACTIVE":
        end(failure="Waiter TableExists failed: Max attempts exceeded")
    if action == "describe-time-to-live":
        on = {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
        end({"TimeToLiveDescription": on if table.get("ttl") else {"TimeToLiveStatus": "DISABLED"}})
    if action == "update-time-to-live":
        if table.get("ttl"):
            end(failure="An error occurred (ValidationException): TimeToLive is already enabled")
        table["ttl"] = option("--time-to-live-specification")
        end()
    if action == "update-continuous-backups":
        table["recovery"] = option("--point-in-time-recovery-specification")
        end()
    if action == "update-table":
        table["Table"]["DeletionProtectionEnabled"] = "--deletion-protection-enabled" in sys.argv
        end()
    if action == "delete-table":
        del account["tables"][option("--table-name")]
        end()
    if action == "wait":
        end()
end(failure=f"the account of the test knows no {command}")
