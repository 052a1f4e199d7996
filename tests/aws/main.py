"""Deploys the template to an emulator on this machine with the scripts of infra/, goes the tour (tour.py), and removes
everything again. `main.py FOLDER` takes the functions from FOLDER: inbound.zip, signal.zip, stream.zip and wakeup.zip;
DORMOUSE_BIN is the command line. ONLY=step,step goes only these steps."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import botocore.session

import tour
from door import Door
from emulator import ACCOUNT, REGION, Emulator
from gate import Gate

INFRA = pathlib.Path(__file__).resolve().parents[2] / "infra"
STAGE = "test"


class Stack:
    """What was deployed, and clients for it."""

    def __init__(self, emulator, gate, stage=STAGE):
        self.emulator, self.gate = emulator, gate
        self.stage, self.name = stage, f"dormouse-{stage}"
        self.signal, self.wakeup, self.sweep = (f"{self.name}-{one}" for one in ("signal", "wakeup", "sweep"))
        session = botocore.session.Session()
        session.set_credentials("test", "test")
        client = lambda service: session.create_client(service, region_name=REGION, endpoint_url=emulator.url)
        self.events, self.queues, self.scheduler = client("events"), client("sqs"), client("scheduler")
        self.functions, self.roles, self.stacks = client("lambda"), client("iam"), client("cloudformation")
        self.tables, self.buckets, self.parameters = client("dynamodb"), client("s3"), client("ssm")
        self.tokens, self.vault, self.secrets = client("sts"), client("secretsmanager"), f"/dormouse/{stage}"
        self._look()
        self.signal_key = self.secret("signal-key")
        self.bearer = {"authorization": f"Bearer {self._api_key()}"}

    def _look(self):
        """Takes up what the stack says of itself."""
        (described,) = self.stacks.describe_stacks(StackName=self.name)["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
        self.bus, self.failed, self.undelivered = (
            outputs[name] for name in ("BusName", "FailedQueueUrl", "UndeliveredQueueUrl")
        )
        self.table = outputs["TableName"]
        parameters = {one["ParameterKey"]: one["ParameterValue"] for one in described["Parameters"]}
        self.keeps_secrets_in_a_vault = parameters.get("SecretStore") == "secrets-manager"
        self.door = Door(outputs["Url"], self.emulator.port)
        self.streams = Door(outputs["StreamUrl"], self.emulator.port)

    def secret(self, name):
        if self.keeps_secrets_in_a_vault:
            return self.vault.get_secret_value(SecretId=f"dormouse/{self.stage}/{name}")["SecretString"]
        found = self.parameters.get_parameter(Name=f"{self.secrets}/{name}", WithDecryption=True)["Parameter"]
        tour.same(found["Type"], "SecureString", name)
        return found["Value"]

    def deploy(self, **variables):
        """Deploys once more, with `variables` in the environment: what the script says."""
        said = deploy(self.emulator, STAGE=self.stage, **variables)
        self.grant_what_the_emulator_misjudges()
        return said

    def signed(self, path, body, keys):
        """What the gateway answers to a request that is signed with `keys`."""
        return self.door.post_signed(path, body, keys, REGION)

    def user(self, name):
        """Keys of a user who may call the API."""
        self.roles.create_user(UserName=name)
        self.roles.put_user_policy(UserName=name, PolicyName="call", PolicyDocument=self._may_call())
        key = self.roles.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def role(self, name):
        """Makes a role that may call the API."""
        trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        self.roles.create_role(RoleName=name, AssumeRolePolicyDocument=document)
        self.roles.put_role_policy(RoleName=name, PolicyName="call", PolicyDocument=self._may_call())

    def take(self, role, session):
        """Keys of a session of `role`."""
        arn = f"arn:aws:iam::{ACCOUNT}:role/{role}"
        keys = self.tokens.assume_role(RoleArn=arn, RoleSessionName=session)["Credentials"]
        return keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]

    def _may_call(self):
        resource = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:*"
        statement = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    def _api_key(self):
        """A key for callers, made as an operator makes one."""
        given = self.emulator.environment() | {"AWS_REGION": REGION}
        made = [os.environ["DORMOUSE_BIN"], "keys", "create", "--actor", "tour", "--all-scopes", "--expires-in", "1d"]
        made += ["--table", self.table, "--endpoint-url", self.emulator.url, "--json"]
        return json.loads(subprocess.run(made, env=given, check=True, capture_output=True, text=True).stdout)["key"]

    def grant_what_the_emulator_misjudges(self):
        """The emulator judges schedules as if all were of the group `default`, targets of rules by their bus, and requests
        for several parameters as if they were for all. It speaks without TLS, which the bucket of workspaces demands."""
        place = f"{REGION}:{ACCOUNT}"
        made = f"arn:aws:scheduler:{place}:schedule/default/dormouse-{'?' * 40}"
        waits = {
            "scheduler:CreateSchedule": made,
            "scheduler:DeleteSchedule": made,
            "events:PutTargets": f"arn:aws:events:{place}:event-bus/{self.bus}",
        }
        reads = {"ssm:GetParameters": "*"}
        granted = {
            "InboundRole": waits | reads,
            "SignalRole": waits | reads,
            "WakeupRole": waits | reads,
            "SweepRole": waits,
        }
        pages = self.stacks.get_paginator("list_stack_resources").paginate(StackName=self.name)
        for resource in [one for page in pages for one in page["StackResourceSummaries"]]:
            actions = granted.get(resource["LogicalResourceId"], {})
            if actions:
                statements = [{"Effect": "Allow", "Action": action, "Resource": arn} for action, arn in actions.items()]
                document = json.dumps({"Version": "2012-10-17", "Statement": statements})
                role = resource["PhysicalResourceId"]
                self.roles.put_role_policy(RoleName=role, PolicyName="emulator", PolicyDocument=document)
            if resource["LogicalResourceId"] == "WorkspaceBucket":
                self.buckets.delete_bucket_policy(Bucket=resource["PhysicalResourceId"])

    def beside(self, stage, **variables):
        """Deploys another stage beside this one: its stack."""
        deploy(self.emulator, STAGE=stage, **variables)
        other = Stack(self.emulator, self.gate, stage)
        other.grant_what_the_emulator_misjudges()
        return other

    def destroy(self):
        script(self.emulator, "destroy.sh", STAGE=self.stage, YES="1")

    def restore(self, *arguments):
        """Runs infra/restore.sh with `arguments`: what it says."""
        said = script(self.emulator, "restore.sh", *arguments, STAGE=self.stage, SETTLE_SECONDS="0")
        self._look()
        self.grant_what_the_emulator_misjudges()
        return said

    def letters(self, *arguments):
        """What the command `letters` tells of the dead letters of the stack."""
        given = self.emulator.environment() | {"AWS_REGION": REGION}
        command = [os.environ["DORMOUSE_BIN"], "letters", "--stack", self.name, "--json", *arguments]
        done = subprocess.run(command, env=given, capture_output=True, text=True)
        tour.same((done.returncode, done.stderr), (0, ""), f"dormouse letters {' '.join(arguments)}")
        return json.loads(done.stdout)

    def bucket_of_workspaces(self):
        (described,) = self.stacks.describe_stacks(StackName=self.name)["Stacks"]
        (bucket,) = [one["OutputValue"] for one in described["Outputs"] if one["OutputKey"] == "WorkspaceBucket"]
        return bucket

    def publish(self, folder, name, *options):
        """What `dormouse workspace publish` tells; its exit code where that is not 0."""
        bucket = self.bucket_of_workspaces()
        given = self.emulator.environment() | {"AWS_REGION": REGION}
        command = [os.environ["DORMOUSE_BIN"], "workspace", "publish", str(folder), "--bucket", bucket, "--name", name]
        done = subprocess.run([*command, "--json", *options], env=given, capture_output=True, text=True)
        if done.returncode != 0:
            return done.returncode
        return json.loads(done.stdout)

    def what_is_left(self):
        """Everything of the kinds that hold data or cost something."""
        groups = self.scheduler.list_schedule_groups()["ScheduleGroups"]
        return {
            "tables": self.tables.list_tables()["TableNames"],
            "functions": [function["FunctionName"] for function in self.functions.list_functions()["Functions"]],
            "buses": [bus["Name"] for bus in self.events.list_event_buses()["EventBuses"] if bus["Name"] != "default"],
            "schedule groups": [group["Name"] for group in groups if group["Name"] != "default"],
            "queues": self.queues.list_queues().get("QueueUrls", []),
            "parameters": [found["Name"] for found in self.parameters.describe_parameters()["Parameters"]],
            "buckets": [bucket["Name"] for bucket in self.buckets.list_buckets()["Buckets"]],
        }


def vault(emulator):
    """Tells what a secret of Secrets Manager holds."""
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    client = session.create_client("secretsmanager", region_name=REGION, endpoint_url=emulator.url)

    def secret(name):
        try:
            return client.get_secret_value(SecretId=name)["SecretString"]
        except client.exceptions.ResourceNotFoundException:
            return None

    return secret


def script(emulator, name, *arguments, goes=True, **variables):
    """What the script says, which comes to its end, or does not where it is not to."""
    given = emulator.environment() | {"STAGE": STAGE} | variables
    done = subprocess.run([INFRA / name, *arguments], env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if (done.returncode == 0) != goes:
        raise AssertionError(f"infra/{name} {'failed' if goes else 'came to its end'}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def deploy(emulator, **variables):
    architecture = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return script(emulator, "deploy.sh", ZIPS=sys.argv[1], ARCHITECTURE=architecture, **variables)


def deployed(emulator, gate):
    """The stack, and what the script said. Before its functions are granted what the emulator misjudges, those that read
    parameters cannot start, and the deployment tells so."""
    said = deploy(emulator, goes=False, LOOK_EVERY="0")
    silent = f"no answer of dormouse-{STAGE}-inbound dormouse-{STAGE}-signal."
    tour.same(silent in said, True, f"who cannot start is told:\n{said}")
    stack = Stack(emulator, gate)
    stack.grant_what_the_emulator_misjudges()
    gate.denied[:] = [one for one in gate.denied if not one.startswith("GetParameters")]
    return stack, said + stack.deploy()


def go(emulator):
    emulator.start()
    gate = Gate(emulator.gate_port, emulator.port, vault(emulator))
    stack, said = deployed(emulator, gate)
    tour.same([name for name in ("callback-secret", "signal-key") if stack.secret(name) in said], [], "secrets told")
    print("ok    the template is deployed", flush=True)
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    steps = {step.__name__: step for step in tour.STEPS}
    tour.same(set(only) - set(steps), set(), "steps that there are not")
    for step in [step for name, step in steps.items() if name in only] if only else tour.STEPS:
        began = time.monotonic()
        try:
            step(stack)
        except Exception as failure:
            print(f"FAIL  {step.__doc__}: {failure}", flush=True)
            raise
        print(f"ok    {step.__doc__} ({time.monotonic() - began:.0f} s)", flush=True)
    stack.destroy()
    left = {kind: names for kind, names in stack.what_is_left().items() if names}
    tour.same(left, {}, "what is left")
    print("ok    everything is removed")


def main():
    sys.argv[1] = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="dormouse-aws-") as folder:
        emulator = Emulator(folder)
        try:
            go(emulator)
        except BaseException:
            log = emulator.log.read_text(errors="replace") if emulator.log.exists() else ""
            print(f"\nthe end of the emulator's log:\n{log[-4000:]}", file=sys.stderr)
            raise
        finally:
            emulator.stop()


if __name__ == "__main__":
    main()
