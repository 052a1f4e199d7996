// One pause: what is asked, until when, the answer. With a key, or by the token of its link.

import { brief, h, lead, put, say, told, trouble, tree, waiting, folded } from "./dom.js";
import { isTask, send, at } from "./api.js";
import { answerForm, doubtWords, ladder, outcomeWords, parts, question } from "./answer.js";
import { graphPicture } from "./pictures.js";
import { mark, short, time } from "./words.js";

/** Asks before something that cannot be taken back; gives the reason, or null. What keeps no reason `isPlain`: it asks for none. */
export function confirmed(title, words, action, isPlain = false) {
  return new Promise((decided) => {
    const reason = h("textarea", { id: "why", rows: "2", maxlength: "1000" });
    const box = h("dialog", { "aria-labelledby": "sure" }, h("form", { method: "dialog" }, h("h2", { id: "sure" }, title), h("p", {}, words),
      !isPlain && [h("label", { class: "field", for: "why" }, "Reason ", h("span", { class: "quiet" }, "(optional)")), reason],
      h("div", { class: "actions" }, h("button", { value: "yes", class: "danger" }, action), h("button", { value: "no" }, "Leave it as it is"))));
    document.body.append(box);
    box.addEventListener("close", () => { box.remove(); decided(box.returnValue === "yes" ? reason.value.trim() : null); });
    box.showModal();
  });
}

/** Lets the keyboard and screen readers go on at what was opened in `main`, if they stood in the list or nowhere. */
export const arrive = (list, main) => (article) => {
  const stood = document.activeElement;
  if (stood && stood !== document.body && !list.box.contains(stood) && !main.contains(stood)) return;
  const title = article.querySelector("h1");
  title?.setAttribute("tabindex", "-1");
  title?.focus({ preventScroll: true });
};

/** Sends an answer with the key: of a task as its message, of anything else to the pause. */
async function giveWithKey(app, pause, { approved, payload, part }) {
  if (isTask(pause.id)) {
    const value = { ...payload };
    if (approved !== undefined) value.approved = approved;
    const metadata = { pause: pause.generation };
    if (part) metadata.in_reply_to = part;
    const kind = approved === undefined ? "input" : "tool_confirmation";
    await app.client.post(`/v1/tasks/${at(pause.id)}/messages`, { kind, message: { role: "user", parts: [{ type: "json", value }], metadata } });
    return doubtWords(pause, payload) ?? (approved === false ? "Denied. The agent is told." : approved ? "Approved. It goes on." : "Answered. It goes on.");
  }
  const body = { generation: pause.generation, payload };
  if (approved !== undefined) body.approved = approved;
  if (part) body.part = part;
  return outcomeWords(await app.client.post(`/v1/x-pauses/${at(pause.id)}/answer`, body));
}

const over = (pause) => ({ completed: "It went on and has completed.", failed: "It has ended with an error.", canceled: "It was canceled.", working: "It was answered and goes on.", put_aside: "Its workers died; an operator has to look." }[pause.status]);

/**
 * The view of a pause with a key. `done(id)` is told when it waits no more, `changed(pause)` when some have answered and others
 * have not, `drawn(node)` when it is there; `above(pause)` gives what stands above it.
 */
