"""Tests of the scripts that deploy and restore, on an account that is a file (aws.py). What CloudFormation, Lambda and
DynamoDB make of what they are told is for tests/aws."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import jmespath

HERE = pathlib.Path(__file__).resolve().parent
CALLBACK = "/dormouse/dev/callback-secret"
SIGNAL = "/dormouse/dev/signal-key"
COPY = "arn:aws:dynamodb:eu-central-1:123456789012:table/copy"


class Account:
    def __init__(self, folder, **known):
        self.folder = pathlib.Path(folder)
        self.place = self.folder / "account.json"
        fresh = {"stack": None, "secrets": {}, "tables": {}, "concurrency": {}, "alarms": [], "limit": 1000}
        fresh |= {"rules": [], "buckets": {}, "broken": {}}
        self.write(fresh | {"calls": [], "fails": [], "throttled": [], "becomes": []} | known)
        for name in ("inbound", "signal", "stream", "wakeup", "sweep"):
            (self.folder / f"{name}.zip").write_text(name)
        programs = self.folder / "bin"
        programs.mkdir()
        # It is called often: without what the packages of the linters do at a start, of which it needs one.
        needed = pathlib.Path(jmespath.__file__).parents[1]
        (programs / "aws").write_text(f'#!/bin/sh\nPYTHONPATH="{needed}" exec "{sys.executable}" -SB "{HERE / "aws.py"}" "$@"\n')
        (programs / "aws").chmod(0o755)

    def read(self):
        return json.loads(self.place.read_text())

    def write(self, account):
        self.place.write_text(json.dumps(account))

    def now(self, **known):
        """Something else is so from now on."""
        self.write(self.read() | known)

    def run(self, script, *arguments, where=None, typed=None, **variables):
        """Whether the script came to its end, and what it said; it is named as it is seen from the folder `where`. With `typed`
        somebody sits at a terminal."""
        given = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "AWS_REGION": "eu-central-1", "STAGE": "dev"}
        given |= {"FAKE_ACCOUNT": str(self.place), "ZIPS": str(self.folder), "LOOK_EVERY": "0", "TMPDIR": str(self.folder)}
        place = HERE.parent / script
        command = ["bash", place.relative_to(where) if where else place, *arguments]
        how = {"cwd": where or self.folder, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        # In a group of processes of its own, as that of a terminal, which can be interrupted wherever these tests run.
        how |= {"start_new_session": True, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        keyboard, terminal = os.openpty()
        if typed is not None:
            os.write(keyboard, f"{typed}\n".encode())
            how["stdin"] = terminal
        done = subprocess.run(command, env=given | variables, **how)
        os.close(keyboard)
        os.close(terminal)
        return done.returncode == 0, done.stdout + done.stderr

    def deploy(self, **variables):
        return self.run("deploy.sh", **variables)

    def calls(self, service, action):
        return [call for call in self.read()["calls"] if call[:2] == [service, action]]

    @property
    def secrets(self):
        return self.read()["secrets"]

    @property
    def parameters(self):
        return self.read()["stack"]["Parameters"]


class Scripts(unittest.TestCase):
    def account(self, **known):
        folder = tempfile.TemporaryDirectory(prefix="dormouse-scripts-")
        self.addCleanup(folder.cleanup)
        return Account(folder.name, **known)

    def deployed(self, **parameters):
        """An account with a stack that has `parameters`."""
        given = {"SecretStore": "parameter-store", "Rollout": "AtOnce", "TableArn": "", "Release": "before"}
        given |= {"SweepConcurrency": "2"} | parameters
        stack = {"Parameters": given, "Table": "dormouse-dev-StateTable", "StackStatus": "UPDATE_COMPLETE"}
        stack["Functions"] = ["InboundFunction", "SweepFunction", "ToolsFunction"]
        secrets = {CALLBACK: "signs what sleeps, and nobody would guess it", SIGNAL: "opens the door for signals"}
        return self.account(stack=stack, secrets=secrets)

    def copied(self, **parameters):
        """An account with a stack, and a table beside it that no script made."""
        account = self.deployed(**parameters)
        account.now(tables={"copy": {"Table": {"GlobalSecondaryIndexes": [{"IndexName": "claims"}]}}})
        return account

    def goes(self, done):
        self.assertTrue(done[0], done[1])
        return done[1]

    def refused(self, done, because):
        self.assertFalse(done[0], f"it was not refused: {done[1]}")
        self.assertIn(because, done[1])
        return done[1]


class Rotation(Scripts):
    def test_a_second_rotation_is_refused_while_the_secret_before_is_accepted(self):
        account = self.deployed()
        first = account.secrets
        self.goes(account.deploy(ROTATE="callback-secret signal-key"))
        second = account.secrets
        for name in (CALLBACK, SIGNAL):
            self.assertNotEqual(second[name], first[name])
            self.assertEqual(second[f"{name}-second"], first[name])
            self.refused(account.deploy(ROTATE=name.split("/")[-1]), f"RETIRE={name.split('/')[-1]}")
        self.refused(account.deploy(CALLBACK_SECRET="another one, of more than thirty-two bytes"), "RETIRE=callback-secret")
        self.assertEqual(account.secrets, second, "nothing was changed")

    def test_what_is_retired_makes_room_for_another_rotation(self):
        account = self.deployed()
        self.goes(account.deploy(ROTATE="callback-secret"))
        self.goes(account.deploy(RETIRE="callback-secret"))
        before = account.secrets[CALLBACK]
        self.goes(account.deploy(ROTATE="callback-secret"))
        self.assertEqual(account.secrets[f"{CALLBACK}-second"], before)

    def test_rotated_and_retired_at_once_only_the_new_one_counts(self):
        account = self.deployed()
        self.goes(account.deploy(ROTATE="callback-secret"))
        before = account.secrets[CALLBACK]
        self.goes(account.deploy(ROTATE="callback-secret", RETIRE="callback-secret"))
        self.assertNotEqual(account.secrets[CALLBACK], before)
        self.assertEqual(account.secrets[f"{CALLBACK}-second"], account.secrets[CALLBACK])

    def test_a_rotation_whose_deployment_fails_drops_nothing_and_goes_on_with_the_same_secret(self):
        account = self.deployed()
        before = account.secrets[CALLBACK]
        account.now(fails=["cloudformation deploy"])
        self.assertFalse(account.deploy(ROTATE="callback-secret")[0])
        begun = account.secrets[f"{CALLBACK}-second"]
        self.assertEqual(account.secrets[CALLBACK], before, "what signs is what signed")
        account.now(fails=[])
        self.assertIn("ROTATE=callback-secret goes on", self.goes(account.deploy()))
        self.goes(account.deploy(ROTATE="callback-secret"))
        self.assertEqual((account.secrets[CALLBACK], account.secrets[f"{CALLBACK}-second"]), (begun, before))
        self.assertNotIn(f"{CALLBACK}-next", account.secrets)

    def test_a_rotation_that_failed_when_it_signed_already_ends_with_the_next_deployment(self):
        account = self.deployed()
        before = account.secrets[CALLBACK]
        self.goes(account.deploy(ROTATE="callback-secret"))
        after = account.secrets[CALLBACK]
        account.now(secrets=account.secrets | {f"{CALLBACK}-next": after})
        self.goes(account.deploy(ROTATE="callback-secret"))
        self.assertEqual((account.secrets[CALLBACK], account.secrets[f"{CALLBACK}-second"]), (after, before))
        self.assertNotIn(f"{CALLBACK}-next", account.secrets)

    def test_a_signal_key_whose_deployment_fails_is_accepted_beside_the_one_before(self):
        account = self.deployed()
        before = account.secrets[SIGNAL]
        account.now(fails=["cloudformation deploy"])
        self.assertFalse(account.deploy(ROTATE="signal-key")[0])
        self.assertEqual(account.secrets[f"{SIGNAL}-second"], before)
        account.now(fails=[])
        self.refused(account.deploy(ROTATE="signal-key"), "RETIRE=signal-key")

    def test_a_secret_that_could_not_be_read_is_not_taken_for_none(self):
        account = self.deployed()
        self.goes(account.deploy(ROTATE="callback-secret"))
        before = account.secrets
        for unread in ("callback-secret", "callback-secret-second", "callback-secret-next"):
            account.now(fails=[f"ssm get-parameters --query Parameters[0].Value /dormouse/dev/{unread}"])
            self.refused(account.deploy(ROTATE="callback-secret"), f"/dormouse/dev/{unread} could not be read")
            self.assertEqual(account.secrets, before)

    def test_a_deployment_that_ended_between_two_secrets_is_gone_on_with(self):
        account = self.deployed(SecretStore="secrets-manager")
        account.now(secrets={f"dormouse/dev/{name}": f"{name}, which nobody would guess" for name in ("callback-secret", "signal-key")})
        before = account.secrets
        self.goes(account.deploy())
        self.assertEqual(account.secrets, before | {f"{name}-second": value for name, value in before.items()})

    def test_secrets_of_secrets_manager_are_made_where_there_are_none_and_kept_where_that_cannot_be_told(self):
        account = self.account()
        account.now(fails=["secretsmanager get-secret-value"])
        self.refused(account.deploy(SECRET_STORE="secrets-manager"), "dormouse/dev/callback-secret could not be read")
        self.assertEqual(account.secrets, {})
        account.now(fails=[])
        self.goes(account.deploy(SECRET_STORE="secrets-manager"))
        first = account.secrets
        self.assertIn("dormouse/dev/signal-key", first)
        self.goes(account.deploy())
        self.assertEqual(account.secrets, first)

    def test_nothing_is_deployed_while_nobody_tells_when_secrets_were_changed(self):
        for store, asked in (("parameter-store", "ssm get-parameters /dormouse/dev/receipt-keys"), ("secrets-manager", "secretsmanager describe-secret")):
            account = self.account()
            self.goes(account.deploy(SECRET_STORE=store))
            account.now(fails=[asked], calls=[])
            for command in ({}, {"RETIRE": "callback-secret"}):
                self.refused(account.deploy(**command), "nobody tells when the secrets of dormouse-dev were changed")
            self.assertEqual(account.calls("cloudformation", "deploy"), [])

    def test_a_secret_that_parameter_store_does_not_take_is_refused(self):
        account = self.deployed()
        channels = account.folder / "channels.json"
        for size, goes in ((5_000, True), (8_193, False)):
            channels.write_text("{}".rjust(size))
            done = account.deploy(NOTIFICATIONS="enabled", NOTIFICATIONS_FILE=str(channels))
            self.assertEqual(done[0], goes, done[1])
        self.assertEqual(len(account.secrets["/dormouse/dev/notifications"]), 5_000)

    def test_the_secret_before_may_be_given_again(self):
        account = self.deployed()
        before = account.secrets[CALLBACK]
        self.goes(account.deploy(ROTATE="callback-secret"))
        between = account.secrets[CALLBACK]
        self.goes(account.deploy(CALLBACK_SECRET=before))
        self.assertEqual((account.secrets[CALLBACK], account.secrets[f"{CALLBACK}-second"]), (before, between))


class AnotherTable(Scripts):
    def adopted(self, account, **variables):
        return account.run("restore.sh", "adopt", "copy", SETTLE_SECONDS="0", **variables)

    def test_any_table_that_is_adopted_gets_what_no_copy_has_and_is_told_what_it_lacks(self):
        account = self.copied(KmsKeyArn="arn:of-a-key")
        said = self.goes(self.adopted(account))
        table = account.read()["tables"]["copy"]
        self.assertEqual(table["ttl"], "Enabled=true,AttributeName=ttl")
        self.assertEqual(table["recovery"], "PointInTimeRecoveryEnabled=true")
        self.assertTrue(table["Table"]["DeletionProtectionEnabled"])
        for lacking in ("tags", "growing by itself", "not encrypted with arn:of-a-key"):
            self.assertIn(lacking, said)
        self.goes(self.adopted(account))

    def test_a_table_that_is_not_one_of_dormouse_stops_nothing(self):
        account = self.copied()
        account.now(tables={"copy": {"Table": {"GlobalSecondaryIndexes": []}}})
        self.refused(self.adopted(account), "no index claims")
        self.assertEqual(account.calls("lambda", "put-function-concurrency"), [])

    def test_a_table_is_adopted_at_once_with_no_capacity_of_the_one_before_and_all_functions_stopped(self):
        account = self.copied(Rollout="LambdaCanary10Percent5Minutes", ReadCapacity="50", SweepConcurrency="2")
        account.now(becomes=["UPDATE_IN_PROGRESS"] * 3 + ["UPDATE_COMPLETE"])
        said = self.goes(self.adopted(account))
        self.assertIn("ROLLOUT=LambdaCanary10Percent5Minutes", said)
        self.assertIn("READ_CAPACITY", said)
        given = [account.parameters[name] for name in ("TableArn", "Rollout", "ReadCapacity")]
        self.assertEqual(given, [COPY, "AtOnce", "0"])
        stopped = {call[3]: call[5] for call in account.calls("lambda", "put-function-concurrency")[:3]}
        self.assertEqual(stopped, dict.fromkeys(["dormouse-dev-inbound", "dormouse-dev-sweep", "dormouse-dev-tools"], "0"))
        self.assertEqual(account.read()["concurrency"], {"dormouse-dev-sweep": 2})

    def test_nothing_is_stopped_started_or_adopted_while_nobody_tells_what_there_is(self):
        account = self.copied()
        commands = (("stop",), ("start",), ("adopt", "copy"))
        denied = (["cloudformation list-stack-resources"], ["InboundFunction"], "ListStackResources")
        for fails, functions, because in (denied, ([], [], "has no functions")):
            account.now(fails=fails, stack=account.read()["stack"] | {"Functions": functions})
            for command in commands:
                self.refused(account.run("restore.sh", *command, SETTLE_SECONDS="0"), because)
        for service, action in (("lambda", "put-function-concurrency"), ("cloudformation", "update-stack")):
            self.assertEqual(account.calls(service, action), [])

    def test_nothing_is_stopped_for_a_stack_that_takes_no_update(self):
        account = self.copied()
        for state, helps in (("UPDATE_IN_PROGRESS", "when that is over"), ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback")):
            account.now(stack=account.read()["stack"] | {"StackStatus": state})
            before = account.read()
            self.assertNotIn("IS STOPPED", self.refused(self.adopted(account), helps))
            self.assertEqual(account.read() | {"calls": []}, before | {"calls": []}, "nothing was stopped or changed")

    def test_a_function_that_does_not_start_again_keeps_no_other(self):
        account = self.copied(SweepConcurrency="2")
        account.now(fails=["lambda put-function-concurrency dormouse-dev-sweep 2"])
        said = self.refused(self.adopted(account), "dormouse-dev-sweep: still STOPPED")
        self.assertNotIn("EVERY FUNCTION", said)
        self.assertEqual(account.read()["concurrency"], {"dormouse-dev-sweep": 0})
        self.refused(account.run("restore.sh", "start"), "restore.sh start goes on")
        account.now(fails=[])
        self.goes(account.run("restore.sh", "start"))
        self.assertEqual(account.read()["concurrency"], {"dormouse-dev-sweep": 2})

    def test_a_look_that_is_not_answered_ends_no_adoption_and_six_in_a_row_do(self):
        account = self.copied()
        account.now(becomes=["UPDATE_IN_PROGRESS", *[None] * 5, "UPDATE_IN_PROGRESS", *[None] * 5, "UPDATE_COMPLETE"])
        self.goes(self.adopted(account))
        account.now(becomes=["UPDATE_IN_PROGRESS", *[None] * 6], updated=False)
        self.refused(self.adopted(account), "EVERY FUNCTION OF dormouse-dev IS STOPPED")

    def test_an_adoption_that_fails_says_that_everything_is_stopped_and_what_starts_it(self):
        account = self.copied()
        account.now(becomes=["UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"])
        said = self.refused(self.adopted(account), "EVERY FUNCTION OF dormouse-dev IS STOPPED")
        self.assertIn("infra/restore.sh start", said)

    def test_a_restore_that_fails_is_told_and_not_waited_for(self):
        account = self.deployed()
        self.assertIn("infra/restore.sh adopt dormouse-dev-restored-", self.goes(account.run("restore.sh", "table", "latest")))
        for restored, because in (
            ({"TableStatus": "INACCESSIBLE_ENCRYPTION_CREDENTIALS"}, "is INACCESSIBLE_ENCRYPTION_CREDENTIALS"),
            (None, "cannot be looked at"),
        ):
            account = self.deployed()
            account.now(restored=restored)
            self.refused(account.run("restore.sh", "table", "latest"), because)

    def test_a_stack_that_runs_does_not_take_another_table_in_steps(self):
        account = self.copied(Rollout="LambdaCanary10Percent5Minutes")
        self.refused(account.deploy(TABLE_ARN=COPY), "restore.sh adopt copy")
        self.goes(account.deploy(TABLE_ARN=COPY, ROLLOUT="AtOnce"))
        self.assertIn("ttl", account.read()["tables"]["copy"])

    def test_capacity_of_a_table_that_the_stack_did_not_make_is_refused(self):
        account = self.copied(TableArn=COPY)
        for name in ("READ_CAPACITY", "WRITE_CAPACITY_MOST", "WARM_READS"):
            self.refused(account.deploy(**{name: "12000"}), f"{name} is for a table that the stack makes")

    def test_an_empty_table_has_to_be_confirmed(self):
        account = self.copied(TableArn=COPY)
        self.refused(account.deploy(TABLE_ARN="-"), "EMPTY")
        self.goes(account.deploy(TABLE_ARN="-", NEW_TABLE="yes"))
        self.goes(account.deploy(TABLE_ARN="-"))


    def test_a_stack_that_is_made_anew_is_not_given_an_empty_table_unasked(self):
        account = self.account()
        sleepers = {"Table": {"GlobalSecondaryIndexes": [{"IndexName": "claims"}]}}
        account.now(tables={"dormouse-dev-StateTable-1A": sleepers, "dormouse-development-StateTable-1A": sleepers})
        arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/dormouse-dev-StateTable-1A"
        self.assertIn(arn.replace("aws:", "aws-us-gov:"), self.refused(account.deploy(), "tables of this stage of an earlier time"))
        account.now(fails=["dynamodb list-tables"])
        self.refused(account.deploy(), "TABLE_ARN=- makes a new one")
        self.assertEqual((account.read()["stack"], account.secrets, account.read()["buckets"]), (None, {}, {}))
        account.now(fails=[])
        self.goes(account.deploy(TABLE_ARN=arn))
        self.assertEqual((account.parameters["TableArn"], "ttl" in account.read()["tables"]["dormouse-dev-StateTable-1A"]), (arn, True))
        account.now(stack=None)
        self.goes(account.deploy(TABLE_ARN="-"))
        self.assertEqual(account.parameters["TableArn"], "")

    def test_a_table_of_another_place_is_refused(self):
        account = self.copied()
        before = account.read()
        for wrong in (COPY.replace("eu-central-1", "us-east-1"), COPY.replace("123456789012", "999999999999"), "copy", f"{COPY}/index/claims"):
            self.refused(account.deploy(TABLE_ARN=wrong), f"and not {wrong}")
        self.assertEqual(account.read() | {"calls": []}, before | {"calls": []}, "nothing was written")


class Deployment(Scripts):
    def test_a_stack_that_cannot_be_looked_at_is_not_taken_for_none(self):
        account = self.deployed(SecretStore="secrets-manager", SignalConcurrency="300")
        before = account.read()
        for script, arguments in (("deploy.sh", ()), ("destroy.sh", ()), ("restore.sh", ("stop",))):
            account.now(throttled=["cloudformation describe-stacks"])
            said = self.refused(account.run(script, *arguments, YES="1"), "nobody tells whether there is a stack dormouse-dev")
            self.assertIn("Rate exceeded", said)
        self.assertEqual(account.read() | {"calls": []}, before | {"calls": []}, "nothing was written")

    def test_a_stack_that_makes_up_its_secrets_is_not_deployed_and_loses_none(self):
        account = self.deployed(SecretStore="stack")
        account.now(secrets={"dormouse/dev/callback-secret": "made up by the stack"}, calls=[])
        before = account.read()
        said = self.refused(account.deploy(), "the stack makes up its secrets")
        self.assertNotIn("is gone", said)
        self.assertEqual(account.read() | {"calls": []}, before, "nothing was written")
        account = self.account()
        for store, because in (("stack", "the stack makes up its secrets"), ("vault", "SECRET_STORE is parameter-store or secrets-manager")):
            self.refused(account.deploy(SECRET_STORE=store), because)
        self.assertEqual((account.secrets, account.read()["buckets"]), ({}, {}))

    def test_steps_are_refused_while_an_alarm_is_raised_that_would_take_them_back(self):
        account = self.deployed(Rollout="LambdaCanary10Percent5Minutes")
        account.now(alarms=["dormouse-dev-two-InboundRolloutAlarm-1", "dormouse-dev-SweepAlarm-1"])
        self.goes(account.deploy())
        account.now(alarms=["dormouse-dev-InboundRolloutAlarm-1AB"])
        self.refused(account.deploy(), "dormouse-dev-InboundRolloutAlarm-1AB")
        self.goes(account.deploy(ROLLOUT="AtOnce"))

    def test_a_stack_without_a_function_for_sweeps_is_not_deployed_in_steps_the_first_time(self):
        account = self.deployed(Rollout="LambdaCanary10Percent5Minutes", SweepConcurrency="")
        self.refused(account.deploy(), "ROLLOUT=AtOnce the first time")
        self.goes(account.deploy(ROLLOUT="AtOnce"))
        self.goes(account.deploy(ROLLOUT="LambdaCanary10Percent5Minutes"))

    def test_a_stack_that_takes_no_update_is_told_with_what_helps(self):
        removal = "delete-stack --stack-name dormouse-dev removes it, and keeps tables"
        for state, helps in (
            ("ROLLBACK_COMPLETE", removal),
            ("CREATE_FAILED", removal),
            ("ROLLBACK_FAILED", removal),
            ("DELETE_FAILED", removal),
            ("IMPORT_ROLLBACK_FAILED", "made anew around its table"),
            ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback"),
            ("UPDATE_FAILED", "rollback-stack"),
            ("UPDATE_IN_PROGRESS", "when that is over"),
        ):
            account = self.deployed()
            account.now(stack=account.read()["stack"] | {"StackStatus": state})
            before = account.read()
            said = self.refused(account.deploy(), helps)
            self.assertIn(state, said)
            self.assertEqual("removes it" in said, helps == removal, "what runs is not to be removed")
            self.assertEqual("make destroy" in said, "removes ALL of the stage" in said, "nor what sleeps, unless it is said")
            self.assertEqual("nothing of it runs" in said, state == "ROLLBACK_COMPLETE")
            self.assertEqual(account.read() | {"calls": []}, before | {"calls": []}, "nothing was written")

    def test_a_stack_of_which_there_is_only_a_change_set_is_a_new_one(self):
        nothing = {"Parameters": {}, "Table": "none", "StackStatus": "REVIEW_IN_PROGRESS"}
        account = self.account(stack=nothing)
        self.goes(account.deploy(ROLLOUT="LambdaCanary10Percent5Minutes"))
        self.assertEqual(account.parameters["WakeupConcurrency"], "100")
        self.assertEqual(account.read()["stack"]["Tags"], {"dormouse-stage": "dev"})

    def test_a_stage_is_deployed_into_the_account_that_is_meant(self):
        account = self.account()
        for script in ("deploy.sh", "destroy.sh", "restore.sh"):
            self.refused(account.run(script, "start", ACCOUNT="999999999999", YES="1"), "these credentials are of account 123456789012")
        said = self.refused(account.deploy(typed="prod"), "nothing was changed")
        self.assertIn("there is no stack dormouse-dev in account 123456789012", said)
        self.assertEqual((account.read()["stack"], account.read()["buckets"], account.secrets), (None, {}, {}))
        self.assertNotIn("there is no stack", self.goes(account.deploy(typed="", ACCOUNT="123456789012")))
        self.assertNotIn("there is no stack", self.goes(account.deploy(typed="")), "it is there already")
        account = self.account()
        self.goes(account.deploy(typed="dev"))

    def test_tags_stay_until_others_are_given(self):
        account = self.account()

        def tags():
            return account.read()["stack"]["Tags"]

        self.goes(account.deploy(TAGS="team=agents cost-center=42"))
        first = {"dormouse-stage": "dev", "team": "agents", "cost-center": "42"}
        self.assertEqual(tags(), first)
        account.now(stack=account.read()["stack"] | {"Tags": first | {"owner": "Ada and Grace"}})
        self.goes(account.deploy())
        self.assertEqual(tags(), first | {"owner": "Ada and Grace"})
        self.goes(account.deploy(TAGS="team=tools"))
        self.assertEqual(tags(), {"dormouse-stage": "dev", "team": "tools"})
        self.goes(account.deploy(TAGS="-"))
        self.assertEqual(tags(), {"dormouse-stage": "dev"})

    def test_a_deployment_that_takes_longer_than_an_hour_is_waited_for(self):
        account = self.deployed()
        state = ["UPDATE_IN_PROGRESS"] * 5
        account.now(becomes=[*state, "UPDATE_COMPLETE"])
        self.goes(account.deploy())
        account.now(becomes=[*state, "UPDATE_ROLLBACK_COMPLETE"], updated=False)
        self.refused(account.deploy(), "the deployment failed")

    def test_a_deployment_whose_end_nobody_tells_is_not_said_to_have_failed(self):
        account = self.deployed()
        # Credentials that expire while CloudFormation works end the command and all that are called behind it.
        account.now(becomes=[None] * 60)
        self.assertNotIn("the deployment failed", self.refused(account.deploy(), "nobody tells whether there is a stack dormouse-dev"))

    def test_what_somebody_else_deploys_meanwhile_is_not_taken_for_this_deployment(self):
        account = self.deployed()
        another = ["UPDATE_COMPLETE", *["UPDATE_IN_PROGRESS"] * 60, "UPDATE_COMPLETE"]
        account.now(fails=["cloudformation deploy"], becomes=another, updated=True)
        self.refused(account.deploy(), "the deployment failed")

    def test_a_new_stack_reserves_a_tenth_of_what_nobody_else_has_reserved(self):
        # Of what is left when the stack has its own: three tenths, and two for sweeps.
        for reserved, expected, alarm in ((0, "100", 1000 - 698 // 5), (400, "60", 1000 - 418 // 5), (700, None, 1000 - 298 // 5)):
            account = self.account(concurrency={"of-others": reserved})
            said = self.goes(account.deploy())
            self.assertEqual(account.parameters.get("WakeupConcurrency"), expected)
            self.assertEqual("nothing is reserved" in said, expected is None)
            self.assertEqual(account.parameters["ConcurrencyAlarmAt"], str(alarm), "four fifths of what nobody reserved")

    def test_the_alarm_of_concurrency_counts_what_is_reserved_more_and_less_than_before(self):
        account = self.deployed(SignalConcurrency="100", WakeupConcurrency="50")
        account.now(concurrency={"dormouse-dev-signal": 100, "dormouse-dev-wakeup": 50, "dormouse-dev-sweep": 2})
        for given, free in (
            ({}, 848),
            ({"INBOUND_CONCURRENCY": "300"}, 548),
            ({"SIGNAL_CONCURRENCY": "-", "WAKEUP_CONCURRENCY": "60"}, 848 + 100 - 10 - 300),
        ):
            self.goes(account.deploy(**given))
            self.assertEqual(account.parameters["ConcurrencyAlarmAt"], str(1000 - free // 5), given)
            numbers = {name: int(account.parameters.get(f"{name.capitalize()}Concurrency", 0)) for name in ("inbound", "signal", "wakeup", "sweep")}
            account.now(concurrency={f"dormouse-dev-{name}": number for name, number in numbers.items() if number})

    def test_the_sweep_keeps_what_is_reserved_for_it_and_gets_two_where_the_account_can_spare_them(self):
        for reserved, expected in ((0, "2"), (700, "2"), (950, None)):
            account = self.account(concurrency={"of-others": reserved})
            self.goes(account.deploy())
            self.assertEqual(account.parameters.get("SweepConcurrency"), expected)
        self.goes(account.deploy(SWEEP_CONCURRENCY="5"))
        self.goes(account.deploy())
        self.assertEqual(account.parameters["SweepConcurrency"], "5")

    def test_what_workspaces_keep_of_old_is_deleted_where_somebody_said_so_or_the_stack_is_new(self):
        account = self.deployed(Workspaces="desk")
        self.assertIn("keeps what was replaced for ever", self.goes(account.deploy()))
        self.assertEqual(account.parameters["VersionDays"], "0")
        self.assertNotIn("for ever", self.goes(account.deploy()))
        self.assertEqual(account.parameters["VersionDays"], "0")
        self.goes(account.deploy(VERSION_DAYS="30"))
        self.goes(account.deploy())
        self.assertEqual(account.parameters["VersionDays"], "30")
        account = self.account()
        self.goes(account.deploy(WORKSPACES="desk"))
        self.assertNotIn("VersionDays", account.parameters)

    def test_functions_that_are_stopped_stay_so_and_it_is_said(self):
        account = self.deployed()
        self.goes(account.run("restore.sh", "stop"))
        self.assertIn("STOPPED, as restore.sh stop left them: dormouse-dev-inbound dormouse-dev-sweep.", self.goes(account.deploy()))
        self.goes(account.run("restore.sh", "start"))
        self.assertNotIn("STOPPED", self.goes(account.deploy()))
        account.now(fails=["lambda get-function-concurrency"])
        self.assertNotIn("STOPPED", self.goes(account.deploy()))

    def test_a_function_that_does_not_start_is_told_behind_everything_else(self):
        account = self.deployed()
        account.now(broken={"inbound": 5})
        said = self.goes(account.deploy())
        self.assertNotIn("nobody looked", said)
        looked = [(call[3], call[5]) for call in account.calls("lambda", "invoke")]
        self.assertEqual(looked[-3:], [(f"dormouse-dev-{name}", "live") for name in ("inbound", "signal", "wakeup")], "a role takes a while")
        account.now(broken={"inbound": 100, "wakeup": 100}, calls=[])
        said = self.refused(account.deploy(), "dormouse-dev is deployed, and does not work: no answer of dormouse-dev-inbound dormouse-dev-wakeup.")
        self.assertIn("/dormouse/dormouse-dev/functions", said)
        self.assertIn("the signal key: aws", said)
        self.assertNotIn("hush", said)
        self.assertEqual(len(account.calls("lambda", "invoke")), 8, "nobody waits for each of them")
        self.assertEqual(account.read()["stack"]["StackStatus"], "UPDATE_COMPLETE")
        account.now(broken={}, fails=["lambda invoke"], calls=[])
        self.refused(account.deploy(), "does not work")

    def test_functions_are_not_looked_at_that_are_stopped_or_that_who_deploys_may_not_call(self):
        account = self.deployed()
        self.goes(account.run("restore.sh", "stop"))
        self.goes(account.deploy())
        self.assertEqual([call[3] for call in account.calls("lambda", "invoke")], ["dormouse-dev-signal", "dormouse-dev-wakeup"])
        account = self.deployed()
        account.now(denied=["lambda invoke"])
        said = self.goes(account.deploy())
        self.assertIn("nobody looked whether dormouse-dev-inbound starts", said)
        self.assertIn("AccessDeniedException", said)

    def test_who_is_told_of_alarms_is_asked_for_until_somebody_is(self):
        account = self.account()
        self.assertIn("nobody is told of alarms", self.goes(account.deploy()))
        self.assertNotIn("nobody is told", self.goes(account.deploy(ALARM_TOPIC_ARN="arn:aws:sns:eu-central-1:1:on-call")))
        self.assertNotIn("nobody is told", self.goes(account.deploy()))

    def test_what_is_set_goes_back_to_the_default_of_the_template(self):
        account = self.deployed()
        self.goes(account.deploy(THROTTLING_RATE="5", TURN_SECONDS="300", ALARMS="few", LOG_DAYS="7", DOMAIN="agents.example.com"))
        names = ("ThrottlingRate", "TurnSeconds", "SignalTimeout", "WakeupTimeout", "Alarms", "LogRetentionDays", "DomainName")
        self.assertEqual([account.parameters[name] for name in names], ["5", "300", "330", "330", "few", "7", "agents.example.com"])
        self.goes(account.deploy(THROTTLING_RATE="-", TURN_SECONDS="-", ALARMS="-", LOG_DAYS="-", DOMAIN="-"))
        self.assertEqual([account.parameters[name] for name in names], ["1000", "150", "180", "300", "all", "30", ""])
        self.refused(account.deploy(TURN_SECONDS="2m"), "TURN_SECONDS is a number of seconds")

    def test_a_bucket_of_workspaces_is_found_again(self):
        account = self.account()
        self.goes(account.deploy(WORKSPACES="desk"))
        self.assertNotIn("WorkspaceBucketName", account.parameters)
        earlier = {"dormouse-dev-workspacebucket-1a": {"objects": ["workspaces/desk/current"]}}
        account.now(buckets=account.read()["buckets"] | earlier)
        self.goes(account.deploy(WORKSPACES="-"))
        account.now(fails=["s3api list-buckets"])
        self.refused(account.deploy(WORKSPACES="desk"), "WORKSPACES_BUCKET= names it")
        account.now(fails=[])
        self.assertIn("is used again", self.goes(account.deploy(WORKSPACES="desk")))
        self.goes(account.deploy())
        self.assertEqual(account.parameters["WorkspaceBucketName"], "dormouse-dev-workspacebucket-1a")
        self.refused(account.deploy(VERSION_DAYS="30"), "VERSION_DAYS is for a bucket that the stack makes")
        self.refused(account.deploy(WORKSPACES_BUCKET="of-nobody"), "there is no bucket of-nobody")
        self.goes(account.deploy(WORKSPACES="-", WORKSPACES_BUCKET="-"))
        account.now(buckets=account.read()["buckets"] | {"dormouse-dev-workspacebucket-2b": {"objects": []}})
        self.refused(account.deploy(WORKSPACES="desk"), "several buckets of workspaces")
        self.goes(account.deploy(WORKSPACES="desk", WORKSPACES_BUCKET="-"))
        self.assertEqual(account.parameters["WorkspaceBucketName"], "")

    def test_a_bucket_of_another_account_gets_no_functions(self):
        account = self.account()
        place = "dormouse-artifacts-123456789012-eu-central-1"
        account.now(buckets={place: {"objects": [], "owner": "999999999999"}})
        self.refused(account.deploy(), "ARTIFACT_BUCKET= names another one")
        self.assertEqual((account.read()["stack"], account.secrets), (None, {}))
        # Of credentials that have expired; without a network, and with a number in a name that is none of an answer.
        for said in ("An error occurred (400) when calling the HeadBucket operation: Bad Request", 'Could not connect: "https://of-404/"'):
            account.now(no_bucket_seen=said)
            self.assertNotIn("another account", self.refused(account.deploy(), "nobody tells whether there is a bucket"))
        account.now(no_bucket_seen=None)
        self.goes(account.deploy(ARTIFACT_BUCKET="of-ours"))
        self.goes(account.deploy())
        self.assertEqual(account.parameters["ArtifactBucket"], "of-ours")
        self.assertEqual(account.read()["buckets"][place]["objects"], [])
        self.assertIn("inbound.zip", str(account.read()["buckets"]["of-ours"]["objects"]))

    def test_a_key_that_is_replaced_may_be_used_until_somebody_says_that_nothing_needs_it(self):
        first, second = (f"arn:aws:kms:eu-central-1:123456789012:key/{name}" for name in ("first", "second"))
        account = self.account()

        def keys():
            return account.parameters["KmsKeyArn"], account.parameters.get("EarlierKmsKeyArns")

        self.goes(account.deploy(KMS_KEY_ARN=first))
        self.assertEqual(keys(), (first, None))
        self.refused(account.deploy(KMS_KEY_ARN=second, ROTATE="callback-secret"), "with the next deployment")
        self.refused(account.deploy(KMS_KEY_ARN=second, EARLIER_KMS_KEY_ARNS="-"), "does not change KMS_KEY_ARN")
        self.assertIn(first, self.goes(account.deploy(KMS_KEY_ARN=second)))
        self.goes(account.deploy())
        self.assertEqual(keys(), (second, first))
        self.goes(account.deploy(KMS_KEY_ARN="-"))
        self.assertEqual(keys(), ("", f"{first},{second}"))
        self.goes(account.deploy(KMS_KEY_ARN=first))
        self.assertEqual(keys(), (first, second))
        self.goes(account.deploy(EARLIER_KMS_KEY_ARNS="-"))
        self.goes(account.deploy())
        self.assertEqual(keys(), (first, ""))

    def test_files_are_named_as_they_are_seen_by_who_deploys(self):
        account = self.deployed()
        (account.folder / "channels.json").write_bytes(b'{"gr\xc3\xbcn":\r\n\t{"slack": "https://hooks.example.com/x"}}\r\n')
        self.goes(account.deploy(NOTIFICATIONS="enabled", NOTIFICATIONS_FILE="channels.json", ZIPS="."))
        self.assertIn('{"grün":   {"slack": "https://hooks.example.com/x"}}', account.secrets["/dormouse/dev/notifications"])

    def test_what_no_function_could_read_is_refused_before_anything_is_written(self):
        account = self.deployed()
        (account.folder / "broken.json").write_text('{"ops": {"slack": "https://hooks.example.com/x"}')
        (account.folder / "list.json").write_text("[]")
        account.now(calls=[])
        before = account.read()
        for given, because in (
            ({"ALLOWED_ORIGINS": "https://app.example.com/"}, "ALLOWED_ORIGINS names origins"),
            ({"ALLOWED_ORIGINS": "https://a.example.com,,*"}, "ALLOWED_ORIGINS names origins"),
            ({"ISSUERS": '[{"name": "login",}]'}, "ISSUERS is no JSON array"),
            ({"ISSUERS": '{"name": "login"}'}, "ISSUERS is no JSON array"),
            ({"NOTIFICATIONS_FILE": "broken.json"}, "holds no JSON object of channels"),
            ({"NOTIFICATIONS_FILE": "list.json"}, "holds no JSON object of channels"),
            ({"NOTIFICATIONS_FILE": "nowhere.json"}, "there is no file"),
            ({"PROTECTED": "true"}, "PROTECTED is yes or no"),
            ({"ALLOWED_ORIGINS": "https://app.example.com," * 134 + "*"}, "more than 3,200 bytes together"),
        ):
            self.refused(account.deploy(NOTIFICATIONS="enabled", **given), because)
        self.assertEqual(account.read() | {"calls": []}, before, "nothing was written")
        self.goes(account.deploy(ISSUERS='[\r\n\t{"name":\n"login"}]', PROTECTED=""))
        self.assertEqual(account.parameters["Issuers"], '[{"name":"login"}]')
        self.goes(account.deploy(ISSUERS="[\n" + '\t{"name": "login"},\n' * 149 + '{"name": "login"}]'))
        self.goes(account.deploy(ISSUERS="-", ALLOWED_ORIGINS=" HTTPS://App.Example.com , http://[::1]:3000,*"))
        self.assertEqual((account.parameters["Issuers"], account.parameters["AllowedOrigins"]), ("", " HTTPS://App.Example.com , http://[::1]:3000,*"))

    def test_a_shell_that_looks_for_folders_elsewhere_leads_no_script_there(self):
        account = self.account()
        (account.folder / "elsewhere" / "infra").mkdir(parents=True)
        for path in (account.folder / "elsewhere", "."):
            self.goes(account.run("deploy.sh", where=HERE.parents[1], CDPATH=str(path)))
        scripts = [place for of in ("*/*", "tests/*/*", "shared/cli/src/new/infra/*") for place in HERE.parents[1].glob(f"{of}.sh")]
        self.assertGreater(len(scripts), 10)
        for script in scripts:
            self.assertNotRegex(script.read_text(), r'(?<!CDPATH=\'\' )\bcd "\$\(dirname', script)

    def test_models_are_of_the_partition_of_the_account(self):
        account = self.deployed()
        self.goes(account.deploy(BEDROCK_MODELS="amazon.nova-lite-v1:0"))
        model = "arn:aws-us-gov:bedrock:eu-central-1::foundation-model/amazon.nova-lite-v1:0"
        self.assertEqual(account.parameters["BedrockModels"], model)


class Interrupted(Scripts):
    def ended(self, account, at, script, *arguments, **variables):
        """Interrupts `script` in its call `at`, behind which it must not go on."""
        account.now(interrupted=[at], calls=[])
        said = self.refused(account.run(script, *arguments, **variables), "interrupted")
        self.assertEqual(" ".join(account.read()["calls"][-1][:2]), at, said)
        account.now(interrupted=[])
        return said

    def test_a_script_that_is_interrupted_goes_on_nowhere(self):
        account = self.copied()
        for at in ("cloudformation deploy", "lambda list-versions-by-function", "lambda get-function-concurrency", "lambda invoke"):
            self.ended(account, at, "deploy.sh")
        account.now(becomes=["UPDATE_COMPLETE", *["UPDATE_IN_PROGRESS"] * 60], updated=True)
        self.ended(account, "cloudformation deploy", "deploy.sh")
        account.now(becomes=[], stack=account.read()["stack"] | {"StackStatus": "UPDATE_COMPLETE"})
        self.ended(account, "dynamodb wait", "restore.sh", "table", "latest")
        said = self.ended(account, "cloudformation describe-stacks", "restore.sh", "start")
        self.assertNotIn("nobody tells", said)
        self.assertIn("STILL STOPPED", self.ended(account, "lambda delete-function-concurrency", "restore.sh", "start"))
        self.assertIn("IS STOPPED", self.ended(account, "cloudformation update-stack", "restore.sh", "adopt", "copy", SETTLE_SECONDS="0"))

    def test_what_is_to_be_removed_stays_from_where_somebody_interrupts(self):
        account = self.deployed()
        account.now(tables={"dormouse-dev-StateTable-1A": {"Table": {}}}, rules=["of-a-graph"])
        said = self.ended(account, "lambda put-function-concurrency", "destroy.sh", YES="1")
        self.assertIn("make destroy STAGE=dev goes on", said)
        self.assertEqual((account.read()["rules"], len(account.read()["tables"])), (["of-a-graph"], 1))
        self.assertEqual(list(account.folder.glob("tmp.*")), [], "no folder of secrets is left")
        self.goes(account.run("destroy.sh", YES="1"))


class Removal(Scripts):
    TABLE, BUNDLES, ZIPS = "dormouse-dev-StateTable-1A", "dormouse-dev-workspacebucket-1a", "dormouse-artifacts-123456789012-eu-central-1"

    def stage(self, **known):
        account = self.deployed()
        account.now(stack=account.read()["stack"] | {"Table": self.TABLE}, tables={self.TABLE: {"Table": {}}}, **known)
        account.now(rules=["dormouse-signal", "of-a-graph"])
        account.now(secrets=account.secrets | {"/dormouse/dev/agents/KEY": "of a model", "/dormouse/other/agents/KEY": "stays"})
        zips = {"objects": ["dormouse-dev/0123/inbound.zip", "dormouse-development/0123/inbound.zip"]}
        account.now(buckets={self.BUNDLES: {"objects": ["workspaces/desk/current"]}, self.ZIPS: zips})
        return account

    def destroyed(self, account, **variables):
        return account.run("destroy.sh", YES="1", **variables)

    def nothing_is_left(self, account):
        left = account.read()
        self.assertEqual((left["stack"], left["tables"]), (None, {}))
        self.assertEqual(left["buckets"], {self.ZIPS: {"objects": ["dormouse-development/0123/inbound.zip"]}})
        self.assertEqual(left["rules"], ["dormouse-signal"], "rules of the stack go with it")
        self.assertEqual(left["secrets"], {"/dormouse/other/agents/KEY": "stays"})

    def test_nothing_of_a_stage_is_left(self):
        account = self.stage()
        self.goes(self.destroyed(account))
        self.nothing_is_left(account)
        self.refused(self.destroyed(account), "nothing that it left")

    def test_no_sweep_makes_rules_again_while_the_bus_is_removed(self):
        account = self.stage(declared=["declared-by-a-graph"])
        self.goes(self.destroyed(account))
        self.nothing_is_left(account)
        account = self.stage(fails=["lambda put-function-concurrency"])
        self.assertIn("dormouse-dev-sweep", self.goes(self.destroyed(account)))
        self.nothing_is_left(account)

    def test_nothing_is_removed_while_nobody_tells_what_there_is(self):
        secrets = "ssm get-parameters-by-path /dormouse/dev/agents"
        of_buckets = ("s3api head-bucket", "s3api list-buckets", "s3api list-object-versions", "s3api list-objects-v2")
        for refused in ("events list-rules", "dynamodb list-tables", secrets, *of_buckets):
            account = self.stage(fails=[refused])
            before = account.read()
            self.assertIn("nothing was", self.refused(self.destroyed(account), "removed"))
            self.assertEqual(account.read() | {"calls": []}, before | {"calls": []}, refused)

    def test_a_removal_that_ends_early_goes_on_where_it_ended(self):
        of_buckets = (f"s3api delete-object {self.BUNDLES}", f"s3api delete-bucket {self.BUNDLES}", "s3 rm")
        for fails in ("dynamodb update-table", "dynamodb delete-table", "cloudformation delete-stack", f"ssm delete-parameters {CALLBACK}", *of_buckets):
            account = self.stage()
            account.now(fails=[fails])
            self.refused(self.destroyed(account), "make destroy STAGE=dev goes on")
            account.now(fails=[])
            self.goes(self.destroyed(account))
            self.nothing_is_left(account)

    def test_a_removal_that_takes_longer_than_an_hour_is_waited_for(self):
        account = self.stage(removed=["DELETE_IN_PROGRESS"] * 3 + [None])
        self.assertIn("still removes", self.goes(self.destroyed(account)))
        self.nothing_is_left(account)

    def test_a_stack_that_something_keeps_is_named_with_its_state(self):
        account = self.stage(removed=["DELETE_IN_PROGRESS", "DELETE_FAILED"])
        self.refused(self.destroyed(account), "is DELETE_FAILED and not removed")
        self.assertEqual(list(account.read()["tables"]), [self.TABLE], "what is behind it stays until it is gone")
        account.now(removed=[None])
        self.goes(self.destroyed(account))
        self.nothing_is_left(account)

    def test_a_stack_whose_first_creation_failed_is_removed_with_what_it_left(self):
        account = self.stage()
        account.now(stack=account.read()["stack"] | {"StackStatus": "ROLLBACK_COMPLETE"})
        account.now(tables={self.TABLE: {"Table": {}}, "dormouse-dev-StateTable-2B": {"Table": {}}}, rules=["dormouse-signal"])
        self.goes(self.destroyed(account))
        self.nothing_is_left(account)

    def test_tables_and_buckets_that_the_stack_uses_no_more_go_too_and_what_is_of_others_stays(self):
        account = self.stage()
        others = {"copy": {"Table": {}}, "dormouse-development-StateTable-1A": {"Table": {}}}
        account.now(stack=account.read()["stack"] | {"Table": "copy"})
        account.now(tables={self.TABLE: {"Table": {}}, "dormouse-dev-restored-20270131T100000Z": {"Table": {}}} | others)
        of_others = {"dormouse-dev-workspacebucket-2b": {"objects": ["workspaces/desk/current"], "region": "us-east-1"}}
        of_others["dormouse-development-workspacebucket-1a"] = {"objects": []}
        account.now(buckets=account.read()["buckets"] | of_others | {"dormouse-dev-workspacebucket-3c": {"objects": ["a"]}})
        self.assertIn("copy stays", self.goes(self.destroyed(account)))
        left = account.read()
        self.assertEqual(left["tables"], others)
        self.assertEqual(set(left["buckets"]), {self.ZIPS, *of_others})

    def test_nothing_is_removed_while_the_stack_changes(self):
        account = self.stage()
        account.now(stack=account.read()["stack"] | {"StackStatus": "UPDATE_IN_PROGRESS"})
        self.refused(self.destroyed(account), "changes just now")
        self.assertEqual(account.calls("cloudformation", "delete-stack"), [])

    def test_a_secret_that_cannot_be_removed_is_named_and_keeps_no_other(self):
        account = self.stage()
        account.now(fails=[f"ssm delete-parameters {CALLBACK}"])
        self.refused(self.destroyed(account), f"could not be removed: {CALLBACK}")
        self.assertEqual(list(account.secrets), [CALLBACK, "/dormouse/other/agents/KEY"])

    def test_secrets_of_secrets_manager_are_removed_without_being_read(self):
        account = self.deployed(SecretStore="secrets-manager")
        kept = {"dormouse/dev/callback-secret": "signs", "dormouse/dev/vaults/hook": "opens"}
        account.now(secrets=kept, fails=["secretsmanager get-secret-value"])
        self.goes(account.run("destroy.sh", YES="1"))
        self.assertEqual(account.secrets, {})


if __name__ == "__main__":
    unittest.main()
