// Signing in at an issuer: an authorization code with PKCE (RFC 7636), and the next token before the last one ends.

import { Refusal, send } from "./api.js";

const BEGUN = "dormouse-sign-in";
const RENEWAL = "dormouse-renewal";
/** Milliseconds of the longest timer of a browser: a longer one ends at once. */
const LONGEST = 2 ** 31 - 1;
const store = {
  get(name) { try { return JSON.parse(sessionStorage.getItem(name)); } catch { return null; } },
  set(name, value) { try { value ? sessionStorage.setItem(name, JSON.stringify(value)) : sessionStorage.removeItem(name); } catch { /* not kept */ } },
};

const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
const chance = () => base64(crypto.getRandomValues(new Uint8Array(32)));
const redirect = () => `${location.origin}/console/signed-in`;
const stays = (title, message) => Object.assign(new Refusal(0, "", message), { title });
const away = (name) => stays("The issuer does not answer", `The issuer “${name}” does not answer, or does not let this page ask. It has to allow requests of ${location.origin}.`);

/** The issuers at which people sign in here. */
export const issuers = () => send("GET", "/console/sign-in.json").then((found) => found?.issuers ?? []).catch(() => []);

async function asked(issuer, address, body) {
  let response;
  // Other tabs wait for what this one is told.
  const signal = AbortSignal.timeout?.(60000);
  try {
    response = await fetch(address, { method: body ? "POST" : "GET", body, signal, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" });
  } catch { throw away(issuer.name); }
  let value = null;
  try { value = await response.json(); } catch { /* told below */ }
  if (response.ok && value) return value;
  throw new Refusal(response.status === 400 ? 401 : response.status, "", `The issuer “${issuer.name}” refused: ${value?.error_description ?? value?.error ?? response.status}.`);
}

async function endpoints(issuer) {
  if (issuer.authorization_endpoint && issuer.token_endpoint) return issuer;
  const found = await asked(issuer, `${issuer.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (found.issuer !== issuer.issuer) throw stays("This issuer is not the one that is trusted", `“${issuer.name}” calls itself something else.`);
  return { ...issuer, authorization_endpoint: issuer.authorization_endpoint ?? found.authorization_endpoint, token_endpoint: issuer.token_endpoint ?? found.token_endpoint };
}

/** Goes to the issuer; the browser comes back to /console/signed-in. */
export async function begin(issuer) {
  if (!crypto.subtle) throw stays("This cannot be done here", "Browsers sign in at an issuer only from an address with https.");
  const known = await endpoints(issuer);
  const verifier = chance();
  const state = chance();
  const to = new URL(known.authorization_endpoint);
  if (!/^https?:$/.test(to.protocol)) throw away(issuer.name);
  const challenge = base64(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
  const parameters = { ...issuer.parameters, response_type: "code", client_id: issuer.client_id, redirect_uri: redirect(), scope: issuer.scope, state, code_challenge: challenge, code_challenge_method: "S256" };
  for (const [name, value] of Object.entries(parameters)) to.searchParams.set(name, value);
  const back = location.pathname === "/console/signed-in" ? "/console/inbox" : location.pathname + location.search;
  store.set(BEGUN, { state, verifier, back, issuer: { name: issuer.name, issuer: issuer.issuer, client_id: issuer.client_id, token_endpoint: known.token_endpoint } });
  location.assign(to.href);
}

function kept(issuer, answer) {
  const token = answer.access_token;
  if (typeof token !== "string" || String(answer.token_type).toLowerCase() !== "bearer") throw new Refusal(401, "", `The issuer “${issuer.name}” gave no token.`);
  store.set(RENEWAL, answer.refresh_token ? { issuer, refresh: answer.refresh_token, at: Date.now() + 1000 * Math.max(20, (Number(answer.expires_in) || 300) - 60) } : null);
  return token;
}

/** The token for the code with which the browser came back. */
export async function finish() {
  const given = new URLSearchParams(location.search);
  const begun = store.get(BEGUN);
  store.set(BEGUN, null);
  // The code is good once; it does not stay in the history.
  history.replaceState(null, "", begun?.back ?? "/console/inbox");
  if (!begun || given.get("state") !== begun.state) throw new Refusal(410, "", "This sign-in was not begun in this tab, or is over. Sign in once more.");
  const { issuer } = begun;
  if (given.get("iss") && given.get("iss") !== issuer.issuer) throw new Refusal(401, "", "Another issuer answered than was asked.");
  if (given.get("error")) throw new Refusal(401, "", `The issuer “${issuer.name}” refused: ${given.get("error_description") ?? given.get("error")}.`);
  const body = new URLSearchParams({ grant_type: "authorization_code", code: given.get("code") ?? "", redirect_uri: redirect(), client_id: issuer.client_id, code_verifier: begun.verifier });
  return kept(issuer, await asked(issuer, issuer.token_endpoint, body));
}

/**
 * Gets the next token in time, as long as the issuer gives one, and `now`, which tells whether there is one: a computer that was
 * asleep has missed the time. `now` fails while the issuer cannot tell. `take(token)` is given each.
 *
 * A tab that was duplicated holds the same refresh token, which many issuers take once: one tab uses it, and tells the others.
 */
export function renewing(take) {
  let timer = null; let under = null; let isOver = false; let taken = 0; let hear = () => {};
  const used = new Set();
  const others = navigator.locks && globalThis.BroadcastChannel ? new BroadcastChannel(RENEWAL) : null;
  const holds = (refresh) => !isOver && store.get(RENEWAL)?.refresh === refresh;
  const next = (refresh, token) => {
    if (!holds(refresh)) used.add(refresh);
    if (token) { taken += 1; take(token); }
  };
  const tell = (refresh, token) => others?.postMessage({ refresh, token, renewal: store.get(RENEWAL) });
  if (others) others.onmessage = ({ data: { lacks, refresh, token, renewal } }) => {
    if (lacks) { if (used.has(lacks) && store.get(RENEWAL)) tell(lacks); return; }
    if (!holds(refresh)) return;
    store.set(RENEWAL, renewal);
    next(refresh, token);
    hear();
    later();
  };
  // What was told may still be on its way when the lock is there, and a tab that was not loaded then was not told.
  const asking = (refresh) => new Promise((done) => { hear = done; others.postMessage({ lacks: refresh }); setTimeout(done, 500); });
  const exchange = async (renewal) => {
    const { issuer, refresh } = renewal;
    try {
      const answer = await asked(issuer, issuer.token_endpoint, new URLSearchParams({ grant_type: "refresh_token", refresh_token: refresh, client_id: issuer.client_id }));
      // Who has signed out meanwhile stays out.
      if (isOver) return;
      const token = kept(issuer, { refresh_token: refresh, ...answer });
      next(refresh, token);
      tell(refresh, token);
    } catch (error) {
      if (!holds(refresh)) return;
      // Refused: the token lasts until its end, and then the server says so. Away, busy, or cut in its answer: tried again.
      const passes = [0, 200, 429].includes(error.status) || error.status >= 500;
      store.set(RENEWAL, passes ? { ...renewal, at: Date.now() + 15000 } : null);
      if (passes) throw error;
    }
  };
  const renew = async () => {
    const before = taken;
    while (!isOver && taken === before) {
      const renewal = store.get(RENEWAL);
      if (!renewal) return false;
      const { refresh } = renewal;
      const isLeft = () => taken === before && holds(refresh);
      if (!others) await exchange(renewal);
      else await navigator.locks.request(`${RENEWAL} ${refresh}`, async () => {
        if (isLeft()) await asking(refresh);
        if (isLeft()) await exchange(renewal);
      });
    }
    return !isOver;
  };
  const now = () => {
    if (isOver || !store.get(RENEWAL)) return Promise.resolve(false);
    return under ??= renew().finally(() => { under = null; later(); });
  };
  const later = () => {
    clearTimeout(timer);
    const renewal = store.get(RENEWAL);
    if (renewal && !isOver) timer = setTimeout(() => now().catch(() => { /* later again */ }), Math.min(LONGEST, Math.max(0, renewal.at - Date.now())));
  };
  later();
  return { now, end() { isOver = true; clearTimeout(timer); others?.close(); } };
}

/** Nothing is renewed any more. */
export const forget = () => store.set(RENEWAL, null);