export function pauseView(app, id, { done, next, drawn, above, changed } = {}) {
  const node = h("article", { class: "pause" }, waiting("Asking the server what it waits for…"));
  let shown = null; let left = false; let mine = false; let unfollow = null; let isFirst = true; let looks = 0; let isMissed = false;
  const load = async () => {
    try {
      const pause = await app.client.get(`/v1/x-pauses/${at(id)}`);
      if (left) return;
      draw(pause);
      if (isTask(id) && pause.session_id && pause.status === "asleep") unfollow ??= await follow(app, pause.session_id);
      if (left) unfollow?.();
    } catch (error) {
      if (!left) put(node, trouble(error, load));
    }
  };
  const draw = (pause) => {
    shown = pause;
    mine = false;
    const facts = h("p", { class: "facts" }, mark(pause.status), " ", h("a", { href: `/console/run/${at(pause.id)}` }, brief(pause.agent ?? pause.graph, 60)), h("span", { class: "quiet" }, pause.kind && [" · ", told(pause.kind, { limit: 40 })], " · since ", time(pause.since)));
    const asleep = pause.status === "asleep";
    const stale = h("div", { class: "stale" });
    let rest = null;
    const form = asleep ? answerForm(pause, {
      me: app.me,
      give: async (answer) => {
        mine = true;
        try {
          const words = await giveWithKey(app, pause, answer);
          rest = pause.parts.length > 0 ? await stillAsked(pause, answer.part) : null;
          return rest ? `Taken. It still waits for ${rest.missing.join(", ")}.` : words;
        } catch (error) { mine = false; throw error; }
      },
      after: (answered) => { if (answered) afterwards(pause, rest); else load(); },
    }) : null;
    Object.assign(node, { stale, form, parts: parts(pause) });
    put(node, above?.(pause), facts, question(pause), node.parts, stale,
      asleep ? [pause.asks_person ? null : h("p", { class: "hint" }, pause.event ? "It waits for an event, not for a person. An answer from here takes the event's place." : "It waits for a machine or for a time. An answer from here takes its place."), ladder(pause), form, h("div", { class: "after" })]
        : h("p", { class: "outcome" }, over(pause), pause.failure && told(pause.failure, { limit: 400, tag: "span" })),
      h("section", { class: "more" }, folded("Where it stands", () => standing(app, pause)), folded("Details", () => details(pause)),
        asleep && h("p", {}, h("button", { type: "button", class: "quiet", onclick: () => cancel(pause) }, "Cancel this run…"))));
    if (isFirst) { isFirst = false; drawn?.(node); }
  };
  /** The pause as it is after the answer for `part`, where it goes on to wait for others; else null. */
  const stillAsked = async (pause, part) => {
    const now = await app.client.get(`/v1/x-pauses/${at(pause.id)}`).catch(() => null);
    return now?.status === "asleep" && now.generation === pause.generation && now.missing.length > 0 && !now.missing.includes(part) ? now : null;
  };
  const afterwards = (pause, rest) => {
    if (rest) changed?.(rest); else done?.(pause.id);
    const after = node.querySelector(".after");
    const following = next?.(); const run = `/console/run/${at(pause.id)}`;
    const again = async () => { await load(); arrived(); };
    put(after, rest && h("button", { type: "button", class: following ? "" : "primary", onclick: again }, `Answer for ${rest.missing.length === 1 ? rest.missing[0] : "another one"}`), " ",
      following ? h("a", { class: "button primary", href: following.href, "data-key": "n" }, `Next: ${following.left} to go`)
        // Where the run is what is looked at already, it is shown as it is by now.
        : !rest && (location.pathname === run ? h("button", { type: "button", onclick: again }, "Watch it go on") : h("a", { class: "button", href: run }, "Watch it go on")));
    lead(node, after.querySelector("a,button"));
  };
  /** Lets who has pressed a button that is gone go on at the title. */
  const arrived = () => { const title = node.querySelector("h1"); title?.setAttribute("tabindex", "-1"); lead(node, title); };
  const cancel = async (pause) => {
    const reason = await confirmed("Cancel this run?", "It ends for good. What it has done so far stays done.", "Cancel the run");
    if (reason === null) return;
    try {
      if (isTask(pause.id)) await app.client.post(`/v1/tasks/${at(pause.id)}/cancel`, { reason: reason || null });
      else await app.client.post(`/v1/x-pauses/${at(pause.id)}/cancel`, { generation: pause.generation, reason: reason || null });
      say("Canceled.");
      done?.(pause.id);
      await load();
      arrived();
    } catch (error) { say(`${error.title}. ${error.message}`, true); }
  };
  /** Somebody else may have been faster: then no answer goes out from here. */
  const look = async () => {
    if (left || mine || !shown || shown.status !== "asleep" || document.hidden) return;
    looks += 1;
    const now = await app.client.get(`/v1/x-pauses/${at(id)}`).catch(() => null);
    looks -= 1;
    isMissed = now === null;
    if (left || mine || !now || (now.generation === shown.generation && now.status === "asleep" && `${now.missing}` === `${shown.missing}`)) return;
    // What stands there already stays: somebody may be about to press it, and for nobody else than before.
    if (now.generation === shown.generation && now.status === "asleep" && node.form?.still(now.missing)) {
      const there = parts(now);
      node.parts?.replaceWith(there);
      Object.assign(node, { parts: there });
      shown = now;
      changed?.(now);
      return;
    }
    const news = `${now.generation} ${now.status} ${now.missing}`;
    if (node.stale.news === news) return;
    node.stale.news = news;
    for (const button of node.querySelectorAll("form.answer button")) button.disabled = true;
    put(node.stale, h("div", { class: "trouble", role: "alert" }, h("p", {}, h("strong", {}, "This was answered elsewhere. "), now.status !== "asleep" ? over(now) : now.generation === shown.generation ? "It still waits for others." : "It waits for something else by now."), h("button", { type: "button", onclick: () => { draw(now); arrived(); } }, "Show what it is now")));
    if (now.status !== "asleep") done?.(id);
  };
  const stop = app.live.on((event) => { if (event.task_id === id || event.event === "x-resumed") look(); });
  const timer = setInterval(() => { if (looks === 0 && (isMissed || !isTask(id) || app.live.state !== "live")) look(); }, 6000);
  load();
  return { node, leave: () => { left = true; stop(); unfollow?.(); clearInterval(timer); } };
}

/** Follows the session `id` from its newest event on; gives back how to stop. */
async function follow(app, id) {
  const session = await app.client.get(`/v1/sessions/${at(id)}`).catch(() => null);
  return session ? app.follow(id, session.last_event_id) : () => {};
}

