// The checks, in order. Two servers: the agents that ship, and an assistant with a scripted model and a tool.

import { execFileSync } from "node:child_process";
import { assistant, cable, dormouse, dormouseWith, endAll, expense, issuer, rest, said, session, task, until } from "./world.mjs";
import { PHONE, WIDE, accessible, browser, check, equal, faults, holds, picture, shifted, sizes, summary } from "./browser.mjs";

import { HOSTILE, hostile } from "./agents.mjs";
import { keyboard } from "./keyboard.mjs";
import { markdown } from "./markdown.mjs";
import { answers } from "./answers.mjs";
import { states } from "./states.mjs";
import { tabs } from "./tabs.mjs";

const SLEEPERS = Number(process.env.SLEEPERS || 10000);

const [shipped, clerk, crowded] = await Promise.all([dormouse(), assistant(), dormouse()]);

/** Fills a server with requests for approval, beside everything else. */
const crowding = (async () => {
  let made = 0;
  const make = async () => { while (made < SLEEPERS) { made += 1; await expense(crowded, `thing ${made}`); } };
  await Promise.all(Array.from({ length: 6 }, make));
})();
crowding.catch((error) => faults.push(`the crowd: ${error.message}`));

const pauseOf = (server, id) => server.get(`/v1/x-pauses/${id}`);
const ended = (server, id, status) => until(`${id} is ${status}`, async () => (await pauseOf(server, id)).status === status);

await check("the printed link signs in once, and the key stays in the tab", async (tab) => {
  holds(shipped.first.startsWith("console: http://127.0.0.1:"), `the first line is the address: ${shipped.first}`);
  const page = await tab({ server: shipped, key: null });
  await page.goto(shipped.link);
  await page.live();
  equal(new URL(page.url()).hash, "", "the code does not stay in the address");
  const kept = await page.evaluate(() => ({ local: JSON.stringify(localStorage), session: sessionStorage.getItem("dormouse-key"), cookie: document.cookie }));
  equal(kept.session, shipped.key, "the key is in the session storage");
  holds(!kept.local.includes("dm_") && kept.cookie === "", "and nowhere else");
  const again = await tab({ server: shipped, key: null, expects: [410] });
  await again.goto(shipped.link);
  await again.sees("That is over");
  await again.sees("the link was used already");
});

await check("a key signs in, a wrong one does not, a revoked one is shown the door", async (tab) => {
  const page = await tab({ server: shipped, key: null, expects: [401] });
  await page.open("/console");
  await page.getByLabel("API key").fill("dm_0000000000000000_wrong");
  await page.button("Sign in").click();
  await page.sees("This key is not accepted");
  await page.getByLabel("API key").fill("ключ");
  await page.button("Sign in").click();
  await page.sees("This is no key");
  const made = JSON.parse(await shipped.command("keys", "create", "--actor", "grace", "--all-scopes", "--scope", "operations:read", "--scope", "operations:write", "--never-expires", "--json"));
  await page.getByLabel("API key").fill(`Authorization: Bearer \u201c${made.key}\u201d`);
  await page.button("Sign in").click();
  await page.live();
  await shipped.command("keys", "revoke", made.id);
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Sessions" }).click();
  await page.sees("This key is not accepted");
  equal(await page.evaluate(() => sessionStorage.getItem("dormouse-key")), null, "the key is forgotten");
});

await check("the issuer that is configured signs in: code and PKCE, and nothing stays in the address", async (tab) => {
  const corp = await issuer();
  const server = await dormouseWith({ DORMOUSE_ISSUERS: corp.described });
  await expense(server, "a view of one's own");
  const page = await tab({ server, key: null, also: [corp.base], expects: [400, 404] });
  await page.open("/console/asleep");
  await page.button("Sign in with corp").click();
  await page.live();
  equal(new URL(page.url()).pathname + new URL(page.url()).search, "/console/asleep", "back where it began, without the code");
  equal(corp.exchanged.length, 1, "exchanges");
  const kept = await page.evaluate(() => ({ local: JSON.stringify(localStorage), session: sessionStorage.getItem("dormouse-key"), begun: sessionStorage.getItem("dormouse-sign-in"), cookie: document.cookie }));
  holds(kept.session.split(".").length === 3 && kept.cookie === "" && !kept.local.includes("eyJ") && kept.begun === null, "the token is in this tab alone");
  await page.button("Sign out").click();
  await page.button("Sign in with corp").waitFor();
  equal(await page.evaluate(() => sessionStorage.getItem("dormouse-key") ?? sessionStorage.getItem("dormouse-renewal")), null, "nothing is left of it");
  await accessible(page, "sign-in at an issuer");
  await picture(page, "sign-in-issuer-wide-light");
  corp.refuses = true;
  await page.button("Sign in with corp").click();
  await page.sees("<b>not</b> you");
  corp.refuses = false;
  // A code that somebody else slips in: this tab began nothing.
  await page.open("/console/signed-in?code=code-9&state=made-up");
  await page.sees("This sign-in was not begun in this tab");
  equal(corp.exchanged.length, 1, "no code of others is exchanged");
});

