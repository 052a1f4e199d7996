"""Deploys what the CDK made of infra/cdk/example.ts to an emulator on this machine as the CDK's own command line does: the
files that it names to the buckets that it names, then the template. Has an expense approved there. `cdk.py FOLDER` takes
the assembly from FOLDER; DORMOUSE_BIN is the command line."""

import json
import pathlib
import sys
import tempfile

import botocore.session

import tour
from emulator import ACCOUNT, REGION, Emulator
from gate import Gate
from main import Stack

STAGE = "cdk"
STACK = f"dormouse-{STAGE}"
STEPS = [tour.locked_door, tour.callback_posted, tour.event_arrives, tour.schedule_fires, tour.nothing_was_denied]


def place(text):
    """What the CDK leaves open in names of buckets."""
    return text.replace("${AWS::AccountId}", ACCOUNT).replace("${AWS::Region}", REGION).replace("${AWS::Partition}", "aws")


def upload(buckets, assembly):
    """Puts the files of the assembly where the template looks for them. The address of the template."""
    manifest = json.loads((assembly / f"{STACK}.assets.json").read_text())
    made, template = set(), None
    for file in manifest["files"].values():
        tour.same(file["source"]["packaging"], "file", "a file goes up as it is")
        content = (assembly / file["source"]["path"]).read_bytes()
        for destination in file["destinations"].values():
            bucket, key = place(destination["bucketName"]), place(destination["objectKey"])
            if bucket not in made:
                buckets.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
                made.add(bucket)
            buckets.put_object(Bucket=bucket, Key=key, Body=content)
            if file["source"]["path"].endswith(".template.json"):
                template = f"{buckets.meta.endpoint_url}/{bucket}/{key}"
    return template


def secrets(parameters):
    for name in ("callback-secret", "signal-key"):
        value = f"a {name} that nobody would guess, of many bytes"
        parameters.put_parameter(Name=f"/dormouse/{STAGE}/{name}", Value=value, Type="SecureString")


def go(emulator, assembly):
    emulator.start()
    gate = Gate(emulator.gate_port, emulator.port)
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    client = lambda service: session.create_client(service, region_name=REGION, endpoint_url=emulator.url)
    address = upload(client("s3"), assembly)
    secrets(client("ssm"))
    stacks = client("cloudformation")
    stacks.create_stack(StackName=STACK, TemplateURL=address, Capabilities=["CAPABILITY_IAM"])
    stacks.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 2, "MaxAttempts": 100})
    stack = Stack(emulator, gate, STAGE)
    stack.grant_what_the_emulator_misjudges()
    print("ok    the stack that the CDK made of the construct is deployed", flush=True)
    variables = stack.functions.get_function_configuration(FunctionName=stack.wakeup)["Environment"]["Variables"]
    tour.same(variables["DORMOUSE_TURN"], "120", "a parameter that the example gives")
    for step in STEPS:
        step(stack)
        print(f"ok    {step.__doc__}", flush=True)
    for rule in stack.events.list_rules(EventBusName=stack.bus)["Rules"]:
        if rule["Name"] not in ("dormouse-signal", "dormouse-work"):
            stack.events.remove_targets(EventBusName=stack.bus, Rule=rule["Name"], Ids=["signal"])
            stack.events.delete_rule(EventBusName=stack.bus, Name=rule["Name"])
    stacks.delete_stack(StackName=STACK)
    stacks.get_waiter("stack_delete_complete").wait(StackName=STACK, WaiterConfig={"Delay": 2, "MaxAttempts": 100})
    tour.same(stack.what_is_left()["tables"], [stack.table], "the table stays, and nothing else")
    tour.same(stack.what_is_left()["functions"], [], "functions that are left")
    print("ok    the stack is removed, and the table stays")


def main():
    with tempfile.TemporaryDirectory(prefix="dormouse-cdk-") as folder:
        emulator = Emulator(folder)
        try:
            go(emulator, pathlib.Path(sys.argv[1]))
        except BaseException:
            log = emulator.log.read_text(errors="replace") if emulator.log.exists() else ""
            print(f"\nthe end of the emulator's log:\n{log[-4000:]}", file=sys.stderr)
            raise
        finally:
            emulator.stop()


main()
