// Checks the module without Terraform: that HashiCorp's own parser takes every file, that its formatter would leave it as it
// is, and that what is referred to is declared, and what is declared is referred to. What only the provider knows, whether
// it takes the arguments, is checked by nobody here.
//
//   NODE_PATH=node_modules node check.cjs FOLDER

const fs = require("node:fs");
const path = require("node:path");

const { format } = require("@cdktn/hcl-tools");
const { parse } = require("@cdktn/hcl2json");

const folder = process.argv[2];
const faults = [];

/** Names that `text` refers to behind `kind` and a dot. */
function referred(text, kind) {
  return new Set([...text.matchAll(new RegExp(`\\b${kind}\\.([a-zA-Z_0-9]+)`, "g"))].map((found) => found[1]));
}

function compare(what, declared, used) {
  for (const name of used) {
    if (!declared.has(name)) faults.push(`${what}.${name} is referred to and not declared`);
  }
  for (const name of declared) {
    if (!used.has(name)) faults.push(`${what}.${name} is declared and never referred to`);
  }
}

async function main() {
  const files = fs.readdirSync(folder).filter((name) => name.endsWith(".tf"));
  const declared = { variable: new Set(), locals: new Set(), resources: new Set(), data: new Set() };
  let all = "";
  for (const name of files) {
    const text = fs.readFileSync(path.join(folder, name), "utf8");
    const blocks = await parse(name, text);
    if ((await format(text)) !== text) faults.push(`${name} is not formatted as terraform fmt does it`);
    // A validation is no use of its variable.
    all += text.replace(/  validation \{[\s\S]*?\n  \}\n/g, "").replace(/^\s*#.*$/gm, "");
    for (const [variable, [block]] of Object.entries(blocks.variable ?? {})) {
      if (!block.description || !block.type) faults.push(`variable ${variable} has no description or no type`);
      declared.variable.add(variable);
    }
    for (const block of blocks.locals ?? []) Object.keys(block).forEach((local) => declared.locals.add(local));
    for (const kind of ["resource", "data"]) {
      for (const [type, named] of Object.entries(blocks[kind] ?? {})) {
        if (!type.startsWith("aws_") && type !== "terraform_data") faults.push(`${kind} ${type} is of no provider that versions.tf asks for`);
        const into = kind === "data" ? declared.data : declared.resources;
        Object.keys(named).forEach((one) => into.add(`${type}.${one}`));
      }
    }
    // A stack that goes back looks for them.
    for (const [zips] of Object.values(blocks.resource?.aws_s3_object ?? {})) {
      if (zips.for_each && !zips.lifecycle?.[0]?.create_before_destroy) faults.push(`${name} removes zips before the stack has moved`);
    }
    for (const [output, [block]] of Object.entries(blocks.output ?? {})) {
      if (!block.description) faults.push(`output ${output} has no description`);
    }
  }
  compare("var", declared.variable, referred(all, "var"));
  compare("local", declared.locals, referred(all, "local"));
  const data = [...all.matchAll(/\bdata\.(aws_[a-z_0-9]+\.[a-z_0-9]+)/g)].map((found) => found[1]);
  compare("data", declared.data, new Set(data));
  const resources = [...all.matchAll(/(?<!data\.)\b((?:aws_[a-z_0-9]+|terraform_data)\.[a-z_0-9]+)/g)].map((found) => found[1]);
  compare("resource", declared.resources, new Set(resources));
  if (files.length < 4 || declared.variable.size < 10) faults.push(`${folder} does not hold the module`);
}

main().then(
  () => {
    for (const fault of faults) console.error(`terraform: ${fault}`);
    process.exitCode = faults.length > 0 ? 1 : 0;
  },
  (error) => {
    console.error(`terraform: ${error.message ?? error}`);
    process.exitCode = 1;
  },
);
