// One run: its time with sleep to scale, where it stands, every step, receipts.

import { judged } from "./receipts.js";
import { folded, h, keep, put, redraw, say, told, tree, trouble, waiting } from "./dom.js";
import { at, isTask } from "./api.js";
import { timePicture } from "./pictures.js";
import { confirmed, pauseView, standing } from "./pause.js";
import { partsOf } from "./sessions.js";
import { clock, count, dollars, lasting, mark, named, short, stamp, time } from "./words.js";

const ENDED = new Set(["COMPLETED", "FAILED", "CANCELED"]);

const WORDS = {
  "task.submitted": "Accepted", "task.started": "Began to work", "task.input_required": "Went to sleep: asks for input", "task.auth_required": "Went to sleep: asks for approval", "task.status_changed": "Woke up", "task.completed": "Completed", "task.failed": "Failed", "task.canceled": "Canceled",
  "user.message": "Was told", "user.input_submitted": "Was answered", "user.tool_confirmation": "Was answered", "user.cancel_requested": "Somebody asked to cancel", "agent.message": "Said", "span.completed": "Step", "span.failed": "Step failed", "tool.requested": "Asks for a tool", "tool.approval_required": "A tool needs approval", "tool.approved": "A tool was allowed", "tool.denied": "A tool was denied", "tool.completed": "Tool answered", "tool.failed": "Tool failed", "artifact.created": "Result written", "receipt.issued": "Receipt issued", "session.message_appended": "Was told", "vendor.dormouse.agent_asked": "Asked another agent:", "vendor.dormouse.tool_pending": "A tool works elsewhere:", "vendor.dormouse.tool_decided": "A person said what becomes of a call of", "vendor.dormouse.run_ended": "The agent has nothing left to do",
};

/** Steps that are shown at first, and how many more at a time: a browser takes half a minute to draw those of the longest runs. */
const MOST_ROWS = 1000;

const dayOf = (instant) => new Date(instant).toDateString();

/** The stretches of a run, from its events. */
export function spansOf(events, now = Date.now()) {
  const spans = []; let open = null; let ended = false;
  const close = (instant) => { if (open) { spans.push({ ...open, to: Math.max(open.from, instant) }); open = null; } };
  for (const event of events) {
    const instant = Date.parse(event.created_at);
    const { payload = {} } = event;
    if (event.event === "task.submitted") open = { from: instant, kind: "work", label: "working" };
    else if (event.event === "task.started") { if (!open) open = { from: instant, kind: "work", label: "working" }; }
    else if (event.event === "task.input_required" || event.event === "task.auth_required") { close(instant); open = { from: instant, kind: "sleep", label: `asleep: ${payload.request?.description ?? "waits"}`.slice(0, 120) }; }
    else if (event.event === "task.status_changed") { close(instant); open = { from: instant, kind: "work", label: "working" }; }
    else if (/^task\.(completed|failed|canceled)$/.test(event.event)) { close(instant); ended = true; }
    else if (payload.duration_ms !== undefined) spans.push({ from: instant - payload.duration_ms, to: instant, kind: "call", label: String(payload.tool ?? payload.name ?? "step").slice(0, 80) });
  }
  close(now);
  return { spans, open: !ended };
}

