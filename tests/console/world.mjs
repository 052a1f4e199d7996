// Everything around the browser: local mode, a scripted model, a tool, a connection that can be cut.

import { spawn } from "node:child_process";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:http";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";

export const PROTOCOL = { "harn-agents-protocol-version": "agents-protocol-2026-04-25" };
const started = [];

/** Ends what was started here, and removes what it wrote. */
export async function endAll() {
  for (const one of started.splice(0).reverse()) await one.end();
}

export const rest = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Asks `probe` until it gives something, and gives that. */
export async function until(what, probe, most = 120000) {
  const end = Date.now() + most;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it never came to this: ${what}`);
    await rest(50);
  }
}

/** Local mode with these arguments, and with these variables beside those of this process. */
export async function dormouse(...more) { return dormouseWith({}, ...more); }

export async function dormouseWith(variables, ...more) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "console-"));
  const data = path.join(folder, "data");
  const child = spawn(process.env.DORMOUSE_BIN, ["dev", "--port", "0", "--no-tour", "--data", data, ...more], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...variables } });
  // Also when a check ends this process before its time.
  process.on("exit", () => child.kill());
  let said = ""; let log = "";
  child.stdout.on("data", (text) => { said += text; });
  child.stderr.on("data", (text) => { log += text; });
  const gone = new Promise((done) => child.on("exit", done));
  started.push({ end: async () => { child.kill(); await gone; fs.rmSync(folder, { recursive: true, force: true }); } });
  const line = (name) => said.match(new RegExp(`^${name}(\\S+)`, "m"))?.[1];
  await until("local mode is ready", () => { if (child.exitCode !== null) throw new Error(log); return line("api key: "); });
  const server = { base: line("dormouse is ready at "), key: line("api key: "), link: line("console: "), first: said.split("\n")[0], data, log: () => log };
  server.ask = async (method, to, body, key = server.key) => {
    const response = await fetch(server.base + to, { method, headers: { ...PROTOCOL, authorization: `Bearer ${key}`, "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  };
  server.get = async (to, key) => (await server.ask("GET", to, undefined, key)).body;
  server.post = async (to, body, key) => {
    const said = await server.ask("POST", to, body, key);
    if (said.status >= 300) throw new Error(`${to}: ${said.status} ${JSON.stringify(said.body)}`);
    return said.body;
  };
  /** Runs a command of the program beside it. */
  server.command = (...words) => new Promise((done, fail) => {
    const run = spawn(process.env.DORMOUSE_BIN, [...words, "--data", data], { stdio: ["ignore", "pipe", "pipe"] });
    let out = ""; let wrong = "";
    run.stdout.on("data", (text) => { out += text; });
    run.stderr.on("data", (text) => { wrong += text; });
    run.on("exit", (code) => (code === 0 ? done(out) : fail(new Error(`${words.join(" ")}: ${wrong}`))));
  });
  return server;
}

/** A server on loopback. `answer(body, request)` gives what it answers as JSON, or as a stream of `pieces`. */
async function listening(answer) {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => { body += piece; });
    request.on("end", async () => {
      const given = await answer(body ? JSON.parse(body) : null, request);
      if (given.pieces) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for await (const piece of given.pieces) response.write(`data: ${JSON.stringify(piece)}\n\n`);
        response.end("data: [DONE]\n\n");
        return;
      }
      response.writeHead(given.status ?? 200, { "content-type": "application/json" });
      response.end(JSON.stringify(given.body));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  started.push({ end: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) });
  return server.address().port;
}

/** An issuer of tokens (OpenID Connect) that signs in whoever comes, for pages of every origin; `said` is what it was asked. One that `rotates` takes each refresh token once. */
export async function issuer() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const said = { codes: new Map(), exchanged: [], refuses: false, isOver: false, isAway: false, scope: null, lasts: 3600, rotates: false, refresh: "again", refused: [], hangs: false, hung: 0 };
  const base64 = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
  let base = "";
  const token = (scope) => {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: base, aud: "dormouse", sub: "grace", org: "default", scope, iat: now, exp: now + said.lasts };
    const text = `${base64({ alg: "EdDSA", kid: "one", typ: "JWT" })}.${base64(claims)}`;
    return `${text}.${sign(null, Buffer.from(text), privateKey).toString("base64url")}`;
  };
  const server = createServer((request, response) => {
    const url = new URL(request.url, base);
    const json = (status, value) => { response.writeHead(status, { "content-type": "application/json", "access-control-allow-origin": "*" }); response.end(JSON.stringify(value)); };
    if (url.pathname === "/.well-known/openid-configuration") json(200, { issuer: base, authorization_endpoint: `${base}/authorize`, token_endpoint: `${base}/token`, jwks_uri: `${base}/keys` });
    else if (url.pathname === "/keys") json(200, { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "one", alg: "EdDSA", use: "sig" }] });
    else if (url.pathname === "/authorize") {
      const asked = Object.fromEntries(url.searchParams);
      const back = new URL(asked.redirect_uri);
      if (said.refuses) { back.searchParams.set("error", "access_denied"); back.searchParams.set("error_description", "<b>not</b> you"); } else {
        const code = `code-${said.codes.size + 1}`;
        said.codes.set(code, asked);
        back.searchParams.set("code", code);
      }
      back.searchParams.set("state", asked.state);
      back.searchParams.set("iss", base);
      response.writeHead(302, { location: back.href });
      response.end();
    } else if (url.pathname === "/token") {
      let body = "";
      request.on("data", (piece) => { body += piece; });
      request.on("end", () => {
        if (said.isAway) { json(503, {}); return; }
        if (said.hangs) { said.hung += 1; return; }
        const given = Object.fromEntries(new URLSearchParams(body));
        const asked = said.codes.get(given.code);
        const renews = given.grant_type === "refresh_token" && given.refresh_token === said.refresh && !said.isOver;
        const proved = asked && createHash("sha256").update(given.code_verifier ?? "").digest("base64url") === asked.code_challenge && given.redirect_uri === asked.redirect_uri && given.client_id === "console" && asked.code_challenge_method === "S256";
        said.codes.delete(given.code);
        if (!renews && !proved) { said.refused.push(given); json(400, { error: "invalid_grant" }); return; }
        said.exchanged.push(given);
        if (said.rotates) said.refresh = `again-${said.exchanged.length}`;
        json(200, { access_token: token(said.scope ?? asked?.scope ?? "sessions:read tasks:read events:read"), token_type: "Bearer", expires_in: said.lasts, refresh_token: said.refresh });
      });
    } else json(404, {});
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  base = `http://127.0.0.1:${server.address().port}`;
  started.push({ end: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) });
  return Object.assign(said, { base, described: JSON.stringify([{ name: "corp", issuer: base, audiences: ["dormouse"], tenant_claim: "org", console: { client_id: "console" } }]) });
}

