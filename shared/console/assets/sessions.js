// Conversations: the list, and one of them, live.

import { brief, empty, folded, h, keep, put, redraw, say, told, tree, trouble, waiting } from "./dom.js";
import { at, chance } from "./api.js";
import { LongList } from "./list.js";
import { paper } from "./markdown.js";
import { confirmed } from "./pause.js";
import { count, lasting, mark, named, personaOf, short, size, statusWord, time } from "./words.js";

export function sessionsView(app) {
  const node = h("main", { class: "page", tabindex: "0" }, waiting("Fetching the sessions…"));
  const list = new LongList({
    name: "Sessions", height: () => 62, key: (one) => one.id,
    draw: (one) => h("a", { class: "entry", href: `/console/session/${at(one.id)}` }, h("span", { class: "line" }, brief(title(one), 120)), h("span", { class: "under" }, "begun ", time(one.created_at), one.updated_at > one.created_at && [" · changed ", time(one.updated_at)], h("span", { class: "id" }, " · ", short(one.id))), h("span", { class: "due" }, mark(one.state))),
  });
  let items = []; let left = false; let whole = false; let isCut = false; let timer = null; let isBusy = false; let isOld = false; let fails = 0;
  const shown = app.sessionsFilter ??= { text: "" };
  const title = (one) => one.summary ?? named(one.persona_id);
  const search = h("input", { type: "search", value: shown.text, placeholder: "Find   /", "aria-label": "Find in sessions", oninput: () => { shown.text = search.value; set(); } });
  const counted = h("span", { class: "quiet", role: "status" });
  const set = () => {
    const text = shown.text.trim().toLowerCase();
    const found = text ? items.filter((one) => `${title(one)} ${one.id} ${statusWord(one.state)} ${one.created_at}`.toLowerCase().includes(text)) : items;
    list.set(found);
    const all = isCut ? `the newest ${count(items.length)}` : count(items.length);
    const words = text ? `${count(found.length)} of ${all}` : all;
    redraw(counted, words, () => words);
  };
  const box = h("div", { class: "fill" }, list.box);
  let head = null;
  const draw = () => {
    if (left) return;
    if (items.length === 0 && whole) {
      head = null;
      put(node, h("h1", {}, "Sessions"), empty("No session yet", h("p", {}, "A session is a conversation with an agent, with everything that it did. Begin one; it is kept, and goes on on any machine."), begin(app)));
      return;
    }
    // Whoever writes there goes on to write.
    if (!head) {
      head = h("div", { class: "head" }, h("h1", {}, "Sessions"), h("form", { class: "find", role: "search", onsubmit: (event) => event.preventDefault() }, search, counted), begin(app));
      put(node, head, box);
    }
    set();
  };
  const load = async () => {
    if (isBusy) { isOld = true; return; }
    isBusy = true;
    isOld = false;
    try {
      const found = []; let isMore = false;
      for await (const page of app.client.pages("/v1/sessions?limit=200", { most: 50 })) {
        found.push(...page.data);
        isMore = page.page.has_more;
        if (items.length <= found.length) items = [...found];
        whole = !isMore;
        draw();
        if (left) return;
      }
      items = found;
      isCut = isMore;
      whole = true;
      draw();
      fails = 0;
    } catch (error) {
      fails += 1;
      if (!left && items.length === 0) { head = null; put(node, h("h1", {}, "Sessions"), trouble(error, load)); }
      else if (!left) { isOld = true; if (fails === 1) say(`${error.title}. ${error.message}`, true); }
    }
    isBusy = false;
    if (isOld) later();
  };
  // All of it is asked for again, which many events must not do many times: the longer the list, the less often.
  const later = () => {
    isOld = true;
    if (left || isBusy || timer) return;
    timer = setTimeout(() => { timer = null; if (document.hidden) later(); else load(); }, items.length < 200 ? (fails > 0 ? 10000 : 1500) : items.length < 3000 ? 20000 : 60000);
  };
  const stop = app.live.on((event) => { if (/^(session|task)\.|^x-/.test(event.event)) later(); });
  load();
  return { title: "Sessions", node, list, keys: { j: () => list.step(1), k: () => list.step(-1), "/": () => search.focus() }, leave: () => { left = true; stop(); clearTimeout(timer); list.watch.disconnect(); } };
}