await check("a token that ends is followed by the next, and one that lasts no more is shown the door", async (tab) => {
  const corp = await issuer();
  const server = await dormouseWith({ DORMOUSE_ISSUERS: corp.described });
  const page = await tab({ server, key: null, also: [corp.base], expects: [401, 400, 403] });
  await page.clock.install();
  await page.open("/console/inbox");
  await page.button("Sign in with corp").click();
  await page.live();
  const first = await page.evaluate(() => sessionStorage.getItem("dormouse-key"));
  await rest(1100);
  await page.clock.fastForward(3600 * 1000);
  await until("it is renewed", () => corp.exchanged.length === 2);
  await until("the next token is used", async () => (await page.evaluate(() => sessionStorage.getItem("dormouse-key"))) !== first);
  // It ended while nobody could get the next one: a computer was asleep.
  const end = () => page.evaluate(() => sessionStorage.setItem("dormouse-key", sessionStorage.getItem("dormouse-key").slice(0, -8) + "AAAAAAAA"));
  await end();
  await page.reload();
  await page.live();
  equal(corp.exchanged.length, 3, "one more token is got, however many ask for it");
  // An issuer that is away for a while signs nobody out.
  await end();
  corp.isAway = true;
  page.expects.push(503);
  await page.reload();
  await page.sees("refused: 503");
  await page.locator(".state:not(.live)").waitFor();
  corp.isAway = false;
  await page.live();
  equal(corp.exchanged.length, 4, "one more token is got");
  await end();
  corp.isOver = true;
  await page.reload();
  await page.sees("This key is not accepted");
});

await check("tabs that hold one refresh token renew it once, of an issuer that takes it once, and each stays signed in", async (tab) => {
  const corp = await issuer();
  corp.rotates = true;
  const server = await dormouseWith({ DORMOUSE_ISSUERS: corp.described });
  const one = await tab({ server, key: null, also: [corp.base] });
  // The clock is that of all pages beside it.
  await one.clock.install();
  await one.open("/console/inbox");
  await one.button("Sign in with corp").click();
  await one.live();
  const held = (page) => page.evaluate(() => ({ ...sessionStorage }));
  /** A tab with a copy of what another one held, as a browser makes it that duplicates one or opens one again. */
  const copy = async (of) => {
    const page = await tab({ server, key: null, beside: one, also: [corp.base] });
    await page.open("/console/icon.svg");
    await page.evaluate((values) => Object.assign(sessionStorage, values), of);
    await page.open("/console/inbox");
    await page.live();
    return page;
  };
  const first = await held(one);
  const two = await copy(first);
  const refresh = async (page) => JSON.parse((await held(page))["dormouse-renewal"] ?? null)?.refresh;
  const all = (pages) => until(`all hold ${corp.refresh}`, async () => (await Promise.all(pages.map(refresh))).every((found) => found === corp.refresh));
  for (const times of [2, 3]) {
    await one.clock.fastForward(3600 * 1000);
    await until("it is renewed", () => corp.exchanged.length === times || corp.refused.length > 0);
    equal([corp.exchanged.length, corp.refused.length], [times, 0], "tokens that were given, and refused");
    await all([one, two]);
    equal((await held(one))["dormouse-key"], (await held(two))["dormouse-key"], "the token of both");
  }
  // One that was away for two of them is given what there is by those that had it.
  const three = await copy(first);
  await all([one, two, three]);
  equal(corp.refused.length, 0, "tokens that were used again");
  // The tab that asks is closed, and another one goes on.
  corp.hangs = true;
  const asking = [];
  for (const page of [one, two, three]) page.on("request", (request) => { if (request.url() === `${corp.base}/token`) asking.push(page); });
  await one.clock.fastForward(3600 * 1000);
  await until("one asks", () => corp.hung > 0);
  await rest(1500);
  equal([corp.hung, asking.length], [1, 1], "tabs that ask");
  const last = corp.refresh;
  corp.hangs = false;
  const left = [one, two, three].filter((page) => page !== asking[0]);
  await asking[0].close();
  await until("another one asks", () => corp.refresh !== last);
  await all(left);
  // So it does where the one that asks is told nothing.
  for (const page of left) await page.evaluate(() => { const real = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = (most) => real(most / 60); });
  corp.hangs = true;
  asking.length = 0;
  await left[0].clock.fastForward(3600 * 1000);
  await until("both have asked", () => left.every((page) => asking.includes(page)));
  corp.hangs = false;
  const once = corp.refresh;
  await left[0].clock.fastForward(60 * 1000);
  await until("it is renewed", () => corp.refresh !== once);
  await all(left);
  // Who signs out is told nothing more, and signs nobody else out.
  await left[0].button("Sign out").click();
  await left[0].button("Sign in with corp").waitFor();
  const before = corp.refresh;
  await left[1].clock.fastForward(3600 * 1000);
  await until("it is renewed", () => corp.refresh !== before);
  await all([left[1]]);
  const out = await held(left[0]);
  equal([out["dormouse-key"], out["dormouse-renewal"], corp.refused.length], [undefined, undefined, 0], "what is left of it, and tokens that were used again");
  equal(await left[1].evaluate(() => Object.keys(localStorage)), [], "what all tabs can read");
});

await check("a token that lasts for months is not renewed again and again", async (tab) => {
  const corp = await issuer();
  const server = await dormouseWith({ DORMOUSE_ISSUERS: corp.described });
  const page = await tab({ server, key: null, also: [corp.base] });
  // No timer of a browser is as long.
  corp.lasts = 90 * 86400;
  await page.open("/console/inbox");
  await page.button("Sign in with corp").click();
  await page.live();
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Sessions" }).click();
  await page.sees("No session yet");
  await rest(500);
  equal(corp.exchanged.length, 1, "tokens");
});

await check("empty views teach", async (tab) => {
  const page = await tab({ server: clerk });
  await page.open("/console/inbox");
  await page.sees("Nothing waits for you");
  await page.sees("dormouse dev --workspace helper");
  await picture(page, "empty-inbox");
  await page.open("/console/asleep");
  await page.sees("Nothing sleeps");
  await page.open("/console/sessions");
  await page.sees("No session yet");
  await accessible(page, "empty sessions");
});

