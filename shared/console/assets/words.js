// Times, sizes and statuses in words.

import { h } from "./dom.js";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A length of time in the two largest units: `2 d 4 h`. */
export function lasting(milliseconds) {
  let rest = Math.max(0, Math.round(milliseconds / 1000));
  if (milliseconds > 0 && rest === 0) return `${Math.max(1, Math.round(milliseconds))} ms`;
  const parts = [];
  for (const [name, seconds] of UNITS) {
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count > 0) parts.push(`${count} ${name}`);
    if (parts.length === 2 || (parts.length === 1 && count === 0)) break;
  }
  return parts.join(" ") || "0 s";
}

export const ago = (instant) => {
  const past = Date.now() - Date.parse(instant);
  return past < 45000 ? "just now" : `${lasting(past).split(" ").slice(0, 2).join(" ")} ago`;
};

export const ahead = (instant) => {
  const left = Date.parse(instant) - Date.now();
  if (left < 0) return `${lasting(-left)} overdue`;
  return `in ${lasting(left)}`;
};

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
/** What the browser writes in a script from right to left has marks of direction within, which are shown as what they are. */
const unmarked = (text) => text.replace(/[\u061c\u200e\u200f]/g, "");
export const stamp = (instant) => unmarked(FULL.format(new Date(instant)));
/** The time of a day. */
export const clock = (instant) => unmarked(new Date(instant).toLocaleTimeString());

/** Of what happens at its time: nothing is overdue. */
const step = (instant) => (Date.parse(instant) < Date.now() ? ago(instant) : ahead(instant));
const WAYS = { ago, ahead, stamp, step };

/** A time as people say it, exact on hover; it stays right. */
export function time(instant, way = "ago") {
  if (!instant || Number.isNaN(Date.parse(instant))) return h("span", {}, "–");
  return h("time", { datetime: instant, title: stamp(instant), "data-way": way }, WAYS[way](instant));
}

setInterval(() => {
  for (const one of document.querySelectorAll("time[data-way]:not([data-way=stamp])")) {
    const words = WAYS[one.dataset.way](one.dateTime);
    if (one.textContent !== words) one.textContent = words;
  }
}, 10000);

export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} KB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

export const count = (number) => unmarked(new Intl.NumberFormat().format(number));

export const dollars = (amount) => {
  const digits = amount === 0 || amount >= 1 ? 2 : amount >= 0.01 ? 4 : 6;
  return `$${amount.toFixed(digits)}`;
};

const STATUS = {
  SUBMITTED: ["Queued", "work"], WORKING: ["Working", "work"], INPUT_REQUIRED: ["Asks for input", "sleep"],
  AUTH_REQUIRED: ["Asks for approval", "sleep"], COMPLETED: ["Completed", "good"], FAILED: ["Failed", "bad"],
  CANCELED: ["Canceled", "off"], asleep: ["Asleep", "sleep"], working: ["Working", "work"],
  completed: ["Completed", "good"], failed: ["Failed", "bad"], put_aside: ["Put aside", "bad"],
  canceled: ["Canceled", "off"], unreadable: ["Unreadable", "bad"], ACTIVE: ["Working", "work"], IDLE: ["Idle", "off"],
  PAUSED: ["Asleep", "sleep"], CLOSED: ["Closed", "off"],
};

export const statusWord = (status) => (STATUS[status] ?? [status])[0];

/** A status as a mark. */
export const mark = (status) => {
  const [word, look] = STATUS[status] ?? [String(status), "off"];
  return h("span", { class: `mark ${look}` }, word);
};

/** An id, short, whole on hover. */
export const short = (id) => (id.length > 18 ? `${id.slice(0, 9)}…${id.slice(-6)}` : id);

/** The persona of a session: its own, or the one of all its runs. */
export const personaOf = (session, tasks) => {
  const worked = new Set(tasks.map((task) => task.persona_id).filter(Boolean));
  return session.persona_id ?? (worked.size === 1 ? [...worked][0] : null);
};

/** The name of a persona, without its kind. */
export const named = (persona) => (persona ?? "").replace(/^persona_/, "") || "an agent";