/** Begins a session with an agent. */
function begin(app) {
  // What is disabled loses the focus, and whoever closes the dialog would be at the top of the page.
  const button = h("button", { type: "button", class: "primary", onclick: async () => {
    if (button.hasAttribute("aria-disabled")) return;
    button.setAttribute("aria-disabled", "true");
    try {
      const [personas, workspaces] = await Promise.all([app.client.all("/v1/personas?limit=200"), app.client.get("/v1/workspaces?limit=50")]);
      if (personas.length === 0) { say("This server has no agent. dormouse new makes one.", true); return; }
      const which = await chosen(personas, workspaces.data);
      if (!which) return;
      const workspace = which.workspace || (await app.client.post("/v1/workspaces", { name: "Console", root: "/" })).id;
      const session = await app.client.post("/v1/sessions", { workspace_id: workspace, persona_id: which.persona });
      app.go(`/console/session/${at(session.id)}`);
    } catch (error) { say(`${error.title}. ${error.message}`, true); } finally { button.removeAttribute("aria-disabled"); }
  } }, "New session");
  return button;
}

function chosen(personas, workspaces) {
  return new Promise((decided) => {
    const persona = h("select", { id: "persona" }, personas.map((one) => h("option", { value: one.id }, one.name)));
    const workspace = h("select", { id: "workspace" }, workspaces.map((one) => h("option", { value: one.id }, one.name ?? one.id)), h("option", { value: "" }, "a new one"));
    const box = h("dialog", { "aria-labelledby": "with" }, h("form", { method: "dialog" }, h("h2", { id: "with" }, "New session"), h("label", { class: "field", for: "persona" }, "Agent"), persona, h("label", { class: "field", for: "workspace" }, "Workspace"), workspace, h("div", { class: "actions" }, h("button", { class: "primary", value: "yes" }, "Begin"), h("button", { value: "no" }, "Not now"))));
    document.body.append(box);
    box.addEventListener("close", () => { box.remove(); decided(box.returnValue === "yes" ? { persona: persona.value, workspace: workspace.value } : null); });
    box.showModal();
  });
}

/** Asks for a line of text; gives it, or null. */
function lineFor(title, words, value) {
  return new Promise((decided) => {
    const input = h("input", { id: "line", type: "text", maxlength: "200", value });
    const box = h("dialog", { "aria-labelledby": "ask" }, h("form", { method: "dialog" }, h("h2", { id: "ask" }, title), h("label", { class: "field", for: "line" }, words), input, h("div", { class: "actions" }, h("button", { class: "primary", value: "yes" }, "Keep"), h("button", { type: "button", onclick: () => box.close("no") }, "Leave it as it is"))));
    document.body.append(box);
    box.addEventListener("close", () => { box.remove(); decided(box.returnValue === "yes" ? input.value.trim() : null); });
    box.showModal();
  });
}

/** Lines of a conversation that are shown at first, and how many more at a time: a browser draws thousands for seconds. */
const MOST_LINES = 2000;

const ENDED = new Set(["COMPLETED", "FAILED", "CANCELED"]);
const WHO = { user: "You and others", assistant: "Agent", agent: "Agent", system: "System", tool: "Tool" };

/** The parts of a message. What a model says is Markdown; the words of all others are shown as they are, for people decide by them. */
export function partsOf(parts, role) {
  return (parts ?? []).map((part) => {
    if (part.type === "text") return role === "assistant" ? paper(String(part.text)).node : told(part.text, { tag: "p", name: "text" });
    if (part.type === "json") return h("div", { class: "json" }, tree(part.value));
    if (part.type === "tool_call") return folded(h("span", {}, "Calls ", brief(part.name, 80, { tag: "code" })), () => tree(part.input), { class: "tool" });
    if (part.type === "tool_result") return folded(h("span", {}, part.status === "error" ? "The tool failed" : "The tool answered"), () => tree(part.output), { class: `tool ${part.status === "error" ? "bad" : ""}` });
    return h("div", { class: "json" }, tree(part));
  });
}

