// What waits for a person: the list, and the one that is looked at.

import { brief, command, empty, h, put, redraw, trouble } from "./dom.js";
import { ticked } from "./answer.js";
import { at } from "./api.js";
import { LongList } from "./list.js";
import { arrive, pauseView } from "./pause.js";
import { count, time } from "./words.js";

const AGES = [["", "any age"], ["3600", "older than 1 hour"], ["86400", "older than 1 day"], ["604800", "older than 1 week"]];
const bySoonest = (a, b) => (a.ends_at ?? "9").localeCompare(b.ends_at ?? "9") || a.since.localeCompare(b.since);
const byOldest = (a, b) => a.since.localeCompare(b.since);

/** All pauses of a kind: loaded page by page, kept up with events. */
export class Pauses {
  constructor(app, query) {
    Object.assign(this, { app, query, byId: new Map(), listeners: new Set(), state: "new", loadedAt: 0, abort: new AbortController() });
    this.stop = app.live.on((event) => this.hear(event));
    // Runs that are no tasks tell of nothing: they are asked for, the less often the more there are.
    this.timer = setInterval(() => {
      const rest = this.byId.size < 200 ? 20000 : this.byId.size < 3000 ? 60000 : 300000;
      // A tab that nobody looks at hears no events: it tells in its title what waits for a person, within a minute or later.
      const isWanted = document.hidden ? query.includes("person") : this.listeners.size > 0;
      if (isWanted && Date.now() - this.loadedAt >= (document.hidden ? Math.max(rest, 60000) : rest)) this.load();
    }, 5000);
    document.addEventListener("visibilitychange", this.seen = () => { if (!document.hidden && this.listeners.size > 0 && this.state === "whole") this.load(); });
  }

  onChange(listener) { this.listeners.add(listener); }
  tell() { for (const listener of this.listeners) listener(this); }
  end() { this.stop(); clearInterval(this.timer); document.removeEventListener("visibilitychange", this.seen); this.abort.abort(); this.state = "ended"; }

  async load() {
    if (this.isBusy || this.state === "ended") return;
    this.isBusy = true;
    const first = this.state === "new" || this.state === "failed";
    // Who has seen all of it goes on to see it while it is asked for again.
    if (first) { this.state = "loading"; this.tell(); }
    const fresh = new Map();
    // What is heard while the pages come is newer than what they say.
    const heard = this.heard = new Map();
    try {
      for await (const page of this.pages()) {
        for (const one of page.data) { fresh.set(one.id, one); if (first) this.byId.set(one.id, one); }
        if (first) this.tell();
      }
      if (this.state === "ended") return;
      for (const [id, one] of heard) if (one) fresh.set(id, one); else fresh.delete(id);
      this.byId = fresh;
      this.state = "whole";
    } catch (error) {
      if (this.state === "ended" || error.name === "AbortError") return;
      this.state = "failed";
      this.error = error;
    }
    this.heard = null;
    this.isBusy = false;
    this.loadedAt = Date.now();
    this.tell();
    if (this.isOld) { this.isOld = false; this.load(); }
  }

