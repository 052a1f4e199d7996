"""Tests of what template.yaml says that no linter knows: what takes a new version back, which parameters exclude others, what is
made before what, and how large policies become."""

import json
import pathlib
import re
import unittest

from cfnlint.decode import decode

HERE = pathlib.Path(__file__).resolve().parents[1]
TEMPLATE, _ = decode(str(HERE / "template.yaml"))
RESOURCES = TEMPLATE["Resources"]


def of_type(kind):
    return {name: one["Properties"] for name, one in RESOURCES.items() if one["Type"] == kind}


class Rollouts(unittest.TestCase):
    def test_each_alias_moves_with_a_group_of_its_own(self):
        for name in of_type("AWS::Lambda::Alias"):
            condition, group, otherwise = RESOURCES[name]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["Fn::If"]
            self.assertEqual((condition, otherwise), ("IsGradual", {"Ref": "AWS::NoValue"}))
            self.assertEqual(group["DeploymentGroupName"], {"Ref": name.removesuffix("Live") + "Rollout"})

    def test_what_takes_a_version_back_looks_at_that_version_or_at_what_callers_are_answered(self):
        groups = of_type("AWS::CodeDeploy::DeploymentGroup")
        self.assertEqual(len(groups), len(of_type("AWS::Lambda::Alias")))
        for name, group in groups.items():
            function = name.removesuffix("Rollout")
            alarms = [one["Name"]["Ref"] for one in group["AlarmConfiguration"]["Alarms"]]
            self.assertIn(f"{function}RolloutAlarm", alarms)
            self.assertLessEqual(set(alarms), {f"{function}RolloutAlarm", "AnswersRolloutAlarm"})
            looks_at = {one["Name"]: one["Value"] for one in RESOURCES[f"{function}RolloutAlarm"]["Properties"]["Dimensions"]}
            self.assertEqual(looks_at["Resource"], {"Fn::Sub": f"${{{function}Function}}:live"})
            self.assertEqual(looks_at["ExecutedVersion"], {"Fn::GetAtt": [f"{function}Version", "Version"]})


class Alarms(unittest.TestCase):
    def test_who_fails_each_time_is_told_where_few_ask_and_who_is_tried_again_is_not_told_of_one_event(self):
        for name in ("Inbound", "Signal", "Wakeup", "Sweep", "Stream", "Socket", "Tools"):
            alarm = RESOURCES[f"{name}ErrorAlarm"]["Properties"]
            # Lambda makes an attempt at once, after a minute, and after two more.
            attempts = {0, 1, 3}
            looked_at = alarm["EvaluationPeriods"]
            raised = alarm.get("DatapointsToAlarm", looked_at)
            most = max(len({at for at in attempts if begin <= at < begin + looked_at}) for begin in range(4))
            is_waited_for = name in ("Inbound", "Stream", "Tools")
            self.assertEqual((alarm["Period"], most < raised), (60, not is_waited_for), name)
            # A caller in five minutes.
            seldom = len(range(0, looked_at, 5))
            self.assertEqual(seldom >= raised, is_waited_for, name)


class Parameters(unittest.TestCase):
    def test_no_capacity_is_given_to_a_table_that_the_stack_did_not_make(self):
        table = RESOURCES["StateTable"]["Properties"]
        used = {name for name in TEMPLATE["Parameters"] if f"'Ref': '{name}'" in str(dict(table)) and name != "KmsKeyArn"}
        used |= {name for name in TEMPLATE["Parameters"] if name.endswith("CapacityMost")}
        self.assertLessEqual({"ReadCapacity", "WriteCapacity", "WarmReads", "WarmWrites"}, used)
        asserted = str(TEMPLATE["Rules"]["ATableThatIsThereHasItsCapacity"]["Assertions"])
        for name in used:
            self.assertIn(f"'Ref': '{name}'", asserted)

    def test_what_no_function_could_read_is_refused(self):
        """A function that cannot read its environment does not start, and CloudFormation does not notice."""
        origins = ["", "*", "https://app.example.com", "https://app.example.com, http://localhost:3000", "http://[::1]:3000,*", "HTTPS://APP.EXAMPLE.COM"]
        no_origins = ["https://app.example.com/", "app.example.com", "https://a,", "https://a,,https://b", "https://a https://b", "null"]
        issuers = ["", "[]", '[{"name": "login"}]', '\n[\n{"name": "login"}\n]\n']
        no_issuers = ['{"name": "login"}', "login", '[{"name": "login"}']
        for name, taken, refused in (("AllowedOrigins", origins, no_origins), ("Issuers", issuers, no_issuers)):
            pattern = TEMPLATE["Parameters"][name]["AllowedPattern"]
            self.assertEqual([one for one in taken if not re.fullmatch(pattern, one)], [], name)
            self.assertEqual([one for one in refused if re.fullmatch(pattern, one)], [], name)


