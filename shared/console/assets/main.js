// The frame: way in, navigation, keys, connection. Views are made when their address is opened.

import { h, put, s, say, trouble, waiting } from "./dom.js";
import { Client, keepKey, keptKey } from "./api.js";
import { Live } from "./stream.js";
import { exchange, signIn } from "./sign-in.js";
import { finish, forget, renewing } from "./oidc.js";
import { Pauses, inboxView } from "./inbox.js";
import { asleepView } from "./asleep.js";
import { sessionView, sessionsView } from "./sessions.js";
import { runView } from "./run.js";
import { catalogView } from "./catalog.js";
import { costsView } from "./costs.js";
import { linkView } from "./pause.js";

const root = document.getElementById("app");

const ICONS = {
  inbox: "M3 13l3-8h12l3 8v6H3zM3 13h5l1.5 3h5L16 13h5", sessions: "M4 5h16v11H9l-5 4z", asleep: "M20 14.5A8.5 8.5 0 1 1 10 4a7 7 0 0 0 10 10.5z", catalog: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z", costs: "M4 20V10M10 20V4M16 20v-7M3 20h18",
};
const PLACES = [["inbox", "Inbox", "i"], ["sessions", "Sessions", "s"], ["asleep", "Asleep", "a"], ["catalog", "Catalog", "c"], ["costs", "Costs", "o"]];

const VIEWS = { inbox: inboxView, sessions: sessionsView, session: sessionView, run: runView, asleep: asleepView, catalog: catalogView, costs: costsView };
const UNDER = { session: "sessions", run: "sessions" };

/** The view and the id that the address names. */
function place() {
  const [name = "inbox", ...rest] = location.pathname.replace(/^\/console\/?/, "").split("/").filter(Boolean);
  let id = null;
  try { id = rest.length > 0 ? decodeURIComponent(rest.join("/")) : null; } catch { /* no id */ }
  return { name, id };
}

function theme() {
  let kept = "auto";
  try { kept = localStorage.getItem("dormouse-theme") ?? "auto"; } catch { /* auto */ }
  document.documentElement.dataset.theme = kept;
  return kept;
}

function turnTheme(button) {
  const order = ["auto", "light", "dark"];
  const next = order[(order.indexOf(theme()) + 1) % order.length];
  try { localStorage.setItem("dormouse-theme", next); } catch { /* for this page only */ }
  document.documentElement.dataset.theme = next;
  button.textContent = `Theme: ${next}`;
}

/** Whoever speaks to the browser, or hits keys by chance, turns letters off as keys. */
function lettersWork() {
  try { return localStorage.getItem("dormouse-letters") !== "off"; } catch { return true; }
}

/** The console with a key. */
class App {
  constructor(key) {
    this.client = new Client(key, (error) => this.out(error));
    const { now, end } = renewing((token) => { this.client.key = token; keepKey(token); });
    this.client.renew = now;
    this.renewed = end;
    this.live = new Live(this.client);
    this.view = null;
    this.name = null;
    this.tops = new Map();
  }

  async start() {
    put(root, waiting("Meeting the server…"));
    this.person().load();
    try {
      await this.client.meet();
    } catch (error) {
      if (this.isOut) return;
      put(root, h("main", { class: "center" }, h("div", { class: "card" }, trouble(error, () => this.start()))));
      return;
    }
    if (this.isOut) return;
    this.frame();
    this.live.run();
    // What could not be had because the server was away is asked for again when it is back.
    this.live.on((event) => { if (event.event === "x-resumed") for (const again of this.content.querySelectorAll("button[data-away]")) again.click(); });
    addEventListener("popstate", this.moved = () => this.route(true));
    addEventListener("online", this.online = () => this.live.hurry());
    document.addEventListener("keydown", this.pressed = (event) => this.key(event));
    document.addEventListener("click", this.clicked = (event) => this.click(event));
    this.person().onChange(() => this.badge());
    this.badge();
    this.route();
  }

