// Everything that sleeps: why, since when, until when; what the doctor finds, and its repair.

import { beginning, brief, empty, h, put, redraw, say, told, trouble } from "./dom.js";
import { ticked } from "./answer.js";
import { at } from "./api.js";
import { lesson } from "./inbox.js";
import { LongList } from "./list.js";
import { arrive, pauseView } from "./pause.js";
import { count, mark, time } from "./words.js";

const why = (one) => one.asks_person ? (one.kind === "approval" ? "a person's approval" : "a person") : { job: "a job", event: "an event", reminder: "a time", rest: "the model", timer: "a time" }[one.kind] ?? one.kind ?? "a signal";

/** True where time had something to do, be it a reminder, and has not done it. */
const isLate = (one) => Boolean(one.due_at) && Date.parse(one.due_at) < Date.now();

export function asleepView(app, id) {
  const pauses = app.everything();
  const counted = h("p", { class: "counted", role: "status" });
  const shown = { text: "", trouble: false };
  let open = id; let view = null;
  const list = new LongList({
    name: "Everything that sleeps", height: () => 60, key: (one) => one.id,
    draw: (one) => h("a", { href: `/console/asleep/${at(one.id)}`, class: one.id === open ? "entry open" : "entry", "aria-current": one.id === open ? "true" : null },
      h("span", { class: "line" }, brief(one.graph || "unreadable", 60), h("span", { class: "quiet" }, " waits for ", why(one))),
      h("span", { class: "under" }, one.status !== "asleep" && [mark(one.status), " "], "since ", time(one.since), one.question ? [" · ", ticked(beginning(one.question, 120))] : h("span", { class: "id" }, " · ", one.id.slice(0, 60))),
      h("span", { class: isLate(one) ? "due soon" : "due" }, isLate(one) ? time(one.due_at, "ahead") : one.ends_at ? time(one.ends_at, "ahead") : h("span", { class: "quiet" }, "no deadline"))),
  });
  const search = h("input", { type: "search", placeholder: "Find   /", "aria-label": "Find what sleeps", oninput: (event) => { shown.text = event.target.value.toLowerCase(); draw(); } });
  const late = h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { shown.trouble = event.target.checked; draw(); } }), " overdue or unreadable only");
  const side = h("section", { class: "side", "aria-label": "Everything that sleeps" }, h("h1", { class: "sr" }, "Asleep"), h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, search, late), counted, list.box);
  const main = h("section", { class: "detail", "aria-label": "Why it sleeps" });
  const node = h("main", { class: "split" }, side, main);

  const draw = () => {
    const all = [...pauses.byId.values()];
    const found = all.filter((one) => (!shown.text || `${one.graph} ${one.question} ${one.id} ${one.kind} ${one.node}`.toLowerCase().includes(shown.text)) && (!shown.trouble || one.status === "unreadable" || isLate(one))).sort((a, b) => a.since.localeCompare(b.since));
    list.set(found);
    const words = pauses.state === "failed" && all.length === 0 ? "" : pauses.state === "loading" ? `${count(all.length)} so far…` : `${count(found.length)}${found.length === all.length ? "" : ` of ${count(all.length)}`} asleep, oldest first`;
    redraw(counted, words, () => words);
    if (open) return;
    if (pauses.state === "failed") put(main, trouble(pauses.error, () => pauses.load()));
    else if (all.length > 0) put(main, h("div", { class: "nothing" }, h("p", {}, "Choose one to see why it sleeps, and whether everything that would wake it is in place.")));
    else if (pauses.state === "whole") put(main, empty("Nothing sleeps", h("p", {}, "Whatever waits for a person, a job, an event or a time shows here, whoever began it. To see one:"), lesson(app, "reminder", { text: "stretch your legs", after: "PT1H" }), h("p", { class: "quiet" }, "With a key that lacks the scope ", h("code", {}, "operations:read"), " only tasks of your own are shown.")));
  };
  const show = (which) => {
    const left = open; const stood = main.contains(document.activeElement) || document.activeElement === document.body;
    view?.leave();
    view = null;
    open = list.open = which;
    node.classList.toggle("has-detail", Boolean(which));
    if (which) {
      view = pauseView(app, which, { above: (pause) => doctor(app, pause), drawn: arrive(list, main), done: (gone) => setTimeout(() => pauses.drop(gone), 0), changed: (one) => setTimeout(() => pauses.put(one.id, one), 0) });
      put(main, h("a", { class: "back", href: "/console/asleep" }, "‹ Everything that sleeps"), view.node);
      main.scrollTop = 0;
    }
    draw();
    if (!which && left && stood) list.reach(left);
  };
  pauses.onChange(draw);
  pauses.load();
  show(id);
  return {
    title: "Asleep", node, list,
    update: show,
    keys: { j: () => list.step(1), k: () => list.step(-1), "/": () => search.focus(), Escape: () => { if (open) app.go("/console/asleep"); } },
    leave: () => { view?.leave(); pauses.listeners.delete(draw); list.watch.disconnect(); },
  };
}

/** What the doctor says of `pause`, with its repair. */
function doctor(app, { id, ...pause }) {
  const box = h("section", { class: "doctor", "aria-label": "Findings" });
  const draw = ({ generation, remarks }, done = []) => {
    const button = remarks.some((remark) => remark.remedy) && h("button", { type: "button", class: "primary", onclick: async () => {
      button.disabled = true;
      try {
        const repaired = await app.client.post(`/v1/x-pauses/${at(id)}/repair`, { generation });
        say("Repaired, as far as it could be.");
        draw(repaired.pause, repaired.done);
      } catch (error) { say(`${error.title}. ${error.message}`, true); button.disabled = false; }
    } }, "Repair");
    put(box, remarks.length > 0 && h("ul", { class: "remarks" }, remarks.map((remark) => h("li", { class: remark.trouble ? "bad" : "" }, h("span", { class: `mark ${remark.trouble ? "bad" : "good"}` }, remark.trouble ? "Trouble" : "Fine"), " ", ticked(remark.sentence.charAt(0).toUpperCase() + remark.sentence.slice(1)), remark.remedy && h("p", { class: "quiet" }, "A repair would ", remark.remedy, ".")))), done.map((line) => h("p", { class: "outcome good" }, told(line, { limit: 400 }))), button);
  };
  draw(pause);
  return box;
}