await check("approve", async (tab) => {
  const { invocation_id: id } = await expense(shipped, "a chair to approve");
  const page = await tab({ server: shipped });
  await page.open("/console/inbox");
  const entry = page.getByRole("link", { name: /a chair to approve/ });
  const { due_at: reminder, ends_at: end } = await shipped.get(`/v1/x-pauses/${id}`);
  holds(reminder < end, "a reminder comes before the end");
  equal(await entry.locator(".due time").getAttribute("datetime"), end, "what the list says of its time");
  await entry.click();
  await page.sees(/until \d+ \w+ 2026, .*: it goes on by itself with what stands below/);
  await page.sees("timed_out");
  await page.sees("head of finance");
  await page.button("Approve").click();
  await page.sees("Answered. It went on and has completed.");
  await ended(shipped, id, "completed");
  await page.getByRole("link", { name: /a chair to approve/ }).waitFor({ state: "detached" });
});

await check("a task is approved by name, and the run shows it live", async (tab) => {
  const of = await session(shipped, "persona_expense-approval");
  const id = await task(shipped, of, { employee: "Bob", amount_cents: 99900, purpose: "a desk" });
  const watching = await tab({ server: shipped });
  await watching.open(`/console/run/${id}`);
  await watching.sees("Asks for approval");
  await watching.locator("svg.timeline .span.sleep").first().waitFor();
  await watching.locator("svg.graph .node.here", { hasText: "ask" }).waitFor();
  await picture(watching, "run-asleep-wide-light");
  const page = await tab({ server: shipped });
  await page.open(`/console/inbox/${id}`);
  await page.button("Approve").click();
  await page.sees("Approved. It goes on.");
  await watching.locator(".mark.good", { hasText: "Completed" }).first().waitFor();
  const messages = await shipped.get(`/v1/sessions/${of}/messages`);
  equal(messages.data.at(-1).metadata.pause ?? messages.data.find((one) => one.metadata?.pause)?.metadata.pause, 1, "the answer names the pause that was seen");
});

await check("receipts are verified in the browser, and one that was changed on the way is told", async (tab) => {
  const of = await session(shipped, "persona_expense-approval");
  const id = await task(shipped, of, { employee: "Ann\u00e9", amount_cents: 12345, purpose: "a proof" });
  await shipped.post(`/v1/tasks/${id}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: true } }] } });
  await until("it has completed", async () => (await shipped.get(`/v1/tasks/${id}`)).status === "COMPLETED");
  const page = await tab({ server: shipped });
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.open(`/console/run/${id}`);
  await page.getByRole("heading", { name: "Receipts" }).waitFor();
  const cards = page.locator(".card.receipt");
  equal(await cards.count(), 2, "receipts: of the approval and of the end");
  for (const card of await cards.all()) { await card.getByRole("button", { name: "Verify" }).click(); await card.getByText(/Valid: verified in this browser/).waitFor(); }
  holds(asked.includes("/v1/keys") && !asked.some((path) => path.endsWith("/verify")), `the server is not asked whether it is right: ${asked}`);
  await page.locator("section[aria-label=Receipts]").scrollIntoViewIfNeeded();
  await picture(page, "receipts-wide-light");
  await page.route("**/v1/keys", async (route) => {
    const response = await route.fetch();
    const keys = await response.json();
    await route.fulfill({ response, json: { ...keys, data: keys.data.map((key) => ({ ...key, revoked_at: "2001-01-01T00:00:00Z" })) } });
  });
  await cards.first().getByRole("button", { name: "Verify" }).click();
  await page.sees(/Not valid: .* was revoked/);
  const forged = await tab({ server: shipped });
  await forged.route("**/v1/tasks/*/receipts*", async (route) => {
    const response = await route.fetch();
    const text = (await response.text()).replaceAll("SUCCEEDED", "FAILED");
    await route.fulfill({ response, body: text });
  });
  await forged.open(`/console/run/${id}`);
  await forged.locator(".card.receipt").first().getByRole("button", { name: "Verify" }).click();
  await forged.sees(/Not valid: its content is not what was hashed/);
  for (const [when, words] of [[{ created_at: "2099-01-01T00:00:00Z" }, /Not valid: .* was not in use when it was issued/], [{ retired_at: "2001-01-01T00:00:00Z" }, /Not valid: .* was not in use when it was issued/], [{ revoked_at: "2001-01-01T00:00:00Z" }, /Not valid: .* was revoked/]]) {
    const other = await tab({ server: shipped });
    await other.route("**/v1/keys", async (route) => {
      const response = await route.fetch();
      const keys = await response.json();
      await route.fulfill({ response, json: { ...keys, data: keys.data.map((key) => ({ ...key, ...when })) } });
    });
    await other.open(`/console/run/${id}`);
    await other.locator(".card.receipt").first().getByRole("button", { name: "Verify" }).click();
    await other.sees(words);
    await other.context().close();
  }
});

await check("several answer, each in their name", async (tab) => {
  const { invocation_id: id } = await shipped.post("/graphs/purchase/turns", { state: { item: "a lathe", amount_cents: 120000 } });
  const page = await tab({ server: shipped });
  await page.open(`/console/inbox/${id}`);
  await page.sees("0 of 2 answers are there");
  await page.getByLabel("Answer for").selectOption("grace");
  await page.button("Approve").click();
  await page.sees(/Taken. It still waits for ada, linus/);
  await page.open(`/console/inbox/${id}`);
  await page.sees("1 of 2 answers are there");
  await page.button("Approve").click();
  await ended(shipped, id, "completed");
});

/** Until `count` letters were sent, the last one by the task `id`. */
async function sent(id, count) {
  const waits = until("the letter is sent", () => clerk.letters.length >= count);
  await waits.catch(async (error) => {
    const told = clerk.log().split("\n").slice(-20).join("\n");
    throw new Error(`${error.message}: ${JSON.stringify(await clerk.get(`/v1/tasks/${id}`))}\n${told}`);
  });
  equal(clerk.letters.length, count, "letters");
}

const ofClerk = await session(clerk, (await clerk.get("/v1/personas")).data[0].id);

await check("deny with a reason that the agent sees", async (tab) => {
  const id = await task(clerk, ofClerk, said("Send a letter that is to be denied"));
  const page = await tab({ server: clerk });
  await page.open(`/console/inbox/${id}`);
  await page.sees("send_letter");
  await page.sees("grace@example.com");
  await page.sees(/Digest of these arguments/);
  await picture(page, "approval-of-a-call-wide-light");
  await page.getByLabel(/Reason/).fill("Grace is on leave");
  await page.button("Deny").click();
  await page.sees("Denied. The agent is told.");
  await until("the agent is told", () => clerk.heard.some((body) => JSON.stringify(body.messages).includes("Grace is on leave")));
  equal(clerk.letters.length, 0, "nothing was sent");
});

await check("a session without an agent of its own is called by the one that works in it, and what it asks is set as in the inbox", async (tab) => {
  const persona = (await clerk.get("/v1/personas")).data[0].id;
  const of = await session(clerk, undefined);
  const made = await clerk.post(`/v1/sessions/${of}/tasks`, { persona_id: persona, input: said("Send a letter from a session of nobody") });
  await until("it asks", async () => (await clerk.get(`/v1/tasks/${made.id}`)).status === "AUTH_REQUIRED");
  const page = await tab({ server: clerk });
  await page.open(`/console/session/${of}`);
  await page.getByRole("heading", { level: 1, name: persona.replace(/^persona_/, "") }).waitFor();
  await page.open("/console/asleep");
  await page.locator(`a.entry[href="/console/asleep/${made.id}"] .under code`, { hasText: "send_letter" }).waitFor();
  await clerk.post(`/v1/tasks/${made.id}/cancel`, {});
});

await check("who is notified answers by the link, and what was answered is told to nobody", async (tab) => {
  const before = clerk.letters.length;
  const id = await task(clerk, ofClerk, said("Send a letter that somebody is told of"));
  const found = await until("the desk is notified", () => clerk.notified.find((one) => one.body.data.invocation_id === id));
  const { asked, links, default: otherwise } = found.body.data;
  holds(asked.includes("send_letter") && otherwise.includes("If nobody answers until"), `it says what is asked: ${JSON.stringify(found.body)}`);
  holds(!JSON.stringify(found.body).includes("grace@example.com"), "and no arguments");
  const key = Buffer.from("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "base64");
  holds(found.headers["webhook-signature"]?.startsWith("v1,") && key.length === 24 && found.headers["webhook-id"] === found.body.data.id, "it is signed");
  const reader = await tab({ server: clerk, key: null, size: PHONE });
  await reader.goto(links[0].url);
  await reader.sees("grace@example.com");
  await reader.sees("If nobody answers");
  await reader.sees("it counts as a no, and nothing of it is done");
  await accessible(reader, "the page of a notification");
  await picture(reader, "notified-phone-light");
  await until("the chat is told again", () => clerk.chatted.some((one, at) => at > 0 && one.text.includes("/console/answer/")));
  await reader.button("Approve").click();
  await reader.getByText(/Answered|Approved/).first().waitFor();
  await sent(id, before + 1);
  // On a busy machine the answer may come when the notification is due: then another one is answered.
  let quick; let inTime = false;
  for (let attempts = 0; !inTime; attempts += 1) {
    holds(attempts < 20, "one is answered before its notification is due");
    quick = await task(clerk, ofClerk, said("Send a letter that is answered at once"));
    const { since } = await clerk.get(`/v1/x-pauses/${quick}`);
    await clerk.post(`/v1/tasks/${quick}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: false } }] } });
    inTime = Date.now() < Date.parse(since) + 1000;
  }
  await rest(2500);
  equal(clerk.notified.filter((one) => one.body.data.invocation_id === quick).length, 0, "notifications of what was answered");
  holds(!clerk.log().includes("/services/hush"), "the address of the chat is in no log");
});