  /**
   * Follows a session closely while it is looked at: its own events come sooner than those of all. `hear` is told of them
   * and of the text that a model is writing.
   */
  follow(session, cursor, hear = () => {}) {
    const near = new Live(this.client, session, cursor);
    near.on(hear);
    near.on((event) => { if (!["x-resumed", "message.delta"].includes(event.event)) this.live.emit(event); });
    near.run();
    return () => near.end();
  }

  /** What waits for a person; kept while the console is open. */
  person() { return this.persons ??= new Pauses(this, "&asks=person"); }
  /** Everything that sleeps. */
  everything() { return this.all ??= new Pauses(this, ""); }
  /** The document of the server: what it offers. */
  offered() { return this.document ??= this.client.get("/openapi.json").catch((error) => { this.document = null; throw error; }); }
  graphs() { return this.shapes ??= this.client.get("/v1/x-graphs").then((found) => found.data).catch((error) => { this.shapes = null; throw error; }); }

  /** The way out: the key is forgotten. */
  out(error) {
    if (this.isOut) return;
    this.isOut = true;
    this.live.end();
    this.renewed();
    forget();
    this.view?.leave();
    this.persons?.end();
    this.all?.end();
    removeEventListener("popstate", this.moved);
    removeEventListener("online", this.online);
    document.removeEventListener("keydown", this.pressed);
    document.removeEventListener("click", this.clicked);
    keepKey(null);
    enterBy(error);
  }

  frame() {
    const icon = (name) => s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
    this.links = new Map(PLACES.map(([name, words, key]) => [name, h("a", { href: `/console/${name}`, "aria-keyshortcuts": `g ${key}`, title: `${words} (g ${key})` }, icon(name), h("span", {}, words), name === "inbox" && h("span", { class: "badge", hidden: true }))]));
    this.content = h("div", { id: "content", tabindex: "-1" });
    const state = h("span", { class: "state", role: "status" });
    this.live.watch((now) => {
      state.className = `state ${now}`;
      put(state, { live: "Live", connecting: "Connecting…", offline: "Offline: trying again", refused: "No live updates: the key lacks events:read", "signed-out": "Signed out" }[now]);
    });
    const themes = h("button", { type: "button", class: "quiet small", onclick: (event) => turnTheme(event.target) }, `Theme: ${theme()}`);
    put(root, h("a", { class: "skip", href: "#content", onclick: (event) => { event.preventDefault(); this.content.focus(); } }, "To the content"),
      h("header", { class: "top" }, h("a", { href: "/console/inbox", class: "brand", "aria-label": "Dormouse, to the inbox" }, h("img", { src: "/console/icon.svg", alt: "", width: 24, height: 24 }), h("span", {}, "Dormouse")), state, h("div", { class: "tools" }, themes, h("button", { type: "button", class: "quiet small", title: "Keys (?)", onclick: () => this.help() }, "Keys"), h("button", { type: "button", class: "quiet small", onclick: () => this.out() }, "Sign out"))),
      h("nav", { class: "places", "aria-label": "Views" }, [...this.links.values()]), this.content);
  }

  badge() {
    const badge = this.links.get("inbox").querySelector(".badge");
    const waits = this.person().byId.size;
    badge.hidden = waits === 0;
    put(badge, waits > 999 ? "999+" : String(waits), h("span", { class: "sr" }, " wait"));
    if (this.view) this.titled();
  }

  go(path) { history.pushState(null, "", path); this.route(); }

  /** Shows what the address names; where the browser goes back to it, as far down as it was left. */
  route(isBack = false) {
    const { name, id } = place();
    const make = VIEWS[name];
    for (const [of, link] of this.links) link.toggleAttribute("aria-current", of === (UNDER[name] ?? name));
    for (const [of, link] of this.links) if (of === (UNDER[name] ?? name)) link.setAttribute("aria-current", "page");
    if (this.name === name && this.view?.update) { this.view.update(id); this.titled(); return; }
    if (this.view?.list) this.tops.set(this.name, this.view.list.box.scrollTop);
    this.view?.leave();
    this.name = name;
    this.view = make && (id || !["session", "run"].includes(name)) ? make(this, id) : lost();
    put(this.content, this.view.node);
    this.view.list?.later();
    if (isBack && this.view.list) this.view.list.goBack(this.tops.get(name) ?? 0);
    this.titled();
    if (document.activeElement === document.body || !document.activeElement) this.content.focus({ preventScroll: true });
  }

