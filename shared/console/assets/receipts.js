// Receipts, verified here: canonical form (RFC 8785), SHA-256, Ed25519, and the hash before it in the chain.

import { send } from "./api.js";
import { isPlain } from "./json.js";

/** The canonical form: names in order of their UTF-16 units, numbers as ECMAScript writes them. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (isPlain(value)) return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

const utf8 = (text) => new TextEncoder().encode(text);
const bytes = (text) => Uint8Array.from(atob(String(text).replace(/^base64:/, "")), (one) => one.charCodeAt(0));
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** By how many milliseconds clocks may differ, and how long a key may still sign when the next one does. */
const SKEW = 300000; const GRACE = 86400000;

/** A signature as receipts write it: 64 bytes in base 64. */
const SIGNATURE = /^base64:[A-Za-z0-9+/]{85}[AQgw]==$/;

/** What the receipt `body` is worth by `keys`, at this time: `{ valid, reason }`. */
export async function verify(body, keys) {
  const not = (reason) => ({ valid: false, reason });
  const { signatures, ...rest } = body;
  const { receipt_hash: stated, ...chain } = rest.chain ?? {};
  const hash = `sha256:${hex(await crypto.subtle.digest("SHA-256", utf8(canonical({ ...rest, chain }))))}`;
  if (hash !== stated) return not("its content is not what was hashed: it was changed");
  const known = (id) => keys.find((key) => key.id === id);
  const ours = (Array.isArray(signatures) ? signatures : []).filter((one) => one?.algorithm === "ed25519");
  if (ours.length === 0) return not("it has no signature");
  const trusted = ours.filter((one) => known(one.key_id));
  if (trusted.length === 0) return not(`the key ${ours[0].key_id} is not one of this server's`);
  const named = rest.issuer?.public_key_id;
  if (named && !trusted.some((one) => one.key_id === named)) return not(`it names the key ${named}, which did not sign it`);
  for (const one of trusted) {
    const key = known(one.key_id);
    if (!SIGNATURE.test(one.signature)) return not("its signature is not written as one");
    if (key.revoked_at && Date.parse(key.revoked_at) <= Date.now()) return not(`the key ${one.key_id} was revoked`);
    const issued = Date.parse(rest.issued_at);
    if (issued > Date.now() + SKEW) return not("it says that it was issued in the future");
    if (issued < Date.parse(key.created_at) || issued > Date.parse(key.retired_at) + GRACE) return not(`the key ${one.key_id} was not in use when it was issued`);
    const read = await crypto.subtle.importKey("raw", bytes(key.public_key), { name: "Ed25519" }, false, ["verify"]);
    if (!await crypto.subtle.verify({ name: "Ed25519" }, read, bytes(one.signature), utf8(hash))) return not("its signature is not by that key");
  }
  return { valid: true };
}

/** The public keys of this server, as they are now: one that signs since this page was opened is among them, and whether one was revoked since. */
const published = async () => (await send("GET", "/v1/keys")).data;

/** What the receipt of `resource` is worth: found out here, and by the server where this browser knows no Ed25519. */
export async function judged(client, resource) {
  try {
    const { valid, reason } = await verify(resource.wire.payload, await published());
    return { valid, words: valid ? "Valid: verified in this browser. Its content is what was hashed, and a key of this server signed it." : `Not valid: ${reason}.` };
  } catch (error) {
    if (error.status !== undefined) throw error;
    const { valid, reason } = await client.post(`/v1/receipts/${encodeURIComponent(resource.id)}/verify`, {});
    return { valid, words: valid ? "Valid, says the server: this browser cannot verify signatures itself." : `Not valid, says the server: ${reason ?? "no reason given"}` };
  }
}
