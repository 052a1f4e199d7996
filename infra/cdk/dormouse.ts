// Dormouse as a construct: it includes template.yaml in a stack of yours, hands it the functions and the parameters, and has
// its resources and outputs at hand. README.md has an example.

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import * as path from "node:path";

import { CfnElement, Lazy, Stack } from "aws-cdk-lib";
import * as assets from "aws-cdk-lib/aws-s3-assets";
import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { CfnAlias, CfnFunction } from "aws-cdk-lib/aws-lambda";
import { Construct } from "constructs";

import { DormouseParameters, OUTPUTS, PARAMETERS } from "./parameters";

export { DormouseParameters } from "./parameters";

/** What a Dormouse is made of. */
export interface DormouseProps extends DormouseParameters {
  /**
   * The folder with inbound.zip, signal.zip, stream.zip and wakeup.zip, as functions/build.sh makes them; with socket.zip
   * where sockets are enabled, and with tools.zip where tools are.
   */
  readonly zips: string;

  /** The template; that of this repository unless it is another one. */
  readonly template?: string;
}

/** What the CDK asks its elements for when it synthesises. */
interface Synthesised {
  _toCloudFormation(): object;
}

const SOCKET = { socket: ["SocketFunction"] };
const TOOLS = { tools: ["ToolsFunction"] };
const FUNCTIONS = {
  inbound: ["InboundFunction"],
  signal: ["SignalFunction"],
  stream: ["StreamFunction"],
  wakeup: ["WakeupFunction", "SweepFunction"],
};

/** One Dormouse. Everything in it is named after its stack, so that a stack has one. */
export class Dormouse extends Construct {
  /** The template as it is included: its resources by their logical names. */
  public readonly template: CfnInclude;

  private releasing = false;

  constructor(scope: Construct, id: string, props: DormouseProps) {
    super(scope, id);
    const functions = {
      ...FUNCTIONS,
      ...(props.sockets === "enabled" ? SOCKET : {}),
      ...(props.tools === "enabled" ? TOOLS : {}),
    };
    const zips = Object.keys(functions).map(
      (name) => new assets.Asset(this, name, { path: path.join(props.zips, `${name}.zip`) }),
    );
    const build = digest(zips.map((zip) => zip.assetHash).join());
    // Another text publishes new versions of the functions. It is known when all is known that is said of them, overrides too.
    const release = Lazy.string({ produce: () => this.release() });
    this.template = new CfnInclude(this, "Template", {
      templateFile: props.template ?? ours(),
      // The logical names are those of the template: what others know of it stays true.
      preserveLogicalIds: true,
      parameters: { ...given(props), ArtifactBucket: zips[0].s3BucketName, ArtifactPrefix: build, Release: release },
    });
    Object.values(functions).forEach((logicalNames, at) => {
      for (const logicalName of logicalNames) {
        const found = this.template.getResource(logicalName) as CfnFunction;
        found.code = { s3Bucket: zips[at].s3BucketName, s3Key: zips[at].s3ObjectKey };
      }
    });
    this.elements().forEach((one) => one instanceof CfnAlias && movesInSteps(one));
  }

  /** A digest of the template as it is synthesised; the digest itself is left out of that. */
  private release(): string {
    if (this.releasing) {
      return "";
    }
    this.releasing = true;
    try {
      const synthesised = this.elements().map((one) => Stack.of(this).resolve((one as unknown as Synthesised)._toCloudFormation()));
      return digest(JSON.stringify(synthesised));
    } finally {
      this.releasing = false;
    }
  }

  /** What the template has, as CDK's objects. */
  private elements(): CfnElement[] {
    return this.template.node.findAll().filter(CfnElement.isCfnElement);
  }

  /** Where turns begin. */
  public get url(): string {
    return this.output("url");
  }

  /** The bus where events are published, and where those that graphs wait for have to arrive. */
  public get busName(): string {
    return this.output("busName");
  }

  /** The table in which everything sleeps. */
  public get tableName(): string {
    return this.output("tableName");
  }

  /** An output of the template. */
  public output(name: keyof typeof OUTPUTS): string {
    return Stack.of(this).resolve(this.template.getOutput(OUTPUTS[name]).value) as string;
  }
}

/**
 * Gives an alias the policy that the template gives it: CodeDeploy moves it where `rollout` says so. CDK's own parser takes the
 * condition in that policy for a policy, and writes something that CloudFormation refuses.
 */
function movesInSteps(alias: CfnAlias): void {
  const group = alias.node.id.replace(/Live$/, "Rollout");
  alias.cfnOptions.updatePolicy = undefined;
  alias.addOverride("UpdatePolicy.CodeDeployLambdaAliasUpdate", {
    "Fn::If": [
      "IsGradual",
      { ApplicationName: { Ref: "RolloutApplication" }, DeploymentGroupName: { Ref: group } },
      { Ref: "AWS::NoValue" },
    ],
  });
}

/** The template of the repository, seen from this file or from what it is compiled to. */
function ours(): string {
  const found = ["..", path.join("..", "..")].map((up) => path.join(__dirname, up, "template.yaml")).find(existsSync);
  if (found === undefined) {
    throw new Error(`there is no template.yaml above ${__dirname}: name it in the property "template"`);
  }
  return found;
}

/** The parameters that are given, by the template's names. A turn ends before its function does. */
function given(props: DormouseProps): { [name: string]: string } {
  const chosen: { [name: string]: string } = {};
  const turn = props.turnSeconds;
  if (turn !== undefined) {
    chosen.SignalTimeout = String(Math.max(180, turn + 30));
    chosen.WakeupTimeout = String(Math.max(300, turn + 30));
  }
  if ((turn ?? 150) >= Math.min(props.signalTimeout ?? 900, props.wakeupTimeout ?? 900)) {
    throw new Error("signalTimeout and wakeupTimeout have to be more than turnSeconds");
  }
  for (const [name, logicalName] of Object.entries(PARAMETERS)) {
    const value = props[name as keyof DormouseParameters];
    if (value !== undefined) {
      chosen[logicalName] = String(value);
    }
  }
  return chosen;
}

/** Another text for another content. */
function digest(content: string): string {
  return createHash("sha256").update(content).digest("hex").slice(0, 16);
}