def parts(value):
    """`value` and all that is in it."""
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from parts(one)


def named(value):
    """What is referred to in `value`."""
    for part in parts(value):
        if isinstance(part, dict) and "Ref" in part:
            yield part["Ref"]
        if isinstance(part, dict) and "Fn::GetAtt" in part:
            yield part["Fn::GetAtt"][0]
        if isinstance(part, dict) and "Fn::Sub" in part:
            yield from (name.split(".")[0] for name in re.findall(r"\$\{([^}]+)\}", part["Fn::Sub"]))


FUNCTIONS = of_type("AWS::Lambda::Function")
POLICIES = of_type("AWS::IAM::Policy")
MANAGED = of_type("AWS::IAM::ManagedPolicy")
SECRETS = of_type("AWS::SecretsManager::Secret")


class Order(unittest.TestCase):
    def before(self, name):
        """All that is made before `name`, as far as it is made at all."""
        found, ahead = set(), [name]
        while ahead:
            resource = RESOURCES[ahead.pop()]
            wanted = set(named(resource)) & set(RESOURCES)
            after = resource.get("DependsOn", [])
            wanted |= {after} if isinstance(after, str) else set(after)
            ahead += wanted - found
            found |= wanted
        self.assertNotIn(name, found, "in a circle")
        return found

    def test_code_comes_after_what_it_may_do(self):
        for function, properties in FUNCTIONS.items():
            role = properties["Role"]["Fn::GetAtt"][0]
            added = {name for name, policy in (POLICIES | MANAGED).items() if role in named(policy["Roles"])}
            self.assertLessEqual(added, self.before(function), function)
            for policy in added:
                self.assertIn([RESOURCES[policy]["Condition"], {"Ref": policy}, {"Ref": "AWS::NoValue"}],
                              [one["Fn::If"] for one in RESOURCES[function]["Metadata"]["After"]])
        self.assertIn("UseOfEarlierKeys", self.before("UseOfTheKey"))

    def test_code_comes_after_the_secrets_that_the_stack_makes(self):
        for function, properties in FUNCTIONS.items():
            role = properties["Role"]["Fn::GetAtt"][0]
            allowed = [RESOURCES[role], *(one for one in POLICIES.values() if role in named(one["Roles"]))]
            read = {name for name, secret in SECRETS.items()
                    if f":secret:{secret['Name']['Fn::Sub']}-??????" in json.dumps(allowed)}
            self.assertLessEqual(read, self.before(function), function)


# The longest that names and parameters become.
LONGEST = {"AWS::StackName": "dormouse-" + "s" * 20, "Stage": "s" * 20, "AWS::Region": "ap-southeast-1", "AWS::Partition": "aws-us-gov",
           "AWS::AccountId": "1" * 12, "SocketApi": "a" * 10, "Bus": "dormouse-" + "s" * 20, "ScheduleGroup": "dormouse-" + "s" * 20,
           # With Terraform a build and a place, and when six secrets were changed.
           "ArtifactPrefix": "a" * 83, "Release": "a" * 24, "SecretsChanged": "2027-01-31T10:00:00.000000+00:00 " * 6}


class Environments(unittest.TestCase):
    def test_there_is_room_for_what_is_given_beside_the_longest_names(self):
        """Lambda takes 4,096 bytes of names and values; README.md says that 1,500 are for what may be of any length."""
        policies = Policies()
        for function, properties in FUNCTIONS.items():
            variables = properties.get("Environment", {"Variables": {}})["Variables"]
            given = ("DORMOUSE_ISSUERS", "DORMOUSE_ALLOWED_ORIGINS", "DORMOUSE_WORKSPACES")
            sizes = {name: len(name) + (0 if name in given else len(policies.written(value))) for name, value in variables.items()}
            self.assertLessEqual(sum(sizes.values()), 2_596, f"{function}: {sizes}")


