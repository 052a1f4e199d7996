#!/usr/bin/env python3
"""Writes what the Terraform module and the CDK construct know of template.yaml: its parameters and its outputs. The template
is the one source; nothing of it is written twice by hand. `publish.py --check` only tells whether they are up to date."""

import json
import pathlib
import re
import sys
import textwrap

import yaml

HERE = pathlib.Path(__file__).resolve().parent
# What the module and the construct find out by themselves.
FOUND_OUT = {"ArtifactBucket", "ArtifactPrefix", "Release"}
MADE_OF = "Made of template.yaml by publish.py; change that."


class Template(yaml.SafeLoader):
    """YAML with the short forms of CloudFormation, which say nothing here."""


Template.add_multi_constructor("!", lambda loader, tag, node: None)


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel(name):
    return name[0].lower() + name[1:]


def sentence(text):
    return " ".join(text.split())


def hcl(text):
    """`text` as HCL quotes it: as JSON does, but that `${` and `%{` are escaped."""
    return json.dumps(text).replace("${", "$${").replace("%{", "%%{")


def condition(name, parameter):
    """What Terraform refuses, as the template does: an expression and its message, or nothing."""
    variable = f"var.{name}"
    if "AllowedValues" in parameter:
        values = parameter["AllowedValues"]
        said = f"One of: {', '.join(map(str, values))}."
        return f"{variable} == null ? true : contains({json.dumps(values)}, {variable})", said
    if "AllowedPattern" in parameter:
        pattern = f"^{parameter['AllowedPattern']}$" if "|" not in parameter["AllowedPattern"] else f"^({parameter['AllowedPattern']})$"
        said = f"It has to match {parameter['AllowedPattern']}"
        if "ConstraintDescription" in parameter:
            said = f"It has to be {parameter['ConstraintDescription']}"
        return f"{variable} == null ? true : can(regex({hcl(pattern)}, {variable}))", said
    least, most = parameter.get("MinValue"), parameter.get("MaxValue")
    limits = [f"{variable} >= {least}"] * (least is not None) + [f"{variable} <= {most}"] * (most is not None)
    if limits:
        said = " ".join([f"At least {least}."] * (least is not None) + [f"At most {most}."] * (most is not None))
        return f"{variable} == null ? true : {' && '.join(limits)}", said
    return None


def variable(name, parameter):
    kind = "number" if parameter["Type"] == "Number" else "string"
    known = f" The template's default: {json.dumps(parameter['Default'])}." if parameter.get("Default") not in (None, "") else ""
    lines = [
        f'variable "{name}" {{',
        f"  description = {hcl(sentence(parameter['Description']) + known)}",
        f"  type        = {kind}",
        "  default     = null",
    ]
    refused = condition(name, parameter)
    if refused:
        lines += ["", "  validation {", f"    condition     = {refused[0]}", f"    error_message = {hcl(refused[1])}", "  }"]
    return "\n".join(lines + ["}", ""])


def variables(template):
    written = [variable(snake(name), parameter) for name, parameter in template["Parameters"].items() if name not in FOUND_OUT]
    return f"# {MADE_OF}\n\n" + "\n".join(written)


def parameters(template):
    names = [name for name in template["Parameters"] if name not in FOUND_OUT]
    width = max(len(name) for name in names)
    lines = [f"    {name:{width}} = var.{snake(name)}" for name in names]
    return "\n".join([f"# {MADE_OF}", "", "locals {", "  given = {", *lines, "  }", "}", ""])


def outputs(template):
    written = []
    for name, output in template["Outputs"].items():
        written.append(
            f'output "{snake(name)}" {{\n'
            f"  description = {hcl(sentence(output['Description']))}\n"
            f'  value       = lookup(aws_cloudformation_stack.this.outputs, "{name}", null)\n'
            "}\n"
        )
    return f"# {MADE_OF}\n\n" + "\n".join(written)


def comment(text):
    lines = textwrap.wrap(sentence(text), 110)
    return "\n".join(["  /**", *(f"   * {line}" for line in lines), "   */"])


def field(name, parameter):
    if "AllowedValues" in parameter:
        kind = " | ".join(json.dumps(value) for value in parameter["AllowedValues"])
    else:
        kind = "number" if parameter["Type"] == "Number" else "string"
    default = parameter.get("Default")
    known = "" if default in (None, "") else f" Default: {json.dumps(default)}."
    return f"{comment(parameter['Description'] + known)}\n  readonly {camel(name)}?: {kind};"


def typescript(template):
    given = {name: parameter for name, parameter in template["Parameters"].items() if name not in FOUND_OUT}
    fields = "\n\n".join(field(name, parameter) for name, parameter in given.items())
    names = "\n".join(f"  {camel(name)}: {json.dumps(name)}," for name in given)
    told = "\n".join(f"  {camel(name)}: {json.dumps(name)}," for name in template["Outputs"])
    return (
        f"// {MADE_OF}\n\n/** Parameters of the template; what is not given has its default. */\n"
        f"export interface DormouseParameters {{\n{fields}\n}}\n\n"
        "/** The template's names for them. */\n"
        f"export const PARAMETERS: {{ readonly [name in keyof Required<DormouseParameters>]: string }} = {{\n{names}\n}};\n\n"
        "/** The template's names for its outputs. */\n"
        f"export const OUTPUTS = {{\n{told}\n}} as const;\n"
    )


def main():
    template = yaml.load((HERE / "template.yaml").read_text(), Loader=Template)
    written = {
        "terraform/variables.tf": variables(template),
        "terraform/parameters.tf": parameters(template),
        "terraform/outputs.tf": outputs(template),
        "cdk/parameters.ts": typescript(template),
    }
    old = []
    for place, text in written.items():
        path = HERE / place
        if path.exists() and path.read_text() == text:
            continue
        old.append(place)
        if "--check" not in sys.argv:
            path.write_text(text)
    if old and "--check" in sys.argv:
        sys.exit(f"{', '.join(old)}: not what template.yaml makes of it; infra/publish.sh writes it")


main()
