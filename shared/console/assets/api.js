// A client of the protocol: the key, the version, errors in words.

import { read, write } from "./json.js";

const VERSION = "agents-protocol-2026-04-25";
const KEPT = "dormouse-key";
/** Milliseconds for which a server may think before it answers what takes no work. */
const SILENT = 60000;

/** The server refused something, or could not be reached. */
export class Refusal extends Error {
  constructor(status, code, message, requestId) {
    super(message);
    Object.assign(this, { status, code, requestId });
    this.title = {
      0: "The server does not answer", 401: "This key is not accepted", 403: "This key is not allowed to do that",
      404: "There is no such thing, or it is not yours to see", 409: "That cannot be done as it is now",
      410: "That is over", 429: "Too many requests", 503: "The server is busy",
    }[status] ?? "That did not work";
  }
}

/** What to do about a refusal, for people; the words of the server are for programs where the status says it all. */
const ADVICE = {
  401: () => "It was revoked, has expired, or was not copied whole. Sign in with another one.",
  403: (words) => `${words} Ask whoever made the key for one that may, and sign in with that.`,
  500: (words) => `${words} Nothing was lost. If it stays so, whoever operates the server finds this request in the log.`,
};

/** `text` as a sentence. */
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;

const told = (value) => (typeof value === "string" ? value : undefined);

/** Sends a request; `key` may be any bearer token. What `isQuick` is given up where nothing answers for a minute. */
export async function send(method, path, { body, key, headers = {}, signal, isFile, isQuick = method === "GET" } = {}) {
  const sent = { ...headers };
  if (key) sent.authorization = `Bearer ${key}`;
  if (path.includes("/v1")) sent["harn-agents-protocol-version"] = VERSION;
  if (body !== undefined) sent["content-type"] = "application/json";
  let response; let text;
  // What nothing answers was sent over a connection that is dead: another one may do.
  const ended = new AbortController();
  const end = () => ended.abort();
  if (signal?.aborted) end(); else signal?.addEventListener("abort", end);
  const silent = isQuick && setTimeout(end, SILENT);
  try {
    response = await fetch(path, { method, headers: sent, body: body === undefined ? undefined : write(body), signal: ended.signal, cache: "no-store", credentials: "omit", redirect: "error" }).finally(() => clearTimeout(silent));
    if (isFile && response.ok) return await response.blob();
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, "unreachable", "It may be starting again, or the network is away. Nothing was lost.");
  } finally { signal?.removeEventListener("abort", end); }
  let value = null;
  try { value = text ? read(text) : null; } catch { /* told below */ }
  if (response.ok) return value;
  const error = value?.error ?? {};
  const words = sentence(told(error.message) ?? `The server answered ${response.status}.`);
  const refusal = new Refusal(response.status, told(error.code) ?? told(error.category) ?? "", ADVICE[response.status]?.(words) ?? words, response.headers.get("x-request-id"));
  refusal.details = error.details ?? {};
  refusal.decided = error.decided;
  throw refusal;
}

export const keptKey = () => { try { return sessionStorage.getItem(KEPT); } catch { return null; } };
export const keepKey = (key) => { try { key ? sessionStorage.setItem(KEPT, key) : sessionStorage.removeItem(KEPT); } catch { /* it is kept in memory */ } };

/** Names an attempt: what is sent again under the same name is done once. */
export const chance = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** The protocol with a key. */
export class Client {
  constructor(key, onRefused) {
    this.key = key;
    this.onRefused = onRefused;
    this.streamBase = "";
    this.offers = {};
  }

  /** Whether there is another key by now than `key`, which was refused. Fails while nobody can tell. */
  async another(key) { return this.key !== key || Boolean(await this.renew?.()); }

  async ask(method, path, options = {}) {
    for (let isAgain = false; ; isAgain = true) {
      const { key } = this;
      try {
        return await send(method, path, { ...options, key });
      } catch (error) {
        if (error.status !== 401) throw error;
        if (!isAgain && await this.another(key)) continue;
        this.onRefused(error);
        throw error;
      }
    }
  }

  get(path, signal) { return this.ask("GET", path, { signal }); }

  /**
   * A write that may be repeated: it is sent again while the server is away. Who sends the same once more, because nobody knows
   * what came of it, does so under the same `name`.
   */
  async post(path, body, name = chance(), isQuick = false) {
    const headers = { "idempotency-key": name };
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.ask("POST", path, { body, headers, isQuick });
      } catch (error) {
        const passes = [0, 423, 503].includes(error.status);
        if (!passes || attempt >= 2) throw error;
        await new Promise((done) => setTimeout(done, 600 * (attempt + 1)));
      }
    }
  }

  /** The pages of a list behind the place `from`, one after the other, as long as they are wanted; `name` is the parameter for a place. */
  async* pages(path, { most = 1000, signal, name = "cursor", from = null } = {}) {
    let cursor = from;
    const joint = path.includes("?") ? "&" : "?";
    for (let page = 0; page < most; page += 1) {
      const found = await this.get(cursor ? `${path}${joint}${name}=${encodeURIComponent(cursor)}` : path, signal);
      yield found;
      const next = found.page?.next_cursor;
      if (!next || next === cursor) return;
      cursor = next;
    }
  }

  /** The bytes at `path`, to be kept as a file. */
  async file(path, name) {
    const bytes = await this.ask("GET", path, { isFile: true });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(bytes);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  /**
   * The pages of events behind the place `from`, each with the place behind it. Where many events of others lie in between, a
   * page has none and goes on.
   */
  async* events(path, { most, from }) {
    let place = from;
    for await (const page of this.pages(`${path}?limit=200`, { most, from, name: "after_event_id" })) {
      place = page.page.next_cursor ?? page.data.at(-1)?.id ?? place;
      yield { data: page.data, place };
    }
  }

  async all(path, options) {
    const all = [];
    for await (const page of this.pages(path, options)) all.push(...page.data);
    return all;
  }

  /** What the server offers; also tells whether the key is good. */
  async meet() {
    const [discovery, card] = await Promise.all([send("GET", "/v1"), send("GET", "/v1/agent-card")]);
    this.offers = discovery.capabilities ?? {};
    const address = (kind) => told((card.harn_interfaces ?? []).find((one) => String(one.transport).toLowerCase() === kind)?.url) ?? "";
    const elsewhere = address("sse") !== address("rest");
    this.streamBase = elsewhere ? address("sse").replace(/\/v1\/?$/, "") : "";
  }
}

/** True for tasks of the protocol. */
export const isTask = (id) => id.startsWith("task_");
export const at = (...names) => names.map(encodeURIComponent).join("/");