/** The graph and where the run stands in it. */
export function standing(app, pause) {
  const box = h("div", { class: "standing" }, waiting("Fetching the graph…"));
  app.graphs().then((graphs) => {
    const shape = graphs.find((graph) => graph.name === pause.graph);
    put(box, shape ? graphPicture(shape, { done: pause.path.map((step) => step.node), here: ["asleep", "working"].includes(pause.status) ? pause.node : "" }) : h("p", { class: "quiet" }, "The shape of this graph is not known to this server."));
  }).catch((error) => put(box, trouble(error)));
  return box;
}

const details = (pause) => tree({ id: pause.id, pause: pause.generation, graph: pause.graph, node: pause.node, session: pause.session_id ?? "none", signal: pause.signal_id, "accepts": pause.accepts ?? "any field", ...(pause.event ? { event: pause.event } : {}) });

/** What the holder of a link sees of an invocation, in the form of a pause. */
function ofLink(found, id, part) {
  const metadata = found.waiting_for?.metadata ?? {};
  const { accepts = null, answers = null, deadlines, event, timeout, wake_after, wake_at, wake_payload, ...request } = metadata;
  const asked = [...(found.answered ?? []).map((one) => [one, true]), ...(found.missing ?? []).map((one) => [one, false])];
  const steps = [found.wake?.due, ...(found.wake?.later ?? [])].filter(Boolean).map(({ at: when, action }) => {
    if (action === "fail") return { at: when, action: "fail" };
    if (action?.announce) return { at: when, action: action.announce.do, to: action.announce.to };
    return { at: when, action: "resume", sets: action?.resume };
  });
  return { id, generation: found.generation, request, accepts: accepts ?? metadata.expects?.accepts ?? null, answers, parts: asked.map(([name, there]) => ({ part: name, answered_at: there ? new Date(0).toISOString() : null })).filter((one) => !part || one.part === part), ladder: steps, left_out: [], needed: null };
}

/** The page that a link of a request leads to. */
export function linkView(id) {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token"); const part = given.get("part");
  const node = h("main", { class: "center wide" }, waiting("Asking what it waits for…"));
  const path = (from) => `/${from}/${encodeURIComponent(id)}${part ? `?part=${encodeURIComponent(part)}` : ""}`;
  const load = async () => {
    if (!token) {
      put(node, h("div", { class: "card" }, h("h1", {}, "This link is not whole"), h("p", {}, "A link to a request ends with a long token. Copy all of it from the message that you were sent; some programs cut it at the end of a line.")));
      return;
    }
    try {
      const found = await send("GET", path("invocations"), { key: token });
      const pause = ofLink(found, id, part);
      const name = pause.answers?.by && h("input", { id: "name", type: "text", maxlength: "120", autocomplete: "name", value: part ?? "" });
      const form = answerForm(pause, {
        part,
        give: async ({ approved, payload }) => {
          const sets = approved === undefined ? {} : approved ? pause.answers.approved : pause.answers.denied;
          const body = { ...payload, ...sets };
          if (name?.value.trim()) body[pause.answers.by] = name.value.trim();
          const answered = await send("POST", path("callback"), { key: token, body });
          if (answered.repeated) return "The same answer was there already: it counts once. You may close this page.";
          if ((answered.missing ?? []).length > 0 && answered.accepted !== undefined) return "Taken, thank you. Others have still to answer. You may close this page.";
          const words = doubtWords(pause, payload);
          if (words) return `${words} You may close this page.`;
          return approved === false ? "Denied. You may close this page." : approved ? "Approved. You may close this page." : "Sent. You may close this page.";
        },
      });
      put(node, h("article", { class: "card pause" }, h("p", { class: "facts" }, h("img", { src: "/console/icon.svg", alt: "", width: 20, height: 20 }), " You are asked for an answer", part && [" as ", told(part, { limit: 80 })]), question(pause), ladder(pause),
        name && [h("label", { class: "field", for: "name" }, "Your name ", h("span", { class: "quiet" }, "(kept with the answer)")), name], form,
        h("p", { class: "quiet small" }, "This link is for this one request. Whoever has it can answer: do not pass it on. Reference ", h("code", {}, short(id)), ".")));
    } catch (error) {
      const words = { 404: ["This link leads to nothing", "It is not whole, or it was made for another request. Copy all of it from the message that you were sent."], 410: ["This request is over", "It was answered, or its time has passed, or the link has expired. Nothing is left to do here."] }[error.status];
      put(node, h("div", { class: "card" }, words ? [h("h1", {}, words[0]), h("p", {}, words[1]), error.status === 410 && h("p", { class: "quiet" }, told(error.message, { limit: 300 }))] : [h("h1", {}, "A request"), trouble(error, load)]));
    }
  };
  load();
  return node;
}
