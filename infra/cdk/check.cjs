// Checks the construct without a deployment: every function that is switched on has its code from the folder of zips, and none
// that is not needs a zip. FOLDER holds the compiled construct, below the template.
//
//   NODE_PATH=node_modules node check.cjs FOLDER

const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const { App, Stack } = require("aws-cdk-lib");
const { CfnFunction } = require("aws-cdk-lib/aws-lambda");

const { Dormouse } = require(path.resolve(process.argv[2], "dormouse.js"));

const ALWAYS = ["inbound", "signal", "stream", "wakeup"];
const CHOSEN = { sockets: "socket", tools: "tools" };

/** The zips that functions of a Dormouse with these `parameters` look for where the template says, and not where ours are. */
function missing(zips, parameters) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "dormouse-zips-"));
  try {
    zips.forEach((name) => fs.writeFileSync(path.join(folder, `${name}.zip`), name));
    const stack = new Stack(new App({ outdir: path.join(folder, "out") }), "check");
    new Dormouse(stack, "Dormouse", { zips: folder, stage: "check", ...parameters });
    const functions = stack.node.findAll().filter((one) => one instanceof CfnFunction);
    const keys = functions.map((one) => JSON.stringify(stack.resolve(one.code)));
    return keys.flatMap((key) => /\/([a-z]+)\.zip/.exec(key)?.slice(1) ?? []).sort();
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
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
for (const fault of faults) console.error(`cdk: ${fault}`);
process.exitCode = faults.length > 0 ? 1 : 0;
