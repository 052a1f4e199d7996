// The way in: a link that signs in once, or a key.

import { h, put, trouble } from "./dom.js";
import { Client, keepKey, send } from "./api.js";
import { begin, forget, issuers } from "./oidc.js";

/** The key for the code of a printed link, once. */
export async function exchange(code) {
  const { api_key: key } = await send("POST", "/_local/sign-in", { body: { code } });
  return key;
}

/** The key that was pasted, without what stood around it: quotation marks, the name of a header, spaces. */
const bare = (text) => text.trim().replace(/^authorization:\s*/i, "").replace(/^bearer\s+/i, "").replace(/^["'`\u2018\u201c\u00ab]+|["'`\u2019\u201d\u00bb]+$/g, "").trim();

/** The page on which a key is given. `enter(key)` goes on. */
export function signIn(enter, reason) {
  const notice = h("div", {});
  if (reason) notice.append(trouble(reason));
  const input = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, placeholder: "dm_…" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const places = h("div", { class: "issuers" });
  issuers().then((found) => {
    if (found.length === 0) return;
    put(places, found.map((issuer) => h("button", { type: "button", class: "primary", onclick: async (event) => {
      event.target.disabled = true;
      put(notice, h("p", { class: "waiting" }, `Going to “${issuer.name}”…`));
      try { await begin(issuer); } catch (error) { put(notice, trouble(error)); event.target.disabled = false; event.target.focus(); }
    } }, `Sign in with ${issuer.name}`)), h("p", { class: "quiet small" }, "or with a key"));
    button.className = "";
  });
  const form = h("form", { class: "signin", onsubmit: async (event) => {
    event.preventDefault();
    const key = bare(input.value);
    // No header of a request can hold anything else.
    if (!/^[\x21-\x7e]+$/.test(key)) { put(notice, trouble({ title: "This is no key", message: "A key has no spaces, and no other letters than those of English. Copy it once more, alone and whole." })); input.focus(); return; }
    button.disabled = true;
    put(notice, h("p", { class: "waiting" }, "Looking at the key…"));
    try {
      await new Client(key, () => {}).get("/v1/sessions?limit=1").catch((error) => { if (error.status !== 403) throw error; });
      keepKey(key);
      forget();
      enter(key);
    } catch (error) {
      put(notice, trouble(error));
      button.disabled = false;
      input.focus();
    }
  } },
  h("img", { src: "/console/icon.svg", alt: "", width: 44, height: 44 }),
  h("h1", {}, "Dormouse"),
  h("p", { class: "quiet" }, "See what sleeps, answer it, watch it run."),
  notice, places,
  h("label", { class: "field", for: "key" }, "API key"), input,
  h("p", { class: "quiet small" }, "It stays in this tab and is gone when the tab closes."), button,
  h("details", {}, h("summary", {}, "Where do I get a key?"),
    h("p", {}, "On your machine, ", h("code", {}, "dormouse dev"), " prints a link that signs in once, and a key."),
    h("p", {}, "On AWS, whoever operates the deployment makes one: ", h("code", {}, "dormouse keys create --help"), "."),
    h("p", {}, "With the link of a request for approval you need none: open that link.")));
  return { page: h("main", { class: "center" }, form), focus: () => input.focus() };
}
