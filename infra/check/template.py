"""Tests of what template.yaml says that no linter knows: what takes a new version back, and which parameters exclude others."""

import pathlib
import unittest

from cfnlint.decode import decode

TEMPLATE, _ = decode(str(pathlib.Path(__file__).resolve().parents[1] / "template.yaml"))
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


class Parameters(unittest.TestCase):
    def test_no_capacity_is_given_to_a_table_that_the_stack_did_not_make(self):
        table = RESOURCES["StateTable"]["Properties"]
        used = {name for name in TEMPLATE["Parameters"] if f"'Ref': '{name}'" in str(dict(table)) and name != "KmsKeyArn"}
        used |= {name for name in TEMPLATE["Parameters"] if name.endswith("CapacityMost")}
        self.assertLessEqual({"ReadCapacity", "WriteCapacity", "WarmReads", "WarmWrites"}, used)
        asserted = str(TEMPLATE["Rules"]["ATableThatIsThereHasItsCapacity"]["Assertions"])
        for name in used:
            self.assertIn(f"'Ref': '{name}'", asserted)


if __name__ == "__main__":
    unittest.main()