await check("a call in doubt is neither approved nor denied: it happened, is repeated, or is left", async (tab) => {
  for (const [name, words, more] of [["Repeat", "The call is made again.", 2], ["Happened", "Noted as done. It goes on.", 1], ["Skip", "The call is left. It goes on.", 1]]) {
    const before = clerk.letters.length;
    const id = await task(clerk, ofClerk, said(`Send a letter that gets lost, then ${name}`));
    await until("it is asked", async () => (await clerk.get(`/v1/tasks/${id}`)).status === "AUTH_REQUIRED");
    await clerk.post(`/v1/tasks/${id}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: true } }] } });
    await until("its outcome is in doubt", async () => (await clerk.get(`/v1/x-pauses/${id}`)).kind === "uncertain_effect");
    const page = await tab({ server: clerk });
    await page.open(`/console/inbox/${id}`);
    await page.sees("the call is left, and is not made again");
    for (const choice of ["Happened", "Repeat", "Skip"]) await page.button(choice).waitFor();
    equal([await page.button("Approve").count(), await page.button("Deny").count()], [0, 0], "buttons that mean something else");
    if (name === "Repeat") { await accessible(page, "a call in doubt"); await picture(page, "doubt-wide-light"); }
    await page.button(name).click();
    await page.sees(words);
    await sent(id, before + more);
  }
});

await check("edit arguments, then approve: what runs is what was approved", async (tab) => {
  const before = clerk.letters.length;
  const id = await task(clerk, ofClerk, said("Send a letter to be changed"));
  const page = await tab({ server: clerk });
  await page.open(`/console/inbox/${id}`);
  await page.getByText("Change the arguments before approving").click();
  const area = page.getByLabel("Arguments, a JSON object");
  await area.fill("{ this is no JSON");
  await page.button("Approve").click();
  await page.sees(/The arguments are no JSON/);
  await area.fill(JSON.stringify({ to: "ada@example.com", text: "Changed by a person" }));
  await page.button("Approve").click();
  await page.sees("Approved. It goes on.");
  await sent(id, before + 1);
  equal(clerk.letters[before], { to: "ada@example.com", text: "Changed by a person" }, "the letter");
});

await check("a whole number that browsers cannot count with is shown and approved digit by digit", async (tab) => {
  const before = clerk.letters.length;
  const id = await task(clerk, ofClerk, said("Send a letter about an account"));
  const page = await tab({ server: clerk });
  const posted = [];
  page.on("request", (request) => { if (request.method() === "POST") posted.push(request.postData() ?? ""); });
  await page.open(`/console/inbox/${id}`);
  await page.sees("9007199254740993");
  await page.getByText("Change the arguments before approving").click();
  const area = page.getByLabel("Arguments, a JSON object");
  const written = await area.inputValue();
  holds(written.includes('"account": 9007199254740993'), `what may be changed: ${written}`);
  await area.fill(written.replace("grace@", "ada@"));
  await page.button("Approve").click();
  await page.sees("Approved. It goes on.");
  await sent(id, before + 1);
  equal(clerk.letters[before].to, "ada@example.com", "the letter");
  holds(posted.some((one) => one.includes("ada@example.com") && one.includes('"account":9007199254740993')), `the number as it was: ${posted}`);
});

await check("approved as it was asked, with the digest that was seen", async (tab) => {
  const before = clerk.letters.length;
  const id = await task(clerk, ofClerk, said("Send a letter as it is"));
  const page = await tab({ server: clerk, size: PHONE });
  await page.open(`/console/inbox/${id}`);
  await page.button("Approve").click();
  await page.sees("Approved. It goes on.");
  await sent(id, before + 1);
  const messages = await clerk.get(`/v1/sessions/${ofClerk}/messages?limit=200`);
  const answer = messages.data.flatMap((one) => one.parts).filter((part) => part.type === "json" && part.value.approved === true && part.value.digest).at(-1);
  holds(answer?.value.digest.length >= 32, "the digest goes with the yes");
});

await check("two tabs approve at once: it counts once, and both are told", async (tab) => {
  const before = clerk.letters.length;
  const id = await task(clerk, ofClerk, said("Send a letter that two approve"));
  const one = await tab({ server: clerk, expects: [409, 400] });
  const other = await tab({ server: clerk, beside: one, expects: [409, 400] });
  for (const page of [one, other]) { await page.open(`/console/inbox/${id}`); await page.button("Approve").waitFor(); }
  await Promise.all([one, other].map((page) => page.evaluate(() => document.querySelector("form.answer button.primary").click())));
  for (const page of [one, other]) await page.getByText(/Approved. It goes on.|Somebody was faster|It went on|It was answered|goes on already|That did not work|answered elsewhere/).first().waitFor();
  await sent(id, before + 1);
  await rest(800);
  equal(clerk.letters.length, before + 1, "letters");
});

await check("a page that has become stale answers nothing", async (tab) => {
  const of = await session(shipped, "persona_expense-approval");
  const id = await task(shipped, of, { employee: "Eve", amount_cents: 88800, purpose: "a lamp" });
  const page = await tab({ server: shipped });
  await page.open(`/console/inbox/${id}`);
  await page.button("Approve").waitFor();
  await page.live();
  await shipped.post(`/v1/tasks/${id}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: false } }] } });
  await page.sees("This was answered elsewhere.");
  holds(await page.button("Approve").isDisabled(), "nothing can be sent any more");
  await page.button("Show what it is now").click();
  await page.sees(/It went on and has completed|It was answered and goes on/);
});