/**
 * An assistant that wants to send a letter, and may only when somebody approves. `extend(write)` writes more into its folder,
 * `reply(body, choice)` is asked first what the model answers, `sent` is what the tool answers.
 */
export async function assistant({ extend = () => {}, reply = () => null, sent = {} } = {}) {
  const letters = []; const heard = [];
  const tool = await listening((body) => {
    letters.push(body);
    // Nobody knows whether such a letter went out the first time.
    const isLost = body?.text?.includes("gets lost") && letters.filter((one) => one?.text === body.text).length === 1;
    return isLost ? { status: 500, body: {} } : { body: { sent: true, to: body?.to, ...sent } };
  });
  const model = await listening((body) => {
    heard.push(body);
    const last = body.messages.at(-1);
    const asked = String(last.content ?? "");
    const usage = { prompt_tokens: 1200, completion_tokens: 80, total_tokens: 1280 };
    const choice = (message, finish_reason) => ({ body: { id: "c", object: "chat.completion", created: 1, model: "scripted", choices: [{ index: 0, message, finish_reason }], usage } });
    const other = reply(body, choice);
    if (other) return other;
    if (last.role === "tool") return choice({ role: "assistant", content: `The tool said: ${asked.slice(0, 300)}` }, "stop");
    if (!asked.includes("letter")) return choice({ role: "assistant", content: `You said: ${asked.slice(0, 500)}` }, "stop");
    // A number that JavaScript cannot write.
    const account = asked.includes("an account") ? { account: "LONG" } : {};
    const given = JSON.stringify({ to: "grace@example.com", text: asked, ...account }).replace('"LONG"', "9007199254740993");
    const call = { id: `call_${heard.length}`, type: "function", function: { name: "send_letter", arguments: given } };
    return choice({ role: "assistant", content: null, tool_calls: [call] }, "tool_calls");
  });
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "console-agent-"));
  started.push({ end: async () => fs.rmSync(folder, { recursive: true, force: true }) });
  const write = (name, text) => { const file = path.join(folder, name); fs.mkdirSync(path.dirname(file), { recursive: true }); fs.writeFileSync(file, text); };
  write("AGENTS.md", "Be brief.\n");
  write(".openharness/settings.yaml", "default_agent: clerk\nmodels:\n  default: workspace/main\npolicy:\n  approval: {manual: true, notify: {desk: PT1S, chat: PT2S}}\n");
  write(".openharness/agents/clerk.md", "---\ndescription: Writes letters, and asks before it sends them.\nmodel: default\n---\nYou write letters.\n");
  write(".openharness/models/models.yaml", `main:\n  provider: openai-compatible\n  name: scripted\n  url: http://127.0.0.1:${model}/v1\n  key: \${env.SCRIPTED_KEY}\n  metadata:\n    prices: {prompt: 2.0, completion: 8.0}\nodd:\n  provider: martian\n  name: x\n`);
  write(".openharness/tools/settings.yaml", `send_letter:\n  http:\n    method: POST\n    url: http://127.0.0.1:${tool}/letters\n    description: Sends a letter.\n    input_schema: {type: object, properties: {to: {type: string}, text: {type: string}}, required: [to, text]}\n`);
  extend(write, `http://127.0.0.1:${model}/v1`, `http://127.0.0.1:${tool}/letters`);
  process.env.SCRIPTED_KEY = "scripted";
  const notified = []; const chatted = [];
  const desk = await listening((body, request) => { notified.push({ body, headers: request.headers }); return { body: {} }; });
  // It is away at first: what it did not take comes again.
  const chat = await listening((body) => { chatted.push(body); return { status: chatted.length === 1 ? 503 : 200, body: {} }; });
  const channels = { desk: { webhook: `http://127.0.0.1:${desk}/desk`, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }, chat: { slack: `http://127.0.0.1:${chat}/services/hush` } };
  const server = await dormouseWith({ DORMOUSE_NOTIFICATIONS: JSON.stringify(channels) }, "--workspace", folder);
  return { ...server, letters, heard, folder, notified, chatted };
}

