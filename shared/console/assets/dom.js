// Elements from data. Text is only ever text: it is cleaned, and never becomes markup.

import { isPlain } from "./json.js";

// Controls, escapes, marks of direction, and characters without a shape: fillers, and the tags in which text can be hidden.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;
/** Marks upon one letter; more of them than this cover the lines above and below. */
const PILED = /(\p{M}{4})\p{M}+/gu;

/** `text` with what could hide, cover or turn round other text made visible. */
export function clean(text) {
  return String(text).replace(/\r\n/g, "\n").replace(PILED, "$1\u27e6\u2026\u27e7").replace(HIDDEN, (mark) => {
    const code = mark.codePointAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e6U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e7`;
  });
}

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else if (name === "value" && "value" in element) element.value = value;
    else if (name === "href" && !/^(\/(?!\/)|#)/.test(value)) continue;
    else element.setAttribute(name, value === true ? "" : clean(value));
  }
  append(element, children);
  return element;
}

function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
}

/** An element of HTML. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
/** An element of SVG. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Puts `children` in the place of everything in `parent`. */
export function put(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/**
 * Shows `items` in `parent`. What was there under the same key stays as it is: opened, selected, with the focus. `make` gives
 * the element of what is new.
 */
export function keep(parent, items, key, make) {
  const before = parent.kept ?? new Map();
  const now = new Map(items.map((item) => [key(item), item]));
  parent.kept = new Map([...now].map(([name, item]) => [name, before.get(name) ?? make(item)]));
  const elements = new Set(parent.kept.values());
  for (const child of [...parent.childNodes]) if (!elements.has(child)) child.remove();
  let next = parent.firstChild;
  for (const element of elements) {
    if (element === next) next = next.nextSibling;
    else parent.insertBefore(element, next);
  }
}

/** Makes the children of `parent` from the one at `from` on what `now` are, and leaves alone what is the same. */
export function become(parent, now, from = 0) {
  const before = [...parent.childNodes].slice(from);
  now.forEach((node, at) => {
    const old = before[at];
    if (!old) parent.append(node);
    else if (old.cloneNode().isEqualNode(node.cloneNode())) become(old, [...node.childNodes]);
    else if (old.data && node.data?.startsWith(old.data)) old.appendData(node.data.slice(old.length));
    else old.replaceWith(node);
  });
  for (const old of before.slice(now.length)) old.remove();
}

/** Gives what has `work` done before the next frame: as often as it is asked for, but in a small part of the time. */
export function calmly(work) {
  let rest = 0; let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    setTimeout(() => requestAnimationFrame(() => {
      isAsked = false;
      const begin = performance.now();
      work();
      rest = 8 * (performance.now() - begin);
    }), rest);
  };
}

const FOCUSED = "a,button,select";
/** What tells one thing that can have the focus from the others beside it. */
const called = (one) => one.getAttribute("href") ?? (one.localName === "select" ? one.labels[0]?.firstChild : one).textContent;

/** Draws `parent` again only if `what` it shows has changed. What had the focus keeps it. */
export function redraw(parent, what, make) {
  if (parent.drawn === what) return;
  parent.drawn = what;
  const held = parent.contains(document.activeElement) && document.activeElement.matches(FOCUSED) ? called(document.activeElement) : null;
  put(parent, make());
  if (held !== null) [...parent.querySelectorAll(FOCUSED)].find((one) => called(one) === held)?.focus({ preventScroll: true });
}

/** Gives `one` the focus, unless somebody has gone away from `place` meanwhile. */
export function lead(place, one) {
  const stood = document.activeElement;
  if (!stood || stood.contains(place) || place.contains(stood)) one?.focus();
}

/** Gives the focus to `one`, to which no key leads: whoever asked for more goes on there. */
export function goOn(one) {
  one.tabIndex = -1;
  one.focus({ preventScroll: true });
}

/** How to see more of a text of which `shown` characters are there. */
export const howMuch = (shown, all) => (all < 10000 ? `Show more (${shown} of ${all} characters)` : `Show more (${(shown / 1000).toFixed(0)} of ${(all / 1000).toFixed(0)} thousand characters)`);

/** Text of somebody else: set apart, in its own direction, shortened with a way to the rest. */
export function told(text, { limit = 1500, tag = "span", name = "" } = {}) {
  const whole = String(text);
  const isLong = whole.length > limit;
  // No character is cut in two.
  const end = (at) => (/[\ud800-\udbff]/.test(whole.charAt(at - 1)) ? at + 1 : at);
  let shown = end(limit);
  const box = h(tag, { class: `told ${name}`, dir: "auto" }, isLong ? whole.slice(0, shown) : whole);
  if (!isLong) return box;
  const more = h("button", { class: "quiet small", type: "button", onclick: () => {
    const next = whole.slice(shown, end(shown + 65536));
    box.append(document.createTextNode(clean(next)));
    shown += next.length;
    label();
    if (!more.isConnected) goOn(box);
  } });
  const label = () => {
    if (shown >= whole.length) more.remove(); else more.textContent = howMuch(shown, whole.length);
  };
  label();
  return h("div", { class: "longtext" }, box, more);
}

/** The beginning of a text. */
export const beginning = (text, limit) => {
  const whole = [...String(text).slice(0, 2 * limit)];
  return whole.length > limit ? `${whole.slice(0, limit - 1).join("")}…` : whole.join("");
};

/** The beginning of a text of somebody else: where no button can be, in links and titles. */
export const brief = (text, limit, { tag = "span" } = {}) => h(tag, { class: "told", dir: "auto" }, beginning(text, limit));

const FEW = 60;

/** JSON for reading: names and values, nested ones folded from the third level on. */
export function tree(value, depth = 0) {
  if (value === null) return h("span", { class: "literal" }, "null");
  if (typeof value === "string") return told(value, { tag: value.includes("\n") ? "pre" : "span", limit: 1200 });
  if (isPlain(value)) return h("span", { class: "literal" }, String(value));
  const isList = Array.isArray(value);
  const entries = isList ? value.map((one, index) => [String(index + 1), one]) : Object.entries(value);
  if (entries.length === 0) return h("span", { class: "literal" }, isList ? "empty list" : "nothing");
  if (depth > 40) return h("span", { class: "literal" }, "nested too deeply to be shown");
  if (depth >= 2) return folded(`${entries.length} ${isList ? "elements" : "fields"}`, () => rows(entries, depth));
  return rows(entries, depth);
}

function rows(entries, depth) {
  const list = h("dl", { class: "tree" });
  const add = (from) => {
    for (const [name, one] of entries.slice(from, from + FEW)) {
      list.append(h("div", {}, h("dt", {}, told(name, { limit: 120 })), h("dd", {}, tree(one, depth + 1))));
    }
    const rest = entries.length - from - FEW;
    if (rest <= 0) return;
    const more = h("button", { class: "quiet small", type: "button", onclick: () => { row.remove(); add(from + FEW); goOn(list.children[from + FEW]); } }, `${rest} more`);
    const row = h("div", {}, h("dt", {}, "…"), h("dd", {}, more));
    list.append(row);
  };
  add(0);
  return list;
}

/** Something that is made when it is opened. */
export function folded(title, make, attributes = {}) {
  const box = h("details", attributes, h("summary", {}, title));
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) append(box, [make()]); });
  return box;
}

/** A word about something that is under way: nothing at first, then what it is waited for. */
export function waiting(words) {
  const line = h("p", { class: "waiting", role: "status" });
  setTimeout(() => { line.textContent = words; }, 300);
  return line;
}

/** What there is to see where there is nothing to see. */
export const empty = (title, ...rest) => h("section", { class: "empty" }, h("h2", {}, title), ...rest);

/** What went wrong, and what to do. */
export function trouble(error, retry) {
  return h("div", { class: "trouble", role: "alert" },
    h("p", {}, h("strong", {}, error.title ?? "That did not work")),
    told(error.message ?? String(error), { tag: "p", limit: 600 }),
    error.requestId && h("p", { class: "quiet small" }, "Request ", h("code", {}, error.requestId)),
    retry && h("button", { type: "button", onclick: retry, "data-away": error.status === 0 }, "Try again"));
}

/** Lines to paste, with a button that copies what is seen of them: nothing that is hidden comes with it. */
export function command(text) {
  const lines = h("pre", { tabindex: "0" }, text);
  const copy = h("button", { class: "quiet small", type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(lines.textContent); copy.textContent = "Copied"; } catch { copy.textContent = "Select and copy it"; }
  } }, "Copy");
  return h("div", { class: "command" }, lines, copy);
}

// It is there before anything is said: of what comes with its words within screen readers say nothing.
const toast = document.body.appendChild(h("div", { class: "toast", role: "status", "aria-live": "polite" }));
/** Says something in a corner, to everybody, for a while. */
export function say(text, isBad = false) {
  toast.className = isBad ? "toast bad shown" : "toast shown";
  put(toast, text);
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { toast.className = "toast"; }, isBad ? 8000 : 4000);
}