  async* pages() {
    // The first page is what is seen at first.
    let cursor = null; let limit = 50;
    do {
      const page = await this.app.client.get(`/v1/x-pauses?limit=${limit}${this.query}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, this.abort.signal);
      yield page;
      cursor = page.page.next_cursor;
      limit = 1000;
    } while (cursor);
  }

  put(id, one) { this.heard?.set(id, one); this.byId.set(id, one); this.tell(); }
  drop(id) { this.heard?.set(id, null); if (this.byId.delete(id)) this.tell(); }

  hear(event) {
    // Of what happened before it was heard again the pages that are here by now say nothing.
    if (event.event === "x-resumed") { this.isOld = Boolean(this.isBusy); this.load(); return; }
    const id = event.task_id;
    if (!id) return;
    if (["task.input_required", "task.auth_required"].includes(event.event)) {
      this.app.client.get(`/v1/x-pauses/${at(id)}`).then((pause) => {
        if (pause.status === "asleep" && (!this.query.includes("person") || pause.asks_person)) this.put(id, pause);
      }).catch(() => {});
    } else if (["task.status_changed", "task.completed", "task.failed", "task.canceled"].includes(event.event)) this.drop(id);
  }
}

export function inboxView(app, id) {
  const pauses = app.person();
  // What was chosen stays chosen for who comes back.
  const shown = app.inboxFilter ??= { text: "", graph: "", age: "", risk: "", who: "", order: "soon" };
  const heading = h("h1", { class: "sr" }, "Inbox");
  const counted = h("p", { class: "counted", role: "status" });
  const filters = h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() });
  const list = new LongList({
    name: "Requests that wait for a person", height: () => 84, key: (one) => one.id,
    draw: (one) => h("a", { href: `/console/inbox/${at(one.id)}`, class: one.id === open ? "entry tall open" : "entry tall", "aria-current": one.id === open ? "true" : null },
      h("span", { class: "line" }, ticked(one.question ?? one.kind ?? "Waits for an answer")),
      h("span", { class: "under" }, one.risk && [h("span", { class: "mark bad" }, one.risk.slice(0, 12)), " "], brief(one.agent ?? one.graph, 60), " · ", time(one.since), one.missing.length > 0 && ` · ${one.missing.length} to answer`),
      one.ends_at && h("span", { class: `due ${Date.parse(one.ends_at) - Date.now() < 3600000 ? "soon" : ""}` }, time(one.ends_at, "ahead"))),
  });
  const side = h("section", { class: "side", "aria-label": "Requests" }, heading, filters, counted, list.box);
  const main = h("section", { class: "detail", "aria-label": "The request" });
  const node = h("main", { class: "split" }, side, main);
  let open = id; let view = null;

  const matching = () => {
    const text = shown.text.toLowerCase();
    const now = Date.now();
    const found = [...pauses.byId.values()].filter((one) => (!text || `${one.question} ${one.agent} ${one.graph} ${one.id} ${one.kind}`.toLowerCase().includes(text))
      && (!shown.graph || (one.agent ?? one.graph) === shown.graph) && (!shown.age || now - Date.parse(one.since) > Number(shown.age) * 1000)
      && (!shown.risk || one.risk === shown.risk) && (!shown.who || one.missing.includes(shown.who)));
    return found.sort(shown.order === "soon" ? bySoonest : byOldest);
  };

  const choice = (name, words, options) => h("label", {}, h("span", { class: "sr" }, words), h("select", { onchange: (event) => { shown[name] = event.target.value; draw(); } }, options.map(([value, word]) => h("option", { value, selected: shown[name] === value }, word))));
  const choices = h("div", { class: "choices" });
  const search = h("input", { type: "search", value: shown.text, placeholder: "Find   /", "aria-label": "Find in requests", oninput: (event) => { shown.text = event.target.value; draw(); } });
  put(filters, search, choices);
  const drawFilters = () => {
    const all = [...pauses.byId.values()];
    // What is chosen stays among them: it narrows the list down, also where nothing is left of it.
    const words = (of, chosen) => [...new Set([...[...new Set(all.flatMap(of).filter(Boolean))].sort().slice(0, 100), chosen])].filter(Boolean);
    const [graphs, risks, people] = [words((one) => one.agent ?? one.graph, shown.graph), words((one) => one.risk, shown.risk), words((one) => one.missing, shown.who)];
    const options = (first, list) => [["", first], ...list.map((one) => [one, one.slice(0, 40)])];
    redraw(choices, JSON.stringify([graphs, risks, people]), () => [choice("graph", "Agent", options("all agents", graphs)), choice("who", "Who is asked", options("anybody", people)), choice("risk", "Risk", options("any risk", risks)), choice("age", "Age", AGES), choice("order", "Order", [["soon", "due first"], ["old", "oldest first"]])]);
  };

  const draw = () => {
    const found = matching();
    drawFilters();
    list.set(found);
    const all = pauses.byId.size;
    const words = pauses.state === "failed" && all === 0 ? "" : pauses.state === "loading" ? `${count(all)} so far…` : found.length === all ? `${count(all)} ${all === 1 ? "waits" : "wait"} for an answer` : `${count(found.length)} of ${count(all)}`;
    redraw(counted, words, () => words);
    node.classList.toggle("none", all === 0 && pauses.state === "whole" && !open);
    if (!open) drawNone(all);
  };

  const drawNone = (all) => {
    if (pauses.state === "failed") put(main, trouble(pauses.error, () => pauses.load()));
    else if (all > 0) put(main, h("div", { class: "nothing" }, h("p", {}, "Choose a request. ", h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " move, ", h("kbd", {}, "Enter"), " opens, ", h("kbd", {}, "a"), " or ", h("kbd", {}, "d"), " and ", h("kbd", {}, "Enter"), " approve or deny.")));
    else if (pauses.state === "whole") put(main, empty("Nothing waits for you", h("p", {}, "When an agent needs a person it goes to sleep, costs nothing, and its question stands here."), h("p", {}, "To see one:"),
      lesson(app, "expense-approval", { employee: "Ada", amount_cents: 12000, purpose: "a keyboard" })));
  };

  const show = (which) => {
    const left = open; const stood = main.contains(document.activeElement) || document.activeElement === document.body;
    view?.leave();
    view = null;
    open = list.open = which;
    node.classList.toggle("has-detail", Boolean(which));
    if (!which) { draw(); if (left && stood) list.reach(left); return; }
    view = pauseView(app, which, {
      drawn: arrive(list, main),
      done: (gone) => setTimeout(() => pauses.drop(gone), 0),
      changed: (one) => setTimeout(() => pauses.put(one.id, one), 0),
      next: () => {
        const left = matching().filter((one) => one.id !== which);
        return left.length > 0 ? { href: `/console/inbox/${at(left[0].id)}`, left: left.length } : null;
      },
    });
    put(main, h("a", { class: "back", href: "/console/inbox" }, "‹ All requests"), view.node);
    main.scrollTop = 0;
    draw();
  };
  const changed = () => draw();
  pauses.onChange(changed);
  pauses.load();
  show(id);
  return {
    title: "Inbox", node, list, main,
    update: (to) => show(to),
    keys: { j: () => list.step(1), k: () => list.step(-1), "/": () => search.focus(), Escape: () => { if (open) app.go("/console/inbox"); } },
    leave: () => { view?.leave(); pauses.listeners.delete(changed); list.watch.disconnect(); },
  };
}

/** How to begin something that sleeps: the graph `name`, where it is served, or else an agent of one's own. */
export function lesson(app, name, state) {
  const box = h("div", {});
  app.graphs().then((graphs) => {
    const start = `curl -s ${location.origin}/graphs/${name}/turns -H 'content-type: application/json' -H 'authorization: Bearer KEY' -d '${JSON.stringify({ state })}'`;
    put(box, graphs.some((graph) => graph.name === name)
      ? [command(start), h("p", { class: "quiet small" }, "KEY is an API key, as you signed in with; on your own machine none is asked for, and the header may go.")]
      : [h("p", {}, "Say something to an agent that is served here, under ", h("a", { href: "/console/sessions" }, "Sessions"), ". Or make one, which asks before it changes anything:"), command("dormouse new helper --template assistant"), command("dormouse dev --workspace helper")]);
  }).catch(() => put(box));
  return box;
}