await check("a stream that is cut is resumed behind its last event, and the views catch up", async (tab) => {
  const wire = await cable(shipped.base);
  const of = await session(shipped, "persona_expense-approval");
  await task(shipped, of, { employee: "Ian", amount_cents: 77700, purpose: "before the cut" });
  const page = await tab({ server: shipped, base: wire.base, expects: [0] });
  const resumed = [];
  page.on("request", (request) => { if (request.url().endsWith("/v1/events/stream")) resumed.push(request.headers()["last-event-id"] ?? null); });
  await page.open("/console/inbox");
  await page.live();
  await page.getByRole("link", { name: /before the cut/ }).waitFor();
  const first = resumed.length;
  wire.cut();
  await page.locator(".state:not(.live)").waitFor();
  const id = await task(shipped, of, { employee: "Ian", amount_cents: 66600, purpose: "while it was cut" });
  await rest(1500);
  equal(await page.getByRole("link", { name: /while it was cut/ }).count(), 0, "it cannot know yet");
  await page.sees(/Offline: trying again|Connecting/);
  wire.join();
  await page.live();
  await page.getByRole("link", { name: /while it was cut/ }).waitFor();
  holds(resumed.slice(first).some((cursor) => cursor?.startsWith("event_") || cursor), `it names the last event: ${resumed}`);
  await shipped.post(`/v1/tasks/${id}/cancel`, {});
  await page.getByRole("link", { name: /while it was cut/ }).waitFor({ state: "detached" });
});

await check("a stream whose cursor is of no use any more begins behind what there is, however long it takes to find that", async (tab) => {
  const of = await session(shipped, "persona_expense-approval");
  await task(shipped, of, { employee: "Ida", amount_cents: 55500, purpose: "long ago" });
  const page = await tab({ server: shipped });
  const cursors = [];
  await page.route("**/v1/events/stream", async (route) => {
    cursors.push(route.request().headers()["last-event-id"] ?? null);
    if (cursors.length === 1) await route.fulfill({ status: 200, contentType: "text/event-stream", body: "id: \nevent: error\ndata: {}\n\n" });
    else await route.continue();
  });
  await page.route("**/v1/sessions?limit=50", async (route) => {
    if (cursors.length > 0) await rest(1500);
    await route.continue();
  });
  await page.open("/console/inbox");
  await until("it begins again", () => cursors.length > 1);
  holds(cursors.every(Boolean), `none asks for all that ever happened: ${cursors}`);
});