const STEP = {
  "tool.requested": "asks for", "tool.approval_required": "needs approval for", "tool.approved": "was allowed", "tool.denied": "was denied", "tool.completed": "has used", "tool.failed": "failed with", "agent.tool_use": "uses", "agent.mcp_tool_use": "uses", "agent.handoff": "hands on to",
};

/** An event as a line of a conversation; null for what says nothing there. */
function stepOf(event) {
  const { payload = {} } = event;
  if (STEP[event.event]) {
    return folded(h("span", {}, `The agent ${STEP[event.event]} `, brief(payload.tool ?? payload.name ?? "a tool", 80, { tag: "code" }), payload.duration_ms !== undefined && h("span", { class: "quiet" }, ` ${lasting(payload.duration_ms)}`), payload.output_bytes !== undefined && h("span", { class: "quiet" }, ` ${size(payload.output_bytes)}`)), () => tree(payload), { class: `tool ${/failed|denied/.test(event.event) ? "bad" : ""}` });
  }
  if (event.event === "span.completed" && payload["gen_ai.request.model"]) {
    const usage = payload.usage ?? {};
    return folded(h("span", { class: "quiet" }, brief(payload["gen_ai.request.model"], 60), ` thought for ${lasting(payload.duration_ms ?? 0)}`, usage.total_tokens ? `, ${usage.total_tokens} tokens` : "", payload.cost ? `, $${Number(payload.cost).toFixed(5)}` : ""), () => tree(payload), { class: "tool" });
  }
  if (event.event === "task.input_required" || event.event === "task.auth_required") {
    return h("p", { class: "asks" }, h("span", { class: "mark sleep" }, "Asleep"), " ", told(payload.request?.description ?? "It waits for an answer", { limit: 300 }), " ", h("a", { href: `/console/inbox/${at(event.task_id)}` }, "Look at it"));
  }
  if (event.event === "vendor.dormouse.agent_asked" && payload.invocation_id) {
    return h("p", { class: "asks" }, "The agent asked ", told(payload.agent ?? "another one", { tag: "code", limit: 80 }), payload.background ? " and went on meanwhile. " : " and sleeps until it has the answer. ", h("a", { href: `/console/run/${at(payload.invocation_id)}` }, "Its run"), " ", payload.session_id && h("a", { href: `/console/session/${at(payload.session_id)}` }, "What was said"));
  }
  if (event.event === "task.failed") return h("p", { class: "asks" }, h("span", { class: "mark bad" }, "Failed"), " ", told(payload.failure?.message ?? "", { limit: 500 }));
  if (event.event === "task.canceled") return h("p", { class: "asks" }, h("span", { class: "mark off" }, "Canceled"), " ", told(payload.reason ?? "", { limit: 300 }));
  if (event.event === "session.truncated") return h("p", { class: "asks quiet" }, `Cut to the first ${payload.kept_turn_count} turns. `, told(payload.reason ?? "", { limit: 300 }));
  return null;
}

/** The message that an event holds; null for one of something else. What a replay repeats was not said. */
function saidBy({ resource, payload, created_at, replayed }) {
  if (resource?.object !== "message" || replayed || !Array.isArray(payload?.parts)) return null;
  return { id: resource.id, created_at, role: payload.role, parts: payload.parts.filter((part) => part?.redacted === undefined) };
}