export function runView(app, id) {
  const node = h("main", { class: "page run", tabindex: "0" }, waiting("Fetching the run…"));
  if (!isTask(id)) {
    const view = pauseView(app, id);
    put(node, h("h1", {}, "Run"), h("p", { class: "quiet" }, "This run was not begun as a task of the protocol: its events are not kept. This is where it stands."), view.node);
    return { title: "Run", node, leave: view.leave };
  }
  const picture = h("section", { "aria-label": "Time" }); const stands = h("section", { "aria-label": "Where it stands" }); const steps = h("section", { "aria-label": "Steps" }); const head = h("header", { class: "head" }); const facts = h("section", { class: "factbox" }); const receipts = h("section", { "aria-label": "Receipts" });
  const counted = h("h2", {}); const list = h("ol", { class: "steps" }); const proven = h("div", {});
  const earlier = h("div", {});
  put(steps, counted, earlier, list);
  let left = false; let unfollow = null; let task = null; let events = []; let pause = null; let drawn = "";
  let after = null;
  const readEvents = async () => {
    for await (const { data, place } of app.client.events(`/v1/tasks/${at(id)}/events`, { from: after })) {
      const known = new Set(events.map((event) => event.id));
      events = [...events, ...data.filter((event) => !known.has(event.id))];
      after = place;
    }
  };
  let running = false; let again = false; let fails = 0;
  // One at a time: of two the later one might be told first.
  const load = async () => {
    if (running) { again = true; return; }
    running = true;
    await look();
    running = false;
    if (again && !left) { again = false; load(); }
  };
  const look = async () => {
    try {
      // All of it at once: what came later would push down what is read already.
      [task, pause] = await Promise.all([app.client.get(`/v1/tasks/${at(id)}`), app.client.get(`/v1/x-pauses/${at(id)}`).catch(() => null), app.graphs().catch(() => null), readEvents()]);
      if (left) return;
      await draw();
      if (!ENDED.has(task.status)) unfollow ??= app.follow(task.session_id, events.at(-1)?.id ?? null);
      else { unfollow?.(); unfollow = null; }
      fails = 0;
    } catch (error) {
      if (left) return;
      fails += 1;
      if (head.parentNode !== node) { put(node, h("h1", {}, "Run"), trouble(error, load)); return; }
      if (fails === 1) say(`${error.title}. ${error.message}`, true);
      clearTimeout(timer);
      // No other event may tell of what it has become.
      if ([0, 429].includes(error.status) || error.status >= 500) timer = setTimeout(load, 5000);
    }
  };
  const draw = async () => {
    if (head.parentNode !== node) put(node, head, facts, picture, stands, steps, receipts);
    const asks = task.status.endsWith("_REQUIRED");
    redraw(head, task.status, () => [h("div", {}, h("a", { class: "back always", href: `/console/session/${at(task.session_id)}` }, "‹ Session"), task.parent_task_id && [" ", h("a", { class: "back always", href: `/console/run/${at(task.parent_task_id)}` }, "‹ The run that asked")], h("h1", {}, "Run of ", told(named(task.persona_id), { limit: 80 }))), h("div", { class: "actions" }, mark(task.status), asks && h("a", { class: "button primary", href: `/console/inbox/${at(id)}` }, "Answer"), !ENDED.has(task.status) && h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel…"))]);
    const models = events.filter((event) => event.payload?.usage);
    const tokens = models.reduce((all, event) => all + (event.payload.usage.total_tokens ?? (event.payload.usage.input_tokens ?? 0) + (event.payload.usage.output_tokens ?? 0)), 0);
    const cost = models.reduce((all, event) => all + Number(event.payload.cost ?? 0), 0);
    const { spans, open } = spansOf(events);
    const asleep = spans.filter((span) => span.kind === "sleep").reduce((all, span) => all + span.to - span.from, 0);
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    put(facts, h("dl", {}, fact("Began", time(task.created_at)), fact("Asleep", lasting(asleep)), models.length > 0 && fact("Tokens", count(tokens)), models.length > 0 && fact("Models", dollars(cost)), fact("By", told(task.created_by, { limit: 60 })), fact("Id", h("code", { title: id }, short(id)))),
      task.failure && h("div", { class: "trouble", role: "alert" }, h("p", {}, h("strong", {}, told(task.failure.code, { limit: 80 }))), told(task.failure.message, { tag: "p", limit: 800 })));
    if (spans.length > 0) {
      const begin = spans.reduce((least, span) => Math.min(least, span.from), Infinity); const end = spans.reduce((most, span) => Math.max(most, span.to), 0);
      put(picture, h("h2", {}, "Time"), timePicture(spans, begin, end, { open }));
    }
    put(counted, `${count(events.length)} steps`);
    from ??= Math.max(0, events.length - MOST_ROWS);
    drawSteps();
    const state = `${task.status} ${events.length}`;
    if (state !== drawn) {
      drawn = state;
      put(stands, pause && [h("h2", {}, "Where it stands"), standing(app, pause)]);
      if (ENDED.has(task.status)) proofs();
    }
  };
  let from = null;
  const drawSteps = () => {
    const before = () => { from = Math.max(0, from - MOST_ROWS); drawSteps(); (earlier.querySelector("button") ?? node).focus({ preventScroll: true }); };
    redraw(earlier, String(from), () => [from > 0 && h("button", { type: "button", class: "quiet small", onclick: before }, `Show ${count(Math.min(from, MOST_ROWS))} of ${count(from)} earlier ones`)]);
    const rows = events.slice(from).map((event, at, all) => [event, all[at - 1]]);
    keep(list, rows, ([event]) => event.id, stepRow);
  };
  const stepRow = ([event, before]) => {
    const { payload = {} } = event;
    // Who has slept goes on another day.
    const isNewDay = dayOf(event.created_at) !== dayOf(before?.created_at ?? Date.now());
    const what = payload.tool ?? payload.name ?? payload.agent ?? payload.request?.description ?? payload.failure?.message ?? "";
    return h("li", { class: /failed|denied/.test(event.event) ? "bad" : /required/.test(event.event) ? "sleep" : "" }, h("span", { class: "when" }, h("time", { datetime: event.created_at, title: stamp(event.created_at) }, isNewDay ? stamp(event.created_at) : clock(event.created_at))), h("div", {},
      h("span", {}, WORDS[event.event] ?? told(event.event, { limit: 60 })), what && [" ", told(String(what), { limit: 200, name: "quiet" })], payload.duration_ms !== undefined && h("span", { class: "quiet" }, ` ${lasting(payload.duration_ms)}`), event.replayed && h("span", { class: "mark off" }, "replayed"),
      payload.parts ? partsOf(payload.parts, payload.role) : null, event.event === "vendor.dormouse.agent_asked" && payload.invocation_id && h("p", {}, h("a", { href: `/console/run/${at(payload.invocation_id)}` }, "Its run")), Object.keys(payload).length > 0 && folded("Record", () => tree(payload), { class: "record" })));
  };
  const cancel = async () => {
    const reason = await confirmed("Cancel this run?", "It ends for good. What it has done so far stays done.", "Cancel the run");
    if (reason === null) return;
    try { await app.client.post(`/v1/tasks/${at(id)}/cancel`, { reason: reason || null }); say("Canceled."); await load(); } catch (error) { say(`${error.title}. ${error.message}`, true); }
  };
  /** Receipts, where the server has them. */
  const proofs = async () => {
    if (!app.client.offers.receipts) return;
    try {
      const found = await app.client.all(`/v1/tasks/${at(id)}/receipts?limit=50`, { most: 4 });
      if (left || found.length === 0) return;
      if (!proven.isConnected) put(receipts, h("h2", {}, "Receipts"), proven);
      keep(proven, found, (receipt) => receipt.id, (receipt) => {
        const line = h("p", { role: "status" });
        return h("div", { class: "card receipt" }, h("p", {}, h("code", {}, receipt.id), " ", time(receipt.created_at)), line, h("button", { type: "button", onclick: async () => {
          put(line, "Verifying…");
          try {
            const { valid, words } = await judged(app.client, receipt);
            line.className = `outcome ${valid ? "good" : "bad"}`;
            put(line, told(words, { limit: 400 }));
          } catch (error) { put(line, `${error.title}. ${error.message}`); }
        } }, "Verify"), folded("What it states", () => tree(receipt)));
      });
    } catch { /* a server that names them and has none */ }
  };
  let timer;
  const stop = app.live.on((event) => { if (event.task_id === id || event.event === "x-resumed") { clearTimeout(timer); timer = setTimeout(load, 200); } });
  const tick = setInterval(() => { if (task && !ENDED.has(task.status) && !document.hidden && head.childElementCount > 0) draw(); }, 15000);
  load();
  return { title: "Run", node, leave: () => { left = true; stop(); unfollow?.(); clearTimeout(timer); clearInterval(tick); } };
}