await check("a conversation, live, with its tools", async (tab) => {
  const page = await tab({ server: clerk });
  await page.open("/console/sessions");
  await page.button("New session").click();
  await page.button("Begin").click();
  await page.getByLabel("Message").fill("Good morning");
  await page.keyboard.press("Enter");
  await page.sees("You said: Good morning");
  await page.getByLabel("Message").fill("Send a letter from here");
  await page.button("Send").click();
  await page.sees("Look at it");
  await page.getByRole("link", { name: "Look at it" }).click();
  await page.button("Approve").click();
  await page.sees("Approved. It goes on.");
  await page.goBack();
  await page.sees(/The tool said/);
  await page.locator("details.tool", { hasText: "send_letter" }).first().waitFor();
  await page.locator("details.tool", { hasText: "1280 tokens" }).first().waitFor();
  await accessible(page, "session");
  await picture(page, "session-wide-light");
  await page.getByRole("link", { name: /Completed/ }).first().click();
  await page.sees("Where it stands");
  await page.sees("Tokens");
  await accessible(page, "run");
  await picture(page, "run-wide-light");
});

await check("what sleeps, why, and its end", async (tab) => {
  const { invocation_id: id } = await shipped.post("/graphs/reminder/turns", { state: { text: "stretch", after: "PT2H" } });
  await shipped.post("/graphs/export-job/turns", { state: { dataset: "orders" } });
  const page = await tab({ server: shipped });
  await page.open("/console/asleep");
  await page.getByRole("link", { name: /export-job/ }).first().waitFor();
  await page.locator(`a[href$="${id}"]`).click();
  await page.sees(/It has slept for/);
  await accessible(page, "asleep");
  await picture(page, "asleep-wide-light");
  await page.button("Cancel this run…").click();
  await page.getByLabel(/Reason/).fill("not needed");
  await page.button("Cancel the run").click();
  await page.sees("It was canceled.");
  await page.locator(`.longlist a[href$="${id}"]`).waitFor({ state: "detached" });
  equal((await pauseOf(shipped, id)).status, "canceled", "its status");
});

await check("catalog and costs", async (tab) => {
  await task(clerk, ofClerk, said("Good day"));
  // The feed of all events is published when it is complete: some seconds later.
  await until("the feed tells of a model", async () => (await clerk.get("/v1/events?limit=200")).data.some((event) => event.payload.usage));
  const page = await tab({ server: clerk });
  await page.open("/console/catalog");
  await page.sees("clerk");
  await page.getByRole("heading", { name: "Disabled" }).waitFor();
  await page.sees(/of model `odd` must be one of/);
  await accessible(page, "catalog");
  await picture(page, "catalog-wide-light");
  await page.open("/console/costs");
  await page.sees("Models, day by day");
  await page.getByRole("rowheader", { name: "scripted" }).waitFor();
  holds(/\$0\.\d\d/.test(await page.locator(".figure").first().innerText()), "what the model cost is shown");
  equal(await page.getByRole("rowheader", { name: "unknown" }).count(), 0, "calls of a model that is not known");
  await accessible(page, "costs");
  await picture(page, "costs-wide-light");
  const other = await tab({ server: shipped });
  await other.open("/console/catalog");
  await other.getByText("Graph of 3 nodes").first().click();
  await other.locator("svg.graph").first().waitFor();
  await picture(other, "graph-wide-light");
});

await check("addresses are views, and back goes back", async (tab) => {
  const { invocation_id: id } = await expense(shipped, "a deep link");
  const page = await tab({ server: shipped });
  await page.open("/console/inbox");
  await page.getByRole("link", { name: /a deep link/ }).click();
  await page.getByRole("heading", { name: /a deep link/ }).waitFor();
  equal(new URL(page.url()).pathname, `/console/inbox/${id}`, "the address");
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Costs" }).click();
  await page.sees("Models, day by day");
  await page.goBack();
  await page.getByRole("heading", { name: /a deep link/ }).waitFor();
  await page.goBack();
  await page.sees("Choose a request.");
  await page.goForward();
  await page.reload();
  await page.getByRole("heading", { name: /a deep link/ }).waitFor();
  await page.open("/console/nowhere");
  await page.sees("There is no such view");
});

await check("somebody without a key answers by the link, and sees no more than the pause offers", async (tab) => {
  const made = await expense(shipped, "a link", {});
  const link = new URL(made.page_url);
  const token = new URLSearchParams(link.hash.slice(1)).get("token");
  const address = link.pathname + link.hash;
  const asked = [];
  const page = await tab({ server: shipped, key: null, size: PHONE });
  page.on("request", (request) => asked.push(request.url()));
  const given = [];
  page.on("response", async (response) => { if (response.url().includes("/invocations/")) given.push(await response.json()); });
  await page.open(address);
  await page.sees("Ada asks for EUR 120.00 for a link");
  await page.sees(/until \d+ \w+ 2026, .*\(in 2 d 23 h\): it goes on by itself with what stands below/);
  const shown = await page.locator("body").innerText();
  holds(!shown.includes("amount_cents") && !shown.includes("result"), "nothing of the state");
  holds(!asked.some((url) => url.includes(token)), "the token is in no address that is sent");
  equal([given.length, given.some((one) => "state" in one || JSON.stringify(one).includes("amount_cents"))], [1, false], "answers that the page was given, and whether they hold the state");
  await accessible(page, "link");
  await picture(page, "link-phone-light");
  await page.getByLabel(/Your name/).fill("Grace <b>Hopper</b>");
  await page.button("Approve").click();
  await page.sees("Approved. You may close this page.");
  const after = await shipped.get(new URL(made.status_url).pathname + new URL(made.status_url).search);
  equal([after.state.decision, after.state.decided_by], ["approved", "Grace <b>Hopper</b>"], "the answer");
  const late = await tab({ server: shipped, key: null, expects: [410, 404] });
  await late.open(address);
  await late.sees("This request is over");
  const other = await expense(shipped, "another");
  const wrong = await tab({ server: shipped, key: null, expects: [404] });
  await wrong.open(`/console/answer/${other.invocation_id}#token=${token}`);
  await wrong.sees("This link leads to nothing");
  const cut = await tab({ server: shipped, key: null });
  await cut.open(`/console/answer/${other.invocation_id}`);
  await cut.sees("This link is not whole");
});