export function sessionView(app, id) {
  const head = h("header", { class: "head" }, h("div", {}, h("a", { class: "back always", href: "/console/sessions" }, "‹ Sessions"), h("h1", {}, "Session")), h("div", { class: "actions" }, h("span", { class: "mark" }, "…"), ["Name…", "Fork", "Cut last turn", "Close"].map((one) => h("button", { type: "button", class: "quiet", disabled: true }, one)))); const talk = h("div", { class: "talk", role: "log", "aria-live": "off", "aria-relevant": "additions", "aria-label": "Conversation", tabindex: "0" }, waiting("Fetching the conversation…"));
  const aside = h("aside", { class: "aside", "aria-label": "Runs of this session" });
  // What was begun to be written stays for who comes back from another view.
  const drafts = app.drafts ??= new Map();
  const input = h("textarea", { id: "say", rows: "2", placeholder: "Say something to the agent…", "aria-label": "Message", value: drafts.get(id) ?? "" });
  // A message of which nobody knows yet whether it has arrived, and its name, by session; who deletes it drops it.
  const unsure = app.unsure ??= new Map();
  let isSending = false; let isNext = false;
  input.addEventListener("input", () => { drafts.set(id, input.value); if (!input.value && !isSending) unsure.delete(id); });
  const button = h("button", { type: "submit", class: "primary" }, "Send");
  const form = h("form", { class: "say", onsubmit: (event) => { event.preventDefault(); speak(); } }, input, button);
  input.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!event.repeat) speak(); } });
  const node = h("main", { class: "session" }, head, h("div", { class: "columns" }, h("div", { class: "column" }, talk, form), aside));
  let left = false; let session = null; let unfollow = null; const events = new Map(); let messages = []; let tasks = []; let results = []; let after = null;

  const readEvents = async () => {
    for await (const { data, place } of app.client.events(`/v1/sessions/${at(id)}/events`, { most: 100, from: after })) {
      for (const event of data) { if (!events.has(event.id)) news.push(event); events.set(event.id, event); }
      after = place;
    }
  };
  // What is said is in events, too. All of it is asked for at first, for a fork begins with what was said elsewhere; and behind a
  // cut, of which its event does not say what stays.
  let news = []; let isRead = false; let isListed = false;
  const readMessages = () => app.client.all(`/v1/sessions/${at(id)}/messages?limit=200`);
  // What was made is found among all tasks of the session: it is asked for where an event tells of something else.
  const readResults = () => app.client.all(`/v1/artifacts?session_id=${encodeURIComponent(id)}&limit=50`, { most: 1 }).then((found) => { isListed = true; return found; }, () => results);
  const takeIn = async () => {
    const taken = news.splice(0);
    if (taken.some(({ resource }) => resource?.object === "artifact" && !results.some((one) => one.id === resource.id))) { isListed = false; results = await readResults(); }
    const known = new Set(messages.map((message) => message.id));
    if (taken.some((event) => event.event === "session.truncated")) isRead = false;
    if (!isRead) messages = await readMessages();
    else messages = [...messages, ...taken.map(saidBy).filter((message) => message && !known.has(message.id))];
    isRead = true;
  };
  // Tasks that have ended stay as they are, and new ones come first.
  const readTasks = async () => {
    const known = new Set(tasks.map((task) => task.id));
    const open = new Set(tasks.filter((task) => !ENDED.has(task.status)).map((task) => task.id));
    const found = new Map();
    for await (const { data } of app.client.pages(`/v1/sessions/${at(id)}/tasks?limit=200`, { most: 5 })) {
      for (const task of data) { found.set(task.id, task); open.delete(task.id); }
      if (open.size === 0 && data.some((task) => known.has(task.id))) break;
    }
    tasks = [...found.values(), ...tasks.filter((task) => !found.has(task.id))];
  };
  // Agents that were asked work in sessions of their own: their runs are part of this tree.
  const asked = new Map();
  const ofOthers = async (given, depth = 0) => {
    for (const { payload = {} } of given.filter((event) => event.event === "vendor.dormouse.agent_asked" && event.payload.session_id)) {
      const known = asked.get(payload.session_id) ?? { agent: payload.agent, tasks: [], runs: new Set() };
      asked.set(payload.session_id, known);
      if (known.tasks.length > 0 && known.tasks.every((task) => ENDED.has(task.status)) && known.runs.has(payload.invocation_id)) continue;
      const found = await app.client.all(`/v1/sessions/${at(payload.session_id)}/tasks?limit=200`, { most: 1 }).catch(() => null);
      if (found) { known.tasks = found; known.runs.add(payload.invocation_id); }
      if (depth < 3) await ofOthers((await app.client.get(`/v1/sessions/${at(payload.session_id)}/events?limit=200`).catch(() => ({ data: [] }))).data, depth + 1);
    }
  };
  // What the model is writing: nothing of it is kept, and the message itself takes its place.
  let writing = null; let written = null;
  const draft = h("section", { class: "message assistant", "aria-live": "off" });
  const write = (event) => {
    if (event.event === "agent.message" || /^task\.(completed|failed|canceled)$/.test(event.event)) writing = null;
    if (event.event !== "message.delta" || left) return;
    // Who comes in the midst of it is shown what is written from then on.
    const isSame = event.from > 0 && writing?.task_id === event.task_id && writing.step === event.step;
    const before = event.from === 0 ? "" : isSame ? `${writing.text}${writing.to === event.from ? "" : " … "}` : "… ";
    writing = { ...event, text: before + event.text, to: event.from + [...event.text].length };
    if (isSame) written.show(writing.text);
    else { written = paper(writing.text, { around: scrolled }); put(draft, h("p", { class: "who working" }, "The agent writes"), written.node); }
    if (!draft.isConnected) draw();
  };
  // What was said before somebody came is not read out.
  const quietly = (show) => {
    talk.setAttribute("aria-live", "off");
    show();
    clearTimeout(loud);
    loud = setTimeout(() => talk.setAttribute("aria-live", "polite"), 1000);
  };
  let loud = null;
  const scrolled = (grow) => { const atEnd = isAtEnd(); grow(); if (atEnd) talk.scrollTop = talk.scrollHeight; };
  const isAtEnd = () => talk.scrollHeight - talk.scrollTop - talk.clientHeight < 160;
  let running = false; let again = false; let fails = 0; let timer = null;
  const load = async () => {
    if (running) { again = true; return; }
    running = true;
    try {
      const reading = readEvents();
      reading.catch(() => { /* told below */ });
      [session, messages, results] = await Promise.all([app.client.get(`/v1/sessions/${at(id)}`), isRead ? messages : readMessages(), isListed ? results : readResults(), readTasks()]);
      isRead = true;
      // What was said is there before all that was done for it, where that is long.
      if (!talk.kept && await Promise.race([reading, new Promise((done) => setTimeout(done, 700, "slow"))]) === "slow" && !left) draw();
      await reading;
      await takeIn();
      await ofOthers([...events.values()]);
      if (!left) { if (isBegun) draw(); else quietly(draw); isBegun = true; unfollow ??= app.follow(id, after, write); }
      fails = 0;
    } catch (error) {
      fails += 1;
      // What is there stays there when it cannot be had again for a while.
      const passes = [0, 429].includes(error.status) || error.status >= 500;
      if (!left && !(passes && talk.kept)) put(talk, trouble(error, load));
      else if (!left) { if (fails === 1) say(`${error.title}. ${error.message}`, true); clearTimeout(timer); timer = setTimeout(load, 5000); }
    }
    running = false;
    if (again && !left) { again = false; load(); }
  };
  let isActing = false;
  // Who presses twice means it once.
  const act = async (path, body, words, go, name) => {
    if (isActing) return;
    isActing = true;
    try {
      const made = await app.client.post(path, body, name, Boolean(name));
      if (name) forks.delete(id);
      say(words);
      if (left) return;
      if (go) app.go(go(made)); else load();
    } catch (error) { say(`${error.title}. ${error.message}`, true); } finally { isActing = false; }
  };
  // A fork of which nobody knows whether it was made keeps its name, as long as nothing more was said: it is made once.
  const forks = app.forks ??= new Map();
  const fork = () => {
    const last = messages.at(-1)?.id; const before = forks.get(id);
    const name = before && before.last === last ? before.name : chance();
    forks.set(id, { last, name });
    act(`/v1/sessions/${at(id)}/fork`, {}, "Forked: this is the new one.", (made) => `/console/session/${at(made.id)}`, name);
  };
  const cut = async () => {
    const kept = messages.length - 1; const last = messages.at(-1)?.id;
    const reason = await confirmed("Cut the last turn off?", "The agent forgets it. Events and receipts of it stay.", "Cut it off");
    if (reason === null) return;
    try {
      // The server counts from the first: what nobody has seen here would be cut off too.
      let isSeen = messages.at(-1)?.id === last;
      for await (const { data } of app.client.events(`/v1/sessions/${at(id)}/events`, { from: after })) isSeen &&= !data.some((event) => saidBy(event) || event.event === "session.truncated");
      if (isSeen) { act(`/v1/sessions/${at(id)}/truncate`, { keep_first: kept, ...(reason && { reason }) }, "The last turn is cut off."); return; }
      say("Something else was said or cut off meanwhile: look at it first.", true);
      load();
    } catch (error) { say(`${error.title}. ${error.message}`, true); }
  };
  const name = async () => {
    const given = await lineFor("Name this session", "What it is called in lists", session.summary ?? "");
    if (given === null) return;
    try {
      await app.client.ask("PATCH", `/v1/sessions/${at(id)}`, { body: { summary: given || null } });
      load();
    } catch (error) { say(`${error.title}. ${error.message}`, true); }
  };
  // The first lines are those before the end, which is known once all was read, unless somebody has gone back before.
  let since; let isBegun = false;
  const draw = () => {
    const isOpen = !["CLOSED", "FAILED"].includes(session.state);
    const title = session.summary ?? named(personaOf(session, tasks));
    redraw(head, JSON.stringify([title, session.state, messages.length > 0]), () => [h("div", {}, h("a", { class: "back always", href: "/console/sessions" }, "‹ Sessions"), session.parent_session_id && [" ", h("a", { class: "back always", href: `/console/session/${at(session.parent_session_id)}` }, "‹ The session that it comes from")], h("h1", {}, told(title, { limit: 120 }))), h("div", { class: "actions" }, mark(session.state),
      h("button", { type: "button", class: "quiet", onclick: name }, "Name…"),
      h("button", { type: "button", class: "quiet", onclick: fork }, "Fork"),
      isOpen && messages.length > 0 && h("button", { type: "button", class: "quiet", onclick: cut }, "Cut last turn"),
      isOpen && h("button", { type: "button", class: "quiet", onclick: async () => { if (await confirmed("Close this session?", "It takes nothing new. What runs goes on.", "Close it", true) !== null) act(`/v1/sessions/${at(id)}/close`, undefined, "Closed."); } }, "Close"))]);
    form.hidden = !isOpen;
    const lines = [
      ...messages.map((message) => ({ id: message.id, at: message.created_at, order: 0, node: () => messageOf(message) })),
      ...[...events.values()].map((event, order) => ({ id: event.id, at: event.created_at, order: order + 1, node: () => stepOf(event) ?? document.createComment("") })),
    ].sort((a, b) => a.at.localeCompare(b.at) || a.order - b.order);
    if (!isBegun) since = lines.at(-MOST_LINES)?.at;
    const begin = since ? Math.max(0, lines.findIndex((line) => line.at >= since)) : 0;
    const before = lines.splice(0, begin);
    const goBack = () => { isBegun = true; since = before[Math.max(0, begin - MOST_LINES)].at; quietly(draw); talk.focus({ preventScroll: true }); };
    if (begin > 0) lines.unshift({ id: `before ${since}`, node: () => h("p", {}, h("button", { type: "button", class: "quiet small", onclick: goBack }, "Show what came before")) });
    const atEnd = isAtEnd();
    const first = talk.childElementCount <= 1;
    const working = tasks.some((task) => ["SUBMITTED", "WORKING"].includes(task.status));
    if (messages.length === 0 && !tasks.some(isUnsaid)) lines.push({ id: "nothing", node: () => h("p", { class: "quiet" }, "Nothing was said yet.") });
    if (working) lines.push({ id: "working", node: () => h("p", { class: "working", role: "status" }, "The agent works…") });
    if (writing) lines.push({ id: `writing ${writing.task_id} ${writing.step}`, node: () => draft });
    for (const task of tasks.filter(isUnsaid).sort((a, b) => a.created_at.localeCompare(b.created_at))) lines.push({ id: `queued ${task.id}`, node: () => queuedOf(task) });
    keep(talk, lines, (line) => line.id, (line) => line.node());
    if (first || atEnd) talk.scrollTop = talk.scrollHeight;
    redraw(aside, JSON.stringify([[tasks, ...[...asked.values()].map((one) => one.tasks)].flat().map((task) => [task.id, task.status]), results.map((one) => one.id)]), () => [h("h2", {}, "Runs"), tasks.length === 0 ? h("p", { class: "quiet" }, "None yet.") : family(), results.length > 0 && [h("h2", {}, "Results"), h("ul", { class: "runs" }, results.map(result))]]);
  };
  const messageOf = (message) => h("section", { class: `message ${message.role}` }, h("p", { class: "who" }, WHO[message.role] ?? message.role, " ", time(message.created_at)), partsOf(message.parts, message.role));
  // It joins the conversation when its turn comes.
  const isUnsaid = (task) => task.status === "SUBMITTED" && Array.isArray(task.input?.parts) && !task.input.id;
  const queuedOf = (task) => h("section", { class: `message queued ${task.input.role}` }, h("p", { class: "who" }, WHO[task.input.role] ?? task.input.role, " ", time(task.created_at), " ", h("span", { class: "mark off" }, "Waits for its turn")), partsOf(task.input.parts));
  const result = (one) => h("li", {}, h("button", { type: "button", class: "quiet small", onclick: async () => {
    try { await app.client.file(`/v1/artifacts/${at(one.id)}/content`, `${one.id}.${(one.mime_type ?? "").includes("json") ? "json" : "txt"}`); } catch (error) { say(`${error.title}. ${error.message}`, true); }
  } }, brief(`${one.kind ?? "file"}, ${one.mime_type ?? ""}`, 60)), " ", time(one.created_at));
  /** Runs, and those that they began, as a tree. */
  const family = () => {
    const all = [...tasks, ...[...asked.values()].flatMap((one) => one.tasks.map((task) => ({ ...task, agent: one.agent })))];
    const known = new Set(all.map((task) => task.id));
    const under = (parent) => {
      const mine = all.filter((task) => (known.has(task.parent_task_id) ? task.parent_task_id : null) === parent);
      return mine.length === 0 ? null : h("ul", { class: "runs" }, mine.map((task) => h("li", {}, h("a", { href: `/console/run/${at(task.id)}` }, mark(task.status), " ", task.agent && [brief(task.agent, 40), " "], time(task.created_at)), under(task.id))));
    };
    return under(null);
  };
  const speak = async () => {
    const text = input.value.trim();
    if (!text) return;
    // One after the other: what is sent meanwhile goes out behind it.
    if (isSending) { isNext = true; return; }
    isSending = true;
    button.textContent = "Sending…";
    // It may have arrived although no answer came back, whatever a later attempt was answered: the same words are sent again under
    // the same name, and count once.
    const before = unsure.get(id);
    const name = before?.text === text ? before.name : chance();
    unsure.set(id, { text, name });
    input.value = "";
    try {
      await app.client.post(`/v1/sessions/${at(id)}/tasks`, { input: { role: "user", parts: [{ type: "text", text }] } }, name, true);
      if (unsure.get(id)?.name === name) unsure.delete(id);
      drafts.set(id, input.value);
      load();
    } catch (error) {
      input.value = input.value ? `${text}\n${input.value}` : text;
      drafts.set(id, input.value);
      isNext = false;
      say(`${error.title}. ${error.message}`, true);
    }
    button.textContent = "Send";
    isSending = false;
    if (document.activeElement === button) input.focus();
    if (isNext) { isNext = false; speak(); }
  };
  const stop = app.live.on((event) => { if (event.session_id === id || event.event === "x-resumed") { clearTimeout(timer); timer = setTimeout(load, 250); } });
  load();
  return { title: "Session", node, keys: { "/": () => input.focus() }, leave: () => { left = true; stop(); unfollow?.(); clearTimeout(timer); clearTimeout(loud); } };
}