  /** What waits stands in the title too: it is read on the tab when nobody looks at the page. */
  titled() {
    const waits = this.person().byId.size;
    const title = `${waits > 0 ? `(${waits > 999 ? "999+" : waits}) ` : ""}${this.view.title} · Dormouse`;
    if (document.title !== title) document.title = title;
  }

  click(event) {
    const link = event.target.closest?.("a[href^='/console']");
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (link.getAttribute("href") !== location.pathname + location.search) this.go(link.getAttribute("href"));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const isText = event.target.matches?.("input:not([type=checkbox]),textarea,select");
    if (isText) { if (event.key === "Escape") event.target.blur(); return; }
    const { key } = event;
    if (!lettersWork() && key !== "Escape") return;
    const afterG = this.g && Date.now() - this.g < 1500;
    this.g = key === "g" ? Date.now() : 0;
    if (afterG) {
      const found = PLACES.find(([, , of]) => of === key);
      if (found) { event.preventDefault(); this.go(`/console/${found[0]}`); return; }
    }
    if (key === "?") { this.help(); return; }
    const pressed = [...this.content.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key && !one.disabled && one.offsetParent !== null);
    // One key goes somewhere or chooses; what cannot be taken back takes Enter as well.
    if (pressed) { event.preventDefault(); if (pressed.localName === "a") pressed.click(); else pressed.focus(); return; }
    const act = this.view?.keys?.[key];
    if (act) { event.preventDefault(); act(); }
  }

  help() {
    const line = (keys, words) => h("div", {}, h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, words));
    const letters = h("input", { type: "checkbox", checked: lettersWork(), onchange: (event) => { try { localStorage.setItem("dormouse-letters", event.target.checked ? "on" : "off"); } catch { /* for now */ } } });
    const box = h("dialog", { "aria-labelledby": "keys" }, h("form", { method: "dialog" }, h("h2", { id: "keys" }, "Keys"), h("dl", { class: "keys" }, PLACES.map(([, words, key]) => line(["g", key], words)), line(["j", "k"], "down and up in a list"), line(["Enter"], "open what has the focus"), line(["/"], "find, or write to the agent"), line(["a", "Enter"], "approve"), line(["d", "Enter"], "deny"), line(["n"], "next request"), line(["Esc"], "back, or out of a field"), line(["?"], "this")), h("label", { class: "check" }, letters, " Letters are keys, without Ctrl or Alt"), h("div", { class: "actions" }, h("button", { class: "primary" }, "Close"))));
    document.body.append(box);
    box.addEventListener("close", () => box.remove());
    box.showModal();
  }
}

const lost = () => ({ title: "Not here", leave: () => {}, node: h("main", { class: "page", tabindex: "0" }, h("div", { class: "empty" }, h("h1", {}, "There is no such view"), h("p", {}, "The address may be cut off. ", h("a", { href: "/console/inbox" }, "To the inbox")))) });

function enterBy(reason) {
  document.title = "Sign in · Dormouse";
  const { page, focus } = signIn((key) => new App(key).start(), reason);
  put(root, page);
  focus();
}

async function open() {
  theme();
  const { name, id } = place();
  if (name === "answer" && id) { document.title = "A request · Dormouse"; put(root, linkView(id)); return; }
  if (name === "signed-in") {
    put(root, waiting("Signing in…"));
    try { keepKey(await finish()); } catch (error) { enterBy(error); return; }
  }
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    // The code is good once; it does not stay in the history.
    history.replaceState(null, "", location.pathname);
    try { keepKey(await exchange(code)); } catch (error) { if (!keptKey()) { enterBy(error); return; } say("That link was used already; you are still signed in."); }
  }
  const key = keptKey();
  if (key) new App(key).start(); else enterBy();
}

open();