await check("hostile content is text, everywhere", async (tab) => {
  const long = `${HOSTILE} ${"long ".repeat(1000)}`;
  const { invocation_id: id } = await expense(shipped, `${HOSTILE} hostile`, { employee: HOSTILE });
  const of = await session(clerk, (await clerk.get("/v1/personas")).data[0].id);
  const call = await task(clerk, of, said(`a letter ${long}`));
  // It may wait for the one before it.
  await task(clerk, of, said(HOSTILE), 20000).catch(() => {});
  await clerk.ask("PATCH", `/v1/sessions/${of}`, { summary: HOSTILE });
  const pages = [[shipped, `/console/inbox/${id}`], [shipped, `/console/asleep/${id}`], [clerk, `/console/inbox/${call}`], [clerk, `/console/run/${call}`], [clerk, `/console/session/${of}`], [clerk, "/console/sessions"]];
  for (const [server, to] of pages) {
    const page = await tab({ server });
    await page.open(to);
    await page.getByText(/onerror=alert/).first().waitFor().catch(async () => { throw new Error(`${to} does not show it: ${(await page.locator("body").innerText()).slice(0, 600)}`); });
    const bad = await page.evaluate(() => ({ images: document.querySelectorAll("img:not([src^='/console/'])").length, scripts: document.querySelectorAll("script:not([src^='/console/'])").length, raw: /[\u202e\u0007\u001b]/.test(document.body.innerText), wide: document.documentElement.scrollWidth > innerWidth }));
    equal(bad, { images: 0, scripts: 0, raw: false, wide: false }, to);
    for (const summary of await page.locator("details > summary").all()) await summary.click({ timeout: 500 }).catch(() => {});
    await page.context().close();
  }
  const page = await tab({ server: shipped, size: PHONE });
  await page.open(`/console/inbox/${id}`);
  await page.getByRole("heading", { name: /U\+202E/ }).waitFor();
  await picture(page, "hostile-phone-light");
});

await hostile();
await markdown();

await check("a text of 2 MB is shown in pieces", async (tab) => {
  const page = await tab({ server: shipped });
  await page.open("/console/inbox");
  await page.live();
  const shown = await page.evaluate(async () => {
    const { told, tree } = await import("/console/dom.js");
    const text = "\u001b[31m<b>x</b>\u202e ".repeat(150000);
    document.body.append(told(text), tree({ deep: { deeper: { deepest: text } }, many: Array.from({ length: 5000 }, (_, index) => index) }));
    return { characters: document.body.textContent.length, elements: document.querySelectorAll("*").length };
  });
  holds(shown.characters < 20000 && shown.elements < 2500, `only the beginning is there: ${JSON.stringify(shown)}`);
});

