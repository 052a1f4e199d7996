"""Tests of the scripts that deploy and restore, on an account that is a file (aws.py). What CloudFormation, Lambda and
DynamoDB make of what they are told is for tests/aws."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jmespath

HERE = pathlib.Path(__file__).resolve().parent
CALLBACK = "/dormouse/dev/callback-secret"
SIGNAL = "/dormouse/dev/signal-key"


class Account:
    def __init__(self, folder, **known):
        self.folder = pathlib.Path(folder)
        self.place = self.folder / "account.json"
        fresh = {"stack": None, "secrets": {}, "tables": {}, "concurrency": {}, "alarms": [], "limit": 1000}
        self.write(fresh | {"calls": [], "fails": [], "becomes": []} | known)
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

    def run(self, script, *arguments, **variables):
        """Whether the script came to its end, and what it said."""
        given = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "AWS_REGION": "eu-central-1", "STAGE": "dev"}
        given |= {"FAKE_ACCOUNT": str(self.place), "ZIPS": str(self.folder), "PAUSE": "0", "TMPDIR": str(self.folder)}
        command = ["bash", HERE.parent / script, *arguments]
        done = subprocess.run(command, env=given | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True)
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
        given = {"SecretStore": "parameter-store", "Rollout": "AtOnce", "Release": "before"} | parameters
        stack = {"Parameters": given, "Table": "dormouse-dev-StateTable", "StackStatus": "UPDATE_COMPLETE"}
        secrets = {CALLBACK: "signs what sleeps, and nobody would guess it", SIGNAL: "opens the door for signals"}
        return self.account(stack=stack, secrets=secrets)

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

    def test_the_secret_before_may_be_given_again(self):
        account = self.deployed()
        before = account.secrets[CALLBACK]
        self.goes(account.deploy(ROTATE="callback-secret"))
        between = account.secrets[CALLBACK]
        self.goes(account.deploy(CALLBACK_SECRET=before))
        self.assertEqual((account.secrets[CALLBACK], account.secrets[f"{CALLBACK}-second"]), (before, between))


if __name__ == "__main__":
    unittest.main()
