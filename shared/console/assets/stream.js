// Events over one cursor: it reconnects, resumes behind the last event, and says how it is.

import { read } from "./json.js";

const VERSION = "agents-protocol-2026-04-25";
/** Whoever was away for longer is told that something may have happened, and not all that did. */
const LONG = 60000;

/** Waits until the tab is seen, or `stream` has ended: how long that took, in milliseconds. */
async function seen(stream) {
  const begin = Date.now();
  while (document.hidden && !stream.ended) {
    await new Promise((done) => { stream.wake = done; document.addEventListener("visibilitychange", done, { once: true }); });
  }
  return Date.now() - begin;
}

export class Live {
  /** Without a session, all events of the tenant; with one, its own: they come sooner. */
  constructor(client, session = null, cursor = null) {
    this.client = client;
    this.session = session;
    this.cursor = cursor;
    this.state = "connecting";
    this.listeners = new Set();
    this.watchers = new Set();
    this.fails = 0;
    this.ended = false;
  }

  /** Calls `hear` with each event; gives back how to stop. */
  on(hear) { this.listeners.add(hear); return () => this.listeners.delete(hear); }
  /** Calls `see` with each change of the connection. */
  watch(see) { this.watchers.add(see); see(this.state); return () => this.watchers.delete(see); }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    for (const see of this.watchers) see(state);
  }

  emit(event) {
    for (const hear of [...this.listeners]) {
      try { hear(event); } catch (error) { console.error(error); }
    }
  }

  end() { this.ended = true; this.abort?.abort(); this.wake?.(); }

  /** The newest event of the sessions that changed last: what is older is no news. */
  async begin() {
    if (this.session) return;
    const sessions = await this.client.get("/v1/sessions?limit=50").catch((error) => {
      // While the server is away nobody knows where the events end: that is asked again.
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return { data: [] };
      throw error;
    });
    const newest = sessions.data.filter((one) => one.last_event_id).sort((a, b) => b.updated_at.localeCompare(a.updated_at))[0];
    this.cursor = newest?.last_event_id ?? null;
  }

  async run() {
    // Browsers have six connections to one server (HTTP/1.1), and all tabs share them: a tab that is not seen holds none.
    const hide = () => { if (document.hidden) this.abort?.abort(); };
    document.addEventListener("visibilitychange", hide);
    try { await this.stay(); } finally { document.removeEventListener("visibilitychange", hide); }
  }

  async stay() {
    while (!this.ended) {
      const { key } = this.client;
      try {
        if (document.hidden && await seen(this) > LONG && !this.ended) this.again();
        // Without a cursor it would be told all that ever happened.
        this.begun ??= this.begin();
        await this.begun.catch((error) => { this.begun = null; throw error; });
        if (!document.hidden) await this.once();
      } catch (error) {
        if (this.ended) return;
        // Where nobody can tell whether there is another key, it is tried again.
        if (error.status === 403 || (error.status === 401 && !await this.client.another(key).catch(() => true))) { this.become(error.status === 403 ? "refused" : "signed-out"); return; }
        if (!document.hidden || !this.begun) this.fails += 1;
      }
      if (this.ended) return;
      if (document.hidden) continue;
      this.become(this.fails > 1 ? "offline" : "connecting");
      const pause = Math.min(15000, 300 * 2 ** Math.min(this.fails, 6)) * (0.7 + Math.random() * 0.6);
      await new Promise((done) => { this.timer = setTimeout(done, pause); this.now = done; });
    }
  }

  /** Begins anew, and lets the views look again. */
  again() {
    if (!this.session) this.cursor = null;
    this.begun = this.begin().then(() => this.emit({ event: "x-resumed" }));
    this.begun.catch(() => { /* it is begun anew where it is waited for */ });
  }

  /** Tries again at once, if it is waiting to. */
  hurry() { clearTimeout(this.timer); this.now?.(); }

  async once() {
    this.abort = new AbortController();
    const headers = { authorization: `Bearer ${this.client.key}`, "harn-agents-protocol-version": VERSION, accept: "text/event-stream" };
    if (this.cursor) headers["last-event-id"] = this.cursor;
    const response = await fetch(`${this.client.streamBase}/v1/${this.session ? `sessions/${encodeURIComponent(this.session)}/` : ""}events/stream${this.session ? "?deltas=true" : ""}`, { headers, signal: this.abort.signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw Object.assign(new Error("no stream"), { status: response.status });
    this.become("live");
    if (this.fails > 0) this.emit({ event: "x-resumed" });
    this.fails = 0;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      // A heartbeat comes every half minute: a connection that says nothing for longer is dead.
      const dead = setTimeout(() => this.abort.abort(), 75000);
      const { value, done } = await reader.read().finally(() => clearTimeout(dead));
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.take(block);
    }
  }

  take(block) {
    let id = null; let name = ""; let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id:")) id = line.slice(3).trim();
      else if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5).trim();
    }
    if (!data) return;
    let event;
    try { event = read(data); } catch { return; }
    if (name === "error") {
      // The cursor is of no use any more.
      if (!id) { this.cursor = null; this.again(); }
      return;
    }
    if (id) this.cursor = id;
    // Text while a model writes it: it has no place among the events.
    this.emit(name === "message.delta" ? { ...event, event: name } : event);
  }
}