await check("the keyboard does everything", async (tab) => {
  await expense(shipped, "the keyboard one");
  const page = await tab({ server: shipped });
  await page.open("/console/costs");
  await page.live();
  await page.keyboard.press("g"); await page.keyboard.press("i");
  await page.getByRole("link", { name: /the keyboard one/ }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("keyboard one");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  const inRow = () => page.evaluate(() => document.activeElement.closest(".row") !== null);
  holds(await inRow(), "a row has the focus");
  await expense(shipped, "the keyboard one, later");
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.getByRole("link", { name: /keyboard one, later/ }).waitFor();
  holds(await inRow(), "and keeps it when the list is drawn anew");
  await page.locator(".row a", { hasText: "the keyboard one", hasNotText: "later" }).first().focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /the keyboard one/ }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await accessible(page, "keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("a"); await page.keyboard.press("Enter");
  await page.sees("Answered. It went on and has completed.");
});

await keyboard(shipped, clerk, ofClerk);
await answers(shipped);
await states(shipped);
await tabs(shipped);

await check("twenty approvals on a phone, one after the other", async (tab) => {
  const left = (await shipped.get("/v1/x-pauses?asks=person&limit=1000")).data;
  for (const one of left) await shipped.ask("POST", `/v1/x-pauses/${one.id}/cancel`, { generation: one.generation });
  for (let number = 0; number < 20; number += 1) await expense(shipped, `number ${number}`);
  const page = await tab({ server: shipped, size: PHONE });
  await page.open("/console/inbox");
  await page.locator(".longlist a").first().click();
  for (let number = 0; number < 20; number += 1) {
    await page.button("Approve").click();
    if (number < 19) await page.getByRole("link", { name: `Next: ${19 - number} to go` }).click();
  }
  await page.getByRole("link", { name: "Watch it go on" }).waitFor();
  equal((await shipped.get("/v1/x-pauses?asks=person")).data.length, 0, "requests that are left");
});

await check("a member sees the own tenant's tasks, without the doctor", async (tab) => {
  const made = JSON.parse(await shipped.command("keys", "create", "--actor", "mia", "--tenant", "elsewhere", "--all-scopes", "--never-expires", "--json"));
  await expense(shipped, "not for others");
  const page = await tab({ server: shipped, key: made.key });
  await page.open("/console/inbox");
  await page.sees("Nothing waits for you");
  // What the page says to paste does what it says.
  const line = await page.locator(".command pre").innerText();
  holds(line.includes("/graphs/expense-approval/turns"), `the lesson: ${line}`);
  const begun = execFileSync("sh", ["-c", line.replace("KEY", made.key)]).toString();
  equal(JSON.parse(begun).status, "suspended", "what the lesson begins");
  await page.open("/console/asleep");
  await page.sees("Nothing sleeps");
});

await check("every view, light and dark, phone and wide: axe is content, nothing overflows", async (tab) => {
  const of = await session(shipped, "persona_expense-approval");
  const id = await task(shipped, of, { employee: "Zoe", amount_cents: 55500, purpose: "a picture" });
  await expense(shipped, "another picture");
  await shipped.post("/graphs/purchase/turns", { state: { item: "a lathe", amount_cents: 120000 } });
  const views = { inbox: "/console/inbox", request: `/console/inbox/${id}`, sessions: "/console/sessions", session: `/console/session/${of}`, run: `/console/run/${id}`, asleep: "/console/asleep", sleeper: `/console/asleep/${id}`, catalog: "/console/catalog", costs: "/console/costs" };
  for (const [size, viewport] of [["phone", PHONE], ["wide", WIDE]]) {
    for (const dark of [false, true]) {
      const page = await tab({ server: shipped, size: viewport, dark });
      for (const [name, to] of Object.entries(views)) {
        await page.open(to);
        await page.live();
        await page.locator(".waiting").first().waitFor({ state: "detached" });
        await rest(150);
        await accessible(page, `${name} ${size} ${dark ? "dark" : "light"}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        holds(wide <= 0, `${name} ${size}: ${wide} px too wide`);
        await picture(page, `${name}-${size}-${dark ? "dark" : "light"}`);
      }
      await page.context().close();
    }
  }
  const page = await tab({ server: shipped, key: null });
  await page.open("/console");
  await page.getByLabel("API key").waitFor();
  await accessible(page, "sign-in");
  await picture(page, "sign-in-wide-light");
});

await check(`an inbox of ${SLEEPERS} opens, counts and scrolls`, async (tab) => {
  await crowding;
  const page = await tab({ server: crowded });
  const begin = Date.now();
  await page.open("/console/inbox");
  await page.locator(".longlist a").first().waitFor();
  const first = Date.now() - begin;
  const all = `${new Intl.NumberFormat("en-GB").format(SLEEPERS)} wait for an answer`;
  await page.getByText(all).waitFor();
  console.log(`        first rows after ${first} ms, all ${SLEEPERS} after ${Date.now() - begin} ms`);
  const list = page.locator(".longlist").first();
  await list.evaluate((box) => { box.scrollTop = box.scrollHeight; });
  await page.locator(`.row[aria-posinset="${SLEEPERS}"]`).waitFor();
  holds(await page.locator(".row").count() < 60, "only what is seen exists");
  const shift = await shifted(page);
  holds(shift.sum < 0.005, `the layout shifts: ${JSON.stringify(shift)}`);
  // Half way down, away to another view, and back: it stands where it was left.
  const middle = Math.floor(SLEEPERS / 2);
  await list.evaluate((box, row) => { box.scrollTop = row * 84; }, middle);
  await page.locator(`.row[aria-posinset="${middle + 1}"]`).waitFor();
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Catalog" }).click();
  await page.getByRole("heading", { name: "Agents" }).waitFor();
  await page.goBack();
  await page.locator(`.row[aria-posinset="${middle + 1}"]`).waitFor();
  // What is chosen narrows it down, and stays for who comes back.
  await page.getByLabel("Find in requests").fill(`thing ${SLEEPERS}`);
  await page.sees(`1 of ${all.split(" ")[0]}`);
  await page.goForward();
  await page.goBack();
  await page.sees(`1 of ${all.split(" ")[0]}`);
  await page.getByLabel("Find in requests").fill("");
  await page.getByRole("combobox", { name: "Age", exact: true }).selectOption("older than 1 week");
  await page.sees(`0 of ${all.split(" ")[0]}`);
  await page.getByRole("combobox", { name: "Age", exact: true }).selectOption("any age");
  await list.evaluate((box) => { box.scrollTop = box.scrollHeight; });
  await page.locator(`.row[aria-posinset="${SLEEPERS}"] a`).click();
  await page.button("Approve").click();
  await page.sees("Answered. It went on and has completed.");
});

await check("a list of 100,000 scrolls", async (tab) => {
  const page = await tab({ server: shipped });
  await page.open("/console/inbox");
  await page.live();
  const seen = await page.evaluate(async () => {
    const { LongList } = await import("/console/list.js");
    const list = new LongList({ name: "Numbers", height: () => 40, key: (one) => one, draw: (one) => { const link = document.createElement("a"); link.href = "#"; link.textContent = one; return link; } });
    list.box.style.setProperty("height", "400px");
    document.body.append(list.box);
    list.set(Array.from({ length: 100000 }, (_, index) => `row ${index}`));
    const found = [];
    for (const part of [0, 0.5, 1]) {
      list.box.scrollTop = (list.box.scrollHeight - 400) * part;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      found.push([...list.rows.keys()].length < 40 && [...list.rows.values()].some((row) => row.textContent === `row ${Math.round(99990 * part) + 5}`));
    }
    return found;
  });
  equal(seen, [true, true, true], "rows at the beginning, in the middle and at the end");
});

await check("code and style are less than 150 KB on the wire, and compressed", async () => {
  const bytes = [...sizes.values()].reduce((all, one) => all + one, 0);
  console.log(`        ${bytes} bytes in ${sizes.size} files`);
  holds(sizes.size > 10 && bytes > 20000 && bytes < 150000, `${bytes} bytes`);
  const files = await Promise.all([...sizes.keys()].map((path) => fetch(shipped.base + path)));
  const encodings = new Set(files.map((file) => file.headers.get("content-encoding")));
  equal([...encodings], ["gzip"], "how the files are sent");
});

await browser.close();
await endAll();
process.exit(summary());