class Names(unittest.TestCase):
    def test_what_terraform_takes_as_a_name_is_short_enough_for_what_is_named_after_it(self):
        given = re.search(r'variable "name" \{.*?\{0,(\d+)\}', (HERE / "terraform/main.tf").read_text(), re.DOTALL)
        most = {"AWS::Lambda::Function": ("FunctionName", 64), "AWS::SQS::Queue": ("QueueName", 80), "AWS::Scheduler::ScheduleGroup": ("Name", 64)}
        for kind, (field, longest) in most.items():
            for name, properties in of_type(kind).items():
                written = properties[field]
                behind = written.get("Fn::Sub", "").removeprefix("${AWS::StackName}")
                self.assertLessEqual(1 + int(given[1]) + len(behind), longest, name)


class Policies(unittest.TestCase):
    """IAM takes 10,240 characters of all policies inside of a role, ten others of 6,144 each, and counts no blanks."""

    def written(self, value):
        """How long what IAM is given of `value` is at most; of a choice the longer one."""
        if isinstance(value, dict) and len(value) == 1:
            (function, given), = value.items()
            if function == "Fn::If":
                return max(self.written(given[1]), self.written(given[2]), key=len)
            if function == "Ref":
                return "" if given == "AWS::NoValue" else json.dumps(self.name(given))
            if function == "Fn::GetAtt":
                return json.dumps(self.arn(given[0]))
            if function == "Fn::Sub":
                whole = re.sub(r"\$\{([^}]+)\}", lambda one: self.arn(one[1][:-4]) if one[1].endswith(".Arn") else self.name(one[1]), given)
                return json.dumps(whole)
            if function == "Fn::Split":
                # Each has quotes and a comma more; the shortest ARN is longer than ten times that.
                return "x" * round(len(self.name(given[1]["Ref"])) * 1.1)
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(key)}:{self.written(one)}" for key, one in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(self.written(one) for one in value) + "]"
        return json.dumps(value)

    def name(self, name):
        if name in TEMPLATE["Parameters"]:
            parameter = TEMPLATE["Parameters"][name]
            numbers = ["1" * 7] if parameter["Type"] == "Number" else []
            chosen = max(map(str, parameter.get("AllowedValues", numbers)), key=len, default=None)
            return LONGEST.get(name) or chosen or "x" * parameter.get("MaxLength", 120)
        return LONGEST.get(name) or f"{LONGEST['AWS::StackName']}-{name}-ABCDEFGHIJKL"

    def arn(self, name):
        if RESOURCES[name]["Type"] == "AWS::S3::Bucket":
            return f"arn:{LONGEST['AWS::Partition']}:s3:::{self.name(name)}"
        place = f"arn:{LONGEST['AWS::Partition']}:dynamodb:{LONGEST['AWS::Region']}:{LONGEST['AWS::AccountId']}"
        return f"{place}:log-group:/{self.name(name)}/functions:*"

    def size(self, document):
        return len(re.sub(r"\s", "", self.written(document)))

    def test_what_is_inside_of_a_role_fits_with_everything_on_and_the_longest_names(self):
        for role, properties in of_type("AWS::IAM::Role").items():
            sizes = {one["PolicyName"]: self.size(one["PolicyDocument"]) for one in properties.get("Policies", [])}
            sizes |= {name: self.size(one["PolicyDocument"]) for name, one in POLICIES.items() if role in named(one["Roles"])}
            self.assertLessEqual(sum(sizes.values()), 10_240, f"{role}: {sizes}")

    def test_what_grows_with_what_is_named_has_a_policy_of_its_own_and_fits(self):
        grown = {name for name, one in RESOURCES.items() if "IAM" in one["Type"] and "Fn::Split" in json.dumps(one["Properties"])}
        self.assertLessEqual(grown, set(MANAGED))
        for name, policy in MANAGED.items():
            self.assertLessEqual(self.size(policy["PolicyDocument"]), 6_144, name)
        for role in of_type("AWS::IAM::Role"):
            self.assertLessEqual(sum(role in named(one["Roles"]) for one in MANAGED.values()), 10, role)

    def test_who_signs_for_files_is_told_whether_there_are_some(self):
        """S3 tells it to who may list the bucket; a condition on what is listed is about no read."""
        statements = {one["Sid"]: one for one in POLICIES["CallsOfTools"]["PolicyDocument"]["Statement"]}
        self.assertEqual(statements["SeeWhatIsThere"]["Action"], "s3:ListBucket")
        self.assertNotIn("Condition", statements["SeeWhatIsThere"])


if __name__ == "__main__":
    unittest.main()
