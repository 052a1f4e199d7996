// Checks the construct without a deployment: every function that is switched on has its code from the folder of zips, and none
// that is not needs a zip; new versions are published of whatever changes, and only then. FOLDER holds the compiled construct,
// below the template. What is synthesised of it, with steps and without, is written to INTO, for a linter.
//
//   NODE_PATH=node_modules node check.cjs FOLDER INTO

const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const { App, Stack, Tags } = require("aws-cdk-lib");
const { CfnFunction } = require("aws-cdk-lib/aws-lambda");

const { Dormouse } = require(path.resolve(process.argv[2], "dormouse.js"));

const ALWAYS = ["inbound", "signal", "stream", "wakeup"];
const CHOSEN = { sockets: "socket", tools: "tools" };

/** What `look` says of the stack, its Dormouse and the template that they are synthesised to. */
function synthesised(zips, parameters, look) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "dormouse-zips-"));
  try {
    zips.forEach((name) => fs.writeFileSync(path.join(folder, `${name}.zip`), name));
    const app = new App({ outdir: path.join(folder, "out") });
    const stack = new Stack(app, "check");
    const { change, ...given } = parameters;
    const dormouse = new Dormouse(stack, "Dormouse", { zips: folder, stage: "check", ...given });
    change?.(dormouse, stack);
    return look(stack, () => app.synth().getStackByName("check").template);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

/** The zips that functions of a Dormouse with these `parameters` look for where the template says, and not where ours are. */
function missing(zips, parameters) {
  return synthesised(zips, parameters, (stack) => {
    const functions = stack.node.findAll().filter((one) => one instanceof CfnFunction);
    const keys = functions.map((one) => JSON.stringify(stack.resolve(one.code)));
    return keys.flatMap((key) => /\/([a-z]+)\.zip/.exec(key)?.slice(1) ?? []).sort();
  });
}

/** What the versions of the functions are described with: another text publishes another version. */
function described(parameters) {
  return synthesised(ALWAYS, parameters, (_, template) => {
    const versions = Object.values(template().Resources).filter((one) => one.Type === "AWS::Lambda::Version");
    return JSON.stringify(versions.map((one) => one.Properties.Description));
  });
}

const enabled = Object.fromEntries(Object.keys(CHOSEN).map((name) => [name, "enabled"]));
const faults = [];
const all = missing([...ALWAYS, ...Object.values(CHOSEN)], enabled);
if (all.length > 0) faults.push(`no zip is uploaded for ${all.join(", ")}`);
const few = missing(ALWAYS, {});
if (few.join() !== Object.values(CHOSEN).sort().join()) faults.push(`where none is chosen, none is uploaded for ${few.join(", ")}`);
for (const [parameter, zip] of Object.entries(CHOSEN)) {
  try {
    missing(ALWAYS, { [parameter]: "enabled" });
    faults.push(`${parameter} is enabled without ${zip}.zip, and nobody objects`);
  } catch (error) {
    if (!String(error).includes(`${zip}.zip`)) throw error;
  }
}
const before = described({});
const changed = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "dormouse-template-")), "template.yaml");
const text = fs.readFileSync(path.resolve(process.argv[2], "..", "template.yaml"), "utf8");
fs.writeFileSync(changed, text.replace("MemorySize: 256", "MemorySize: 512"));
const override = (dormouse) => dormouse.template.getResource("SignalFunction").addOverride("Properties.MemorySize", 512);
const setting = (dormouse) => (dormouse.template.getResource("SignalFunction").timeout = 600);
const late = (_, stack) => Tags.of(stack).add("team", "agents");
if (described({}) !== before) faults.push("the same construct is another release the second time");
for (const [what, parameters] of Object.entries({
  "a parameter": { turnSeconds: 100 },
  "the template": { template: changed },
  "an override": { change: override },
  "a property that is set afterwards": { change: setting },
  "a tag": { change: late },
})) {
  if (described(parameters) === before) faults.push(`${what} is changed, and no new version is published`);
}
fs.rmSync(path.dirname(changed), { recursive: true });
const timeouts = (parameters) =>
  synthesised(ALWAYS, parameters, (_, template) => {
    const { SignalFunction, WakeupFunction } = template().Resources;
    return [SignalFunction, WakeupFunction].map((one) => one.Properties.Timeout);
  });
const long = timeouts({ turnSeconds: 400, wakeupTimeout: 500 });
if (long.join() !== "430,500") faults.push(`with turns of 400 seconds the functions have ${long.join(" and ")}`);
try {
  timeouts({ turnSeconds: 400, signalTimeout: 400 });
  faults.push("a turn may take as long as its function, and nobody objects");
} catch (error) {
  if (!String(error).includes("more than turnSeconds")) throw error;
}
const steps = { rollout: "LambdaCanary10Percent5Minutes", secretStore: "stack", alarmEmail: "on-call@example.com" };
for (const [name, zips, parameters] of [
  ["plain", ALWAYS, {}],
  ["steps", [...ALWAYS, ...Object.values(CHOSEN)], { ...enabled, ...steps, workspaces: "support" }],
]) {
  const template = synthesised(zips, parameters, (_, synthesise) => synthesise());
  fs.writeFileSync(path.join(process.argv[3], `${name}.template.json`), JSON.stringify(template, null, 1));
}
for (const fault of faults) console.error(`cdk: ${fault}`);
process.exitCode = faults.length > 0 ? 1 : 0;