/** A way to `base` that can be cut and joined again. */
export async function cable(base) {
  const to = new URL(base);
  let joined = true;
  const open = new Set();
  const server = net.createServer((near) => {
    if (!joined) { near.destroy(); return; }
    const far = net.connect(Number(to.port), to.hostname);
    open.add(near); open.add(far);
    for (const [one, other] of [[near, far], [far, near]]) {
      one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => { open.delete(one); other.destroy(); });
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const cut = () => { joined = false; for (const one of open) one.destroy(); };
  started.push({ end: async () => { cut(); server.close(); } });
  return { base: `http://127.0.0.1:${server.address().port}`, cut, join: () => { joined = true; } };
}

const cents = 12000;
/** An expense that waits for approval; what it answered. */
export const expense = (server, purpose = "a keyboard", more = {}) => server.post("/graphs/expense-approval/turns", { state: { employee: "Ada", amount_cents: cents, purpose, ...more } });

/** A session with this persona: its id. */
export async function session(server, persona) {
  const workspace = await server.post("/v1/workspaces", { name: "Tests", root: "/tests" });
  return (await server.post("/v1/sessions", { workspace_id: workspace.id, persona_id: persona })).id;
}

/** A task that sleeps: its id. */
export async function task(server, of, input, most) {
  const made = await server.post(`/v1/sessions/${of}/tasks`, { input });
  await until("the task sleeps or ends", async () => !["SUBMITTED", "WORKING"].includes((await server.get(`/v1/tasks/${made.id}`)).status), most);
  return made.id;
}

export const said = (text) => ({ role: "user", parts: [{ type: "text", text }] });
