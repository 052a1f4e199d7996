// What the views show while they wait, when something fails, while something changes, and at every size of screen.

import { accessible, check, equal, holds, picture, PHONE, WIDE, shifted } from "./browser.mjs";
import { expense, rest, said, session, task, until } from "./world.mjs";

const SIZES = { narrow: { width: 320, height: 640 }, phone: PHONE, laptop: { width: 1280, height: 720 }, wide: WIDE, huge: { width: 2560, height: 1440 } };
const approval = (approved) => ({ kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved } }] } });

/** The address of every view, with something to see behind it. */
export async function addresses(server, purpose) {
  const of = await session(server, "persona_expense-approval");
  const id = await task(server, of, { employee: "Zoe", amount_cents: 55500, purpose });
  return { inbox: "/console/inbox", request: `/console/inbox/${id}`, sessions: "/console/sessions", session: `/console/session/${of}`, run: `/console/run/${id}`, asleep: "/console/asleep", sleeper: `/console/asleep/${id}`, catalog: "/console/catalog", costs: "/console/costs" };
}

export async function states(shipped) {
  await check("no view waits for a second without a word, and what fails says so and is tried again", async (tab) => {
    const views = await addresses(shipped, "a slow view");
    const link = new URL((await expense(shipped, "a slow link")).page_url);
    views.link = link.pathname + link.hash;
    for (const [name, to] of Object.entries(views)) {
      const page = await tab({ server: shipped, key: name === "link" ? null : shipped.key, expects: [500] });
      await page.clock.install();
      const held = [];
      let how = "hold";
      await page.route((url) => /^\/(v1\/|invocations|openapi)/.test(url.pathname) && !url.pathname.endsWith("agent-card") && !url.pathname.endsWith("/stream"), async (route) => {
        if (how === "hold") held.push(route);
        else if (how === "fail") await route.fulfill({ status: 500, json: { error: { code: "internal", message: "The store is away." } } });
        else await route.continue().catch(() => {});
      });
      await page.open(to);
      await until("it has asked for something", () => held.length > 0);
      await page.clock.runFor(1000);
      const waits = () => page.evaluate(() => document.querySelector("#content, #app > main, #app").innerText);
      await until(`${name} says what it waits for`, async () => /\S…|so far/.test(await waits()));
      how = "fail";
      for (const one of held.splice(0)) await one.fulfill({ status: 500, json: { error: { code: "internal", message: "The store is away." } } });
      await page.getByRole("alert").first().waitFor();
      await page.sees("The store is away.");
      await accessible(page, `${name}, failed`);
      if (name === "run") await picture(page, "run-failed-to-load-wide-light");
      how = "go";
      // A list is asked for beside what is open: both say that they failed.
      await until(`${name} is there after all`, async () => {
        const again = page.locator("[role=alert] button");
        if (await again.count() === 0) return true;
        await again.first().click({ timeout: 1000 }).catch(() => {});
        return false;
      });
      holds((await page.locator("h1").count()) > 0 && await page.getByText("The store is away.").count() === 0, `${name} is whole`);
      await page.context().close();
    }
  });

  await check("what was opened stays open, and keeps the focus, while the run goes on", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    const id = await task(shipped, of, { employee: "Zoe", amount_cents: 55500, purpose: "an open record" });
    const run = await tab({ server: shipped });
    await run.open(`/console/run/${id}`);
    await run.live();
    const record = run.locator(".steps details.record").first();
    await record.locator("summary").click();
    await record.locator(".tree").first().waitFor();
    const talk = await tab({ server: shipped });
    await talk.open(`/console/session/${of}`);
    await talk.live();
    await talk.locator(".talk .asks").first().waitFor();
    const before = await talk.locator(".talk > *").count();
    await talk.locator(".talk > *").first().evaluate((line) => { line.dataset.seen = "yes"; });
    await talk.button("Fork").focus();
    await shipped.post(`/v1/tasks/${id}/messages`, approval(true));
    await run.locator(".mark.good", { hasText: "Completed" }).first().waitFor();
    await run.getByText("Completed", { exact: true }).nth(1).waitFor();
    holds(await record.evaluate((box) => box.open && box.contains(document.activeElement)), "the record is open and has the focus");
    await until("the conversation has gone on", async () => (await talk.locator(".talk > *").count()) > before);
    equal(await talk.locator(".talk > [data-seen]").count(), 1, "lines that stayed");
    await talk.locator(".head .mark", { hasText: "Idle" }).waitFor();
    equal(await talk.evaluate(() => document.activeElement.textContent), "Fork", "what has the focus when the head is drawn anew");
    // The times in its lines change too, and nobody wants them read out.
    equal(await talk.getByRole("log").getAttribute("aria-relevant"), "additions", "what is read out of a conversation");
  });

  await check("who writes elsewhere while an answer is on its way goes on to write there", async (tab) => {
    const asked = [await expense(shipped, "a slow answer"), await expense(shipped, "an answer that fails")];
    const page = await tab({ server: shipped, expects: [500] });
    let held = null;
    await page.route("**/answer", (route) => { held = route; });
    for (const [{ invocation_id: id }, fails] of asked.map((one, at) => [one, at === 1])) {
      await page.open(`/console/inbox/${id}`);
      await page.button("Approve").click();
      await until("it is on its way", () => held);
      const search = page.getByLabel("Find in requests");
      await search.pressSequentially("an");
      if (fails) await held.fulfill({ status: 500, json: { error: { code: "internal", message: "The store is away." } } });
      else await held.continue();
      held = null;
      await page.locator(fails ? ".outcome.bad" : ".outcome.good").waitFor();
      await page.keyboard.type(" answer");
      equal(await search.inputValue(), "an answer", "what is written");
    }
  });

  await check("a reason that is being written stays when somebody else has answered", async (tab) => {
    const server = shipped;
    const { invocation_id: id, callback_urls: ways } = await server.post("/graphs/purchase/turns", { state: { item: "a drill", amount_cents: 120000 } });
    const page = await tab({ server });
    await page.open(`/console/inbox/${id}`);
    await page.getByLabel("Answer for").selectOption("grace");
    const answered = await fetch(ways.linus, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ vote: "yes" }) });
    equal(answered.status, 202, "the answer of another one");
    await page.sees("1 of 2 answers are there");
    equal(await page.getByLabel("Answer for").locator("option").allInnerTexts(), ["ada", "grace"], "who is left");
  });

  await check("a link whose time has passed, one for another part, and one that became stale while it was open", async (tab) => {
    const made = await shipped.post("/graphs/purchase/turns", { state: { item: "a saw", amount_cents: 120000 } });
    const page = await tab({ server: shipped, key: null, size: PHONE, expects: [409, 410, 404] });
    const address = (url) => new URL(url).pathname + new URL(url).hash;
    await page.open(address(made.page_urls.ada));
    await page.sees("buy a saw for EUR 1200.00?");
    await page.sees(/as ada/);
    equal(await page.getByLabel("Answer for").count(), 0, "others that may be answered for");
    const ada = new URLSearchParams(new URL(made.page_urls.ada).hash.slice(1)).get("token");
    const other = await tab({ server: shipped, key: null, expects: [404] });
    await other.open(`/console/answer/${made.invocation_id}#token=${ada}&part=grace`);
    await other.sees("This link leads to nothing");
    // Two others decide meanwhile; then ada answers from the page that is still open.
    for (const name of ["grace", "linus"]) await fetch(made.callback_urls[name], { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ vote: "yes" }) });
    await ended(shipped, made.invocation_id, "completed");
    await page.button("Deny").click();
    await page.locator(".outcome.bad, .card h1").filter({ hasText: /faster|over|nothing/i }).first().waitFor();
    await picture(page, "link-stale-phone-light");
    const late = await shipped.post("/graphs/purchase/turns", { state: { item: "a plane", amount_cents: 120000, decide_within: "PT6S" } });
    const slow = await tab({ server: shipped, key: null, size: PHONE, expects: [409, 410] });
    await slow.open(address(late.page_urls.ada));
    await slow.sees(/until .*: it goes on by itself, without an answer/);
    await ended(shipped, late.invocation_id, "completed");
    await slow.button("Approve").click();
    await slow.locator(".outcome.bad").filter({ hasText: /Somebody was faster|That is over/ }).waitFor();
    const gone = await tab({ server: shipped, key: null, size: PHONE, expects: [410] });
    await gone.open(address(late.page_urls.ada));
    await gone.sees("This request is over");
    await accessible(gone, "a link that is over");
    await picture(gone, "link-over-phone-light");
  });

  await check("a key that is revoked while somebody answers: nothing is lost, and the way back leads to the request", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "a revoked answer");
    const made = JSON.parse(await shipped.command("keys", "create", "--actor", "grace", "--all-scopes", "--scope", "operations:read", "--scope", "operations:write", "--never-expires", "--json"));
    const page = await tab({ server: shipped, key: made.key, expects: [401] });
    await page.open(`/console/inbox/${id}`);
    await page.button("Approve").waitFor();
    await shipped.command("keys", "revoke", made.id);
    await page.button("Approve").click();
    await page.sees("This key is not accepted");
    await picture(page, "revoked-wide-light");
    equal((await shipped.get(`/v1/x-pauses/${id}`)).status, "asleep", "its status");
    await page.getByLabel("API key").fill(shipped.key);
    await page.button("Sign in").click();
    await page.getByRole("heading", { name: /a revoked answer/ }).waitFor();
    await page.button("Approve").click();
    await page.sees("Answered. It went on and has completed.");
  });

  await check("a key that may look and not answer is told what it lacks", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "only to look at");
    const made = JSON.parse(await shipped.command("keys", "create", "--actor", "visitor", "--scope", "sessions:read", "--scope", "tasks:read", "--scope", "operations:read", "--never-expires", "--json"));
    const page = await tab({ server: shipped, key: made.key, expects: [403] });
    await page.open(`/console/inbox/${id}`);
    await page.sees("No live updates: the key lacks events:read");
    await page.button("Approve").click();
    await page.locator(".outcome.bad", { hasText: "This key is not allowed to do that" }).waitFor();
    await picture(page, "not-allowed-wide-light");
    equal((await shipped.get(`/v1/x-pauses/${id}`)).status, "asleep", "its status");
    // No event tells it that somebody else has answered.
    const of = await session(shipped, "persona_expense-approval");
    const other = await task(shipped, of, { employee: "Zoe", amount_cents: 55500, purpose: "nothing but a look" });
    await page.open(`/console/inbox/${other}`);
    await page.button("Approve").waitFor();
    await shipped.post(`/v1/tasks/${other}/messages`, approval(false));
    await page.sees("This was answered elsewhere.");
    holds(await page.button("Approve").isDisabled(), "nothing can be sent any more");
  });

  await check("a run that is answered where it is looked at is shown as it is by then", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "looked at");
    const page = await tab({ server: shipped });
    await page.open(`/console/run/${id}`);
    await page.button("Approve").click();
    await page.sees("Answered. It went on and has completed.");
    await page.getByText("Watch it go on").click();
    await page.sees("It went on and has completed.");
    await page.button("Approve").waitFor({ state: "detached" });
  });

  await check("a request that is looked at every few seconds is asked for once at a time", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "a slow look");
    const page = await tab({ server: shipped });
    await page.clock.install();
    await page.open(`/console/inbox/${id}`);
    await page.button("Approve").waitFor();
    const held = [];
    await page.route(`**/v1/x-pauses/${id}`, (route) => { held.push(route); });
    await page.clock.runFor(31000);
    await until("it is looked at", () => held.length > 0);
    await rest(300);
    equal(held.length, 1, "looks that wait");
    for (const one of held) await one.continue();
    await until("it is looked at again", async () => { await page.clock.runFor(6000); return held.length > 1; });
    for (const one of held.slice(1)) await one.continue();
  });

  await check("a request that was answered elsewhere while the server was busy is looked at again", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const words = await page.evaluate(async () => {
      const { pauseView } = await import("/console/pause.js");
      const pause = { id: "task_1", generation: 1, status: "asleep", asks_person: true, since: "2026-01-01T00:00:00Z", graph: "desk", request: { description: "May I?" }, missing: [], parts: [], ladder: [], path: [] };
      let hear; let isBusy = false;
      const client = { get: async () => { if (isBusy) { isBusy = false; throw new Error("busy"); } return { ...pause }; } };
      const view = pauseView({ client, follow: () => () => {}, live: { state: "live", on: (listener) => { hear = listener; return () => {}; } } }, "task_1");
      document.querySelector("#content").replaceChildren(view.node);
      const until = async (is) => { for (let left = 400; left > 0 && !is(); left -= 1) await new Promise((done) => setTimeout(done, 50)); };
      await until(() => view.node.querySelector("form"));
      pause.status = "completed";
      isBusy = true;
      hear({ event: "task.completed", task_id: "task_1" });
      await until(() => view.node.querySelector("[role=alert]"));
      view.leave();
      return view.node.querySelector("[role=alert] strong")?.textContent;
    });
    equal(words, "This was answered elsewhere. ", "what is told");
  });

  await check("a session that is forked with a double click is forked once", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    const page = await tab({ server: shipped });
    const forks = [];
    await page.route("**/fork", async (route) => { forks.push(route.request().url()); await rest(500); await route.continue(); });
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.button("Fork").dblclick();
    await page.sees("Forked: this is the new one.");
    equal(forks.length, 1, "forks that were asked for");
  });

  await check("a fork of which nobody heard is asked for under its name again, and one that is refused is told why", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    const page = await tab({ server: shipped, expects: [0, 409] });
    const names = [];
    let isHeard = false;
    await page.route("**/fork", async (route) => {
      names.push(route.request().headers()["idempotency-key"]);
      const response = await route.fetch();
      if (isHeard) await route.fulfill({ response }); else await route.abort("connectionreset");
    });
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.button("Fork").click();
    await page.sees("The server does not answer.");
    isHeard = true;
    await page.button("Fork").click();
    await page.sees("Forked: this is the new one.");
    equal([names.length, new Set(names).size], [4, 1], "how often it was asked for, and under how many names");
    const forks = (await shipped.get("/v1/sessions?limit=200")).data.filter((one) => one.parent_session_id === of);
    equal(forks.length, 1, "forks that there are");
    await page.unroute("**/fork");
    await page.route("**/fork", (route) => route.fulfill({ status: 409, json: { error: { code: "conflict", message: "the session is closed" } } }));
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.button("Fork").click();
    await page.sees("That cannot be done as it is now. The session is closed.");
  });

  await check("a turn is cut off with its reason, and none that came while that was asked", async (tab) => {
    const of = await session(shipped, "persona_chat");
    await task(shipped, of, said("first"));
    const page = await tab({ server: shipped });
    await page.open(`/console/session/${of}`);
    await page.live();
    await page.locator(".talk .message").nth(1).waitFor();
    const left = async () => (await shipped.get(`/v1/sessions/${of}/messages`)).data.length;
    const ask = async () => { await page.button("Cut last turn").click(); await page.locator("dialog[open]").waitFor(); };
    await ask();
    await task(shipped, of, said("second"));
    const there = await left();
    await page.button("Cut it off").click();
    await page.sees("Something else was said or cut off meanwhile: look at it first.");
    equal(await left(), there, "messages that there are");
    await page.locator(".talk .message").nth(there - 1).waitFor();
    // As many as before, of which the last is another one.
    await ask();
    await shipped.post(`/v1/sessions/${of}/truncate`, { keep_first: there - 2 });
    await task(shipped, of, said("third"));
    await page.locator(".talk .message", { hasText: "third" }).first().waitFor();
    await until("all of it is shown", async () => (await page.locator(".talk .message").count()) === there);
    await page.button("Cut it off").click();
    await page.locator("dialog[open]").waitFor({ state: "detached" });
    await page.sees("Something else was said or cut off meanwhile: look at it first.");
    equal(await left(), there, "messages that there are");
    await ask();
    await page.getByLabel("Reason").fill("not <b>meant</b>");
    await page.button("Cut it off").click();
    await page.sees("The last turn is cut off.");
    await page.getByRole("log").getByText(`Cut to the first ${there - 1} turns. not <b>meant</b>`).waitFor();
    equal([await left(), await page.locator(".talk .message").count()], [there - 1, there - 1], "messages that are left, and that are shown");
    await page.button("Close").click();
    equal(await page.locator("dialog textarea").count(), 0, "a reason that would be kept nowhere");
    await accessible(page, "a dialog without a reason");
  });

  await check("a run whose end could not be had at once is asked for again", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const words = await page.evaluate(async () => {
      const [{ runView }, { Client }] = await Promise.all([import("/console/run.js"), import("/console/api.js")]);
      let status = "WORKING"; let hear; let isBusy = false;
      const answer = (path) => {
        if (path.includes("/events")) return Response.json({ data: [], page: { has_more: false, next_cursor: null } });
        if (path.startsWith("/v1/x-pauses")) return Response.json(null);
        if (isBusy) { isBusy = false; return Response.json({ error: { code: "service_unavailable", message: "later" } }, { status: 503 }); }
        return Response.json({ id: "task_1", status, session_id: "session_1", created_at: "2026-01-01T00:00:00Z", created_by: "ada" });
      };
      const asks = window.fetch;
      window.fetch = async (path, options) => (path.includes("task_1") ? answer(path) : asks(path, options));
      const view = runView({ client: new Client("key", () => {}), graphs: async () => [], follow: () => () => {}, live: { on: (listener) => { hear = listener; return () => {}; } } }, "task_1");
      document.querySelector("#content").replaceChildren(view.node);
      const word = () => view.node.querySelector(".head .mark")?.textContent;
      const until = async (is) => { for (let left = 400; left > 0 && !is(); left -= 1) await new Promise((done) => setTimeout(done, 50)); };
      await until(() => word() === "Working");
      status = "COMPLETED";
      isBusy = true;
      hear({ event: "task.completed", task_id: "task_1" });
      await until(() => word() === "Completed");
      view.leave();
      window.fetch = asks;
      return [word(), isBusy];
    });
    equal(words, ["Completed", false], "its state, after a look that failed");
  });

  await check("a run of fifty thousand steps, and a conversation of thousands of lines, show the last ones first", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const shown = await page.evaluate(async () => {
      const [{ runView }, { sessionView }, { Client }] = await Promise.all([import("/console/run.js"), import("/console/sessions.js"), import("/console/api.js")]);
      const begin = Date.parse("2026-01-01T00:00:00Z");
      const at = (number) => new Date(begin + number * 1000).toISOString();
      const event = (number) => ({ id: `event_${number}`, event: "span.completed", created_at: at(number), payload: { name: `step ${number}`, duration_ms: 500 } });
      const canceled = (number) => ({ ...event(number), event: "task.canceled", payload: { reason: `step ${number}` } });
      const message = (number) => ({ id: `message_${number}`, role: "user", created_at: at(number), parts: [{ type: "text", text: `word ${number}` }] });
      const page = (make, all, path) => {
        const from = Number(path.match(/(?:cursor|after_event_id)=\w+?_(\d+)/)?.[1] ?? 0);
        // Of long messages few are in a page.
        const to = Math.min(from + (make === message ? 50 : 200), all);
        return { data: Array.from({ length: to - from }, (_, index) => make(from + index + 1)), page: { has_more: to < all, next_cursor: to < all ? make(to).id : null } };
      };
      const answer = (path) => {
        if (path.startsWith("/v1/x-pauses")) return null;
        if (path.startsWith("/v1/tasks/task_long/events")) return page(event, 50000, path);
        if (path.includes("session_long_busy/events")) return page(canceled, 4500, path);
        if (path.includes("/messages")) return page(message, path.includes("busy") ? 0 : 4500, path);
        if (/events|artifacts|\/tasks\?/.test(path)) return page(event, 0, path);
        return { id: "task_long", status: "COMPLETED", state: "IDLE", session_id: "session_long", created_at: at(0), created_by: "ada" };
      };
      const asks = window.fetch;
      window.fetch = async (path, options) => {
        // What was done comes behind what was said.
        if (path.includes("session_long_busy/events")) await new Promise((done) => setTimeout(done, 50));
        return /(task|session)_long/.test(path) ? Response.json(answer(path)) : asks(path, options);
      };
      const client = new Client("key", () => {});
      const app = { client, graphs: async () => [], follow: () => () => {}, live: { on: () => () => {} } };
      const until = async (is) => { for (let left = 1200; left > 0 && !is(); left -= 1) await new Promise((done) => setTimeout(done, 50)); };
      const put = (view) => { document.querySelector("#content").replaceChildren(view.node); return view.node; };
      const run = put(runView(app, "task_long"));
      const steps = () => [...run.querySelectorAll(".steps > li")].map((step) => step.textContent.match(/step \d+/)[0]);
      await until(() => steps().length > 0);
      const seen = [run.querySelector(".steps").previousElementSibling.previousElementSibling.textContent, steps().length, steps().at(-1), run.querySelectorAll(".timeline .span").length <= 1001];
      const days = [...run.querySelectorAll(".when")].map((when) => when.textContent).filter((when) => when.includes("2026")).length;
      const earlier = () => run.querySelector(".steps").previousElementSibling.querySelector("button");
      earlier().focus();
      earlier().click();
      seen.push(steps().length, days, document.activeElement === earlier());
      const talk = put(sessionView(app, "session_long"));
      const words = () => [...talk.querySelectorAll(".talk .message .text")].map((word) => word.textContent);
      await until(() => words().length > 0);
      seen.push(words().length, words().at(-1));
      talk.querySelector(".talk button").click();
      seen.push(words().length);
      talk.querySelector(".talk button").click();
      seen.push(words().length, talk.querySelectorAll(".talk button").length, document.activeElement === talk.querySelector(".talk"));
      const busy = put(sessionView(app, "session_long_busy"));
      const done = () => [...busy.querySelectorAll(".talk .asks")].map((step) => step.textContent);
      await until(() => done().at(-1) === "Canceled step 4500");
      seen.push(done().length);
      window.fetch = asks;
      return seen;
    });
    equal(shown, ["50,000 steps", 1000, "step 50000", true, 2000, 1, true, 2000, "word 4500", 4000, 4500, 0, true, 2000], "steps, days among them, and lines, before and after more are asked for");
  });

  await check("a look that nothing answers is given up, and what was looked for is had over another connection", async (tab) => {
    await expense(shipped, "a dead connection");
    const page = await tab({ server: shipped, expects: [0] });
    await page.clock.install();
    let held = 0;
    await page.route("**/v1/x-pauses?**", (route) => { held += 1; });
    await page.open("/console/inbox");
    await until("it is asked for", () => held > 0);
    await page.live();
    await page.clock.fastForward(61000);
    await page.sees("The server does not answer");
    equal(await page.locator(".counted").innerText(), "", "how many wait, which nobody knows");
    await page.unroute("**/v1/x-pauses?**");
    await page.button("Try again").click();
    await page.sees(/^[1-9]\d* waits? for an answer$/);
  });

  await check("a message that nothing answers goes out again over another connection, and is said once", async (tab) => {
    const of = await session(shipped, "persona_chat");
    const page = await tab({ server: shipped, expects: [0] });
    await page.clock.install();
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    const names = [];
    await page.route(`**/v1/sessions/${of}/tasks`, async (route) => {
      names.push(route.request().headers()["idempotency-key"]);
      if (names.length > 1) await route.continue();
    });
    await page.getByLabel("Message").fill("over a dead connection");
    await page.keyboard.press("Enter");
    await until("it is on its way", () => names.length === 1);
    await page.clock.fastForward(61000);
    await until("it goes out again", async () => { await page.clock.runFor(1000); return names.length > 1; });
    await page.getByRole("log").getByText("over a dead connection").first().waitFor();
    equal([names.length, new Set(names).size, (await shipped.get(`/v1/sessions/${of}/tasks`)).data.length], [2, 1, 1], "how often, under how many names, and what came of it");
  });

  await check("what an agent has made is kept as a file also where the token has ended meanwhile, and a server that is away is told as such", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const seen = await page.evaluate(async () => {
      const { Client } = await import("/console/api.js");
      const asks = window.fetch;
      const keys = [];
      let isAway = false;
      window.fetch = async (path, { headers }) => {
        keys.push(headers.authorization);
        if (isAway) throw new TypeError("Failed to fetch");
        return headers.authorization === "Bearer old" ? new Response("{}", { status: 401 }) : new Response("the bytes");
      };
      const client = new Client("old", () => {});
      client.renew = async () => { client.key = "new"; return true; };
      const clicks = [];
      document.addEventListener("click", (event) => { event.preventDefault(); clicks.push(event.target.download); }, { capture: true, once: true });
      const click = HTMLAnchorElement.prototype.click;
      HTMLAnchorElement.prototype.click = function kept() { clicks.push(this.download); };
      await client.file("/v1/artifacts/a/content", "a.txt");
      isAway = true;
      const refused = await client.file("/v1/artifacts/a/content", "a.txt").catch((error) => error.title);
      HTMLAnchorElement.prototype.click = click;
      window.fetch = asks;
      return [keys, clicks, refused];
    });
    equal(seen, [["Bearer old", "Bearer new", "Bearer new"], ["a.txt"], "The server does not answer"], "the keys, the files, and what is told");
  });

  await check("a list of sessions that is longer than is shown says so", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const counted = await page.evaluate(async () => {
      const { sessionsView } = await import("/console/sessions.js");
      const one = (number) => ({ id: `session_${number}`, state: "IDLE", summary: `number ${number}`, created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z" });
      const client = { async* pages(_, { most }) { for (let page = 0; page < most; page += 1) yield { data: Array.from({ length: 200 }, (_, at) => one(200 * page + at)), page: { has_more: true } }; } };
      const view = sessionsView({ client, live: { on: () => () => {} } });
      document.querySelector("#content").replaceChildren(view.node);
      const words = () => view.node.querySelector(".find span")?.textContent;
      for (let left = 1200; left > 0 && !words()?.startsWith("the newest"); left -= 1) await new Promise((done) => setTimeout(done, 50));
      const seen = [words()];
      const search = view.node.querySelector("input");
      search.value = "number 9999";
      search.dispatchEvent(new Event("input"));
      seen.push(words());
      view.leave();
      return seen;
    });
    equal(counted, ["the newest 10,000", "1 of the newest 10,000"], "how many there are");
  });

  await check("what the doctor finds is shown above what sleeps, and a repair is asked for and told", async (tab) => {
    const { invocation_id: id } = await shipped.post("/graphs/export-job/turns", { state: { dataset: "orders" } });
    const page = await tab({ server: shipped });
    const finding = { trouble: true, sentence: "its rule `export` is gone", remedy: "make the rule again" };
    // The trouble is put into what the server says; the repair is the server's own.
    await page.route(`**/v1/x-pauses/${id}`, async (route) => {
      const response = await route.fetch();
      const pause = await response.json();
      await route.fulfill({ response, json: { ...pause, remarks: [...pause.remarks, finding] } });
    });
    await page.open(`/console/asleep/${id}`);
    const findings = page.getByRole("region", { name: "Findings" });
    await findings.getByText("Trouble").waitFor();
    await findings.getByText("A repair would make the rule again.").waitFor();
    await accessible(page, "findings of the doctor");
    await picture(page, "findings-wide-light");
    const asked = page.waitForResponse((response) => response.url().endsWith("/repair"));
    await findings.getByRole("button", { name: "Repair" }).click();
    equal((await asked).status(), 200, "what the server says to the repair");
    await findings.getByText("Trouble").waitFor({ state: "detached" });
    await findings.getByText("Fine").first().waitFor();
  });

  await check("what narrows the inbox down stays chosen and keeps the focus when requests come and go", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const seen = await page.evaluate(async () => {
      const { inboxView } = await import("/console/inbox.js");
      const one = (id, agent) => [id, { id, agent, status: "asleep", asks_person: true, since: "2026-01-01T00:00:00Z", missing: [] }];
      const pauses = { byId: new Map([one("a", "clerk"), one("b", "desk")]), state: "whole", listeners: new Set(), onChange(hear) { this.listeners.add(hear); }, load: async () => {} };
      const view = inboxView({ person: () => pauses, graphs: async () => [] }, null);
      document.querySelector("#content").append(view.node);
      const agents = () => view.node.querySelector("select");
      agents().value = "desk";
      agents().dispatchEvent(new Event("change"));
      agents().focus();
      pauses.byId = new Map([one("a", "clerk"), one("c", "porter")]);
      for (const hear of pauses.listeners) hear();
      view.leave();
      return [agents().value, [...agents().options].map((option) => option.value), document.activeElement === agents(), view.node.querySelector(".counted").textContent];
    });
    equal(seen, ["desk", ["", "clerk", "porter", "desk"], true, "0 of 2"], "what is chosen, among what, whether it has the focus, and how many are found");
  });

  await check("what falls asleep, or is answered, while a long list comes stands there as it is by then", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const kept = await page.evaluate(async () => {
      const { Pauses } = await import("/console/inbox.js");
      const one = (id) => ({ id, status: "asleep", asks_person: true, since: "2026-01-01T00:00:00Z", missing: [] });
      let hear; let come;
      const list = new Promise((done) => { come = () => done({ data: [one("task_answered"), one("task_stays")], page: { next_cursor: null } }); });
      const client = { get: (path) => (path.includes("?") ? list : Promise.resolve(one("task_late"))) };
      const pauses = new Pauses({ client, live: { on: (listener) => { hear = listener; return () => {}; } } }, "&asks=person");
      const loaded = pauses.load();
      hear({ event: "task.input_required", task_id: "task_late" });
      hear({ event: "task.completed", task_id: "task_answered" });
      await new Promise((done) => setTimeout(done, 10));
      come();
      await loaded;
      pauses.end();
      return [...pauses.byId.keys()].sort();
    });
    equal(kept, ["task_late", "task_stays"], "what the list holds");
    const again = await page.evaluate(async () => {
      const { Pauses } = await import("/console/inbox.js");
      const one = (id) => ({ id, status: "asleep", asks_person: true, since: "2026-01-01T00:00:00Z", missing: [] });
      let hear; let come; let asks = 0;
      const held = new Promise((done) => { come = done; });
      const client = { get: async () => { asks += 1; if (asks === 1) await held; return { data: asks === 1 ? [one("task_stays")] : [one("task_stays"), one("task_missed")], page: { next_cursor: null } }; } };
      const pauses = new Pauses({ client, live: { on: (listener) => { hear = listener; return () => {}; } } }, "&asks=person");
      const loaded = pauses.load();
      hear({ event: "x-resumed" });
      const whole = new Promise((done) => pauses.onChange(() => { if (asks > 1 && !pauses.isBusy) done(); }));
      come();
      await loaded;
      await Promise.race([whole, new Promise((done) => setTimeout(done, 3000))]);
      pauses.end();
      return [...pauses.byId.keys()];
    });
    equal(again, ["task_stays", "task_missed"], "what the list holds when it is live again while it comes");
  });

  await check("what had the focus in a list and is gone hands it on to what stands in its place", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const focused = await page.evaluate(async () => {
      const [{ LongList }, { h }] = await Promise.all([import("/console/list.js"), import("/console/dom.js")]);
      const list = new LongList({ name: "letters", height: () => 40, key: (one) => one, draw: (one) => h("a", { href: `/console/inbox/${one}` }, one) });
      document.querySelector("#content").replaceChildren(list.box);
      const seen = [];
      const set = (items) => { list.set(items); seen.push(document.activeElement.textContent.length === 1 ? document.activeElement.textContent : ""); };
      set(["a", "b", "c", "d"]);
      list.focus(1);
      for (const items of [["a", "c", "d"], ["x", "a", "c", "d"], ["x", "a"], []]) set(items);
      list.watch.disconnect();
      return seen;
    });
    equal(focused, ["", "c", "c", "a", ""], "what has the focus");
  });

  await check("many events have the list of sessions asked for again, and once at a time", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const asked = await page.evaluate(async () => {
      const { sessionsView } = await import("/console/sessions.js");
      const rest = (time) => new Promise((done) => setTimeout(done, time));
      let hear; let asks = 0; let now = 0; let most = 0;
      const client = { async* pages() { asks += 1; now += 1; most = Math.max(most, now); await rest(2500); now -= 1; yield { data: [], page: { has_more: false } }; } };
      const view = sessionsView({ client, live: { on: (listener) => { hear = listener; return () => {}; } } });
      const events = setInterval(() => hear({ event: "task.started" }), 100);
      await rest(7000);
      clearInterval(events);
      view.leave();
      return [asks, most];
    });
    equal(asked, [2, 1], "how often it is asked for in 7 seconds, and how often at a time");
  });

  await check("dates in a script from right to left are read as they are", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    const id = await task(shipped, of, { employee: "Amal", amount_cents: 55500, purpose: "dates" });
    const page = await tab({ server: shipped, locale: "ar-EG" });
    for (const to of [`/console/inbox/${id}`, `/console/run/${id}`, "/console/inbox"]) {
      await page.open(to);
      await page.locator("time").first().waitFor();
      const marks = await page.evaluate(() => [...new Set([...document.querySelectorAll("#content *")].flatMap((one) => [one.title ?? "", one.childElementCount === 0 ? one.textContent : ""]).filter((text) => /U\+(200[EF]|061C)/.test(String(text))))]);
      equal(marks, [], `${to}: marks of direction that are shown`);
    }
  });

  await check("no character is cut in two where a long text goes on", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const seen = await page.evaluate(async () => {
      const { told } = await import("/console/dom.js");
      const box = told(`${"a".repeat(1499)}\u{1f44d}${"b".repeat(65535)}\u{1f680}${"c".repeat(20)}`);
      const pieces = () => [...box.querySelector(".told").childNodes].map((piece) => [...piece.data].at(-1));
      const first = pieces();
      box.querySelector("button").click();
      return [first, pieces(), box.querySelector("button").textContent];
    });
    equal(seen, [["\u{1f44d}"], ["\u{1f44d}", "\u{1f680}"], "Show more (67 of 67 thousand characters)"], "the last characters of its pieces");
  });

  await check("names without an end make nothing wider than the screen", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "long names");
    const page = await tab({ server: shipped, size: PHONE });
    const long = "x".repeat(180);
    const parts = [long, `${long}2`];
    await page.route(`**/v1/x-pauses/${id}`, async (route) => {
      const response = await route.fetch();
      const call = { tool: long, source: long, arguments: { [long]: long }, digest: long, known: long };
      await route.fulfill({ response, json: { ...await response.json(), agent: long, left_out: [long], missing: parts, parts: parts.map((part) => ({ part, answered_at: null })), request: { kind: "approval", description: long, risk: long, calls: Object.fromEntries(parts.map((part) => [part, call])) } } });
    });
    await page.open(`/console/inbox/${id}`);
    await page.button("Approve").waitFor();
    const wide = await page.evaluate(() => [...document.querySelectorAll(".detail *")].filter((one) => !one.closest("option") && one.getBoundingClientRect().right > innerWidth + 1).map((one) => `${one.localName} ${one.className}`));
    equal(wide, [], "what is wider");
  });

  await check("what is written in a script from right to left stands so where it is written", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open(`/console/session/${await session(shipped, "persona_expense-approval")}`);
    const box = page.getByLabel("Message");
    await box.fill("\u05e9\u05dc\u05d5\u05dd!");
    equal(await box.evaluate((area) => getComputedStyle(area).unicodeBidi), "plaintext", "how its direction is found");
    await page.getByText("Nothing was said yet.").waitFor();
    await page.button("Name…").click();
    equal(await page.getByLabel("What it is called in lists").evaluate((line) => getComputedStyle(line).unicodeBidi), "plaintext", "that of a name");
    const heading = await page.evaluate(async () => {
      const { paper } = await import("/console/markdown.js");
      const { node } = paper("# \u05e9\u05dc\u05d5\u05dd!");
      document.querySelector("#content").append(node);
      return getComputedStyle(node.querySelector("h2")).unicodeBidi;
    });
    equal(heading, "plaintext", "that of a heading of an agent");
  });

  await check("a session is given a name, and found by it among the others", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    await session(shipped, "persona_purchase");
    const page = await tab({ server: shipped });
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.button("Name…").click();
    await page.getByLabel("What it is called in lists").fill("Chairs <b>of</b> Ada");
    await accessible(page, "the name of a session");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Chairs <b>of</b> Ada" }).waitFor();
    await page.button("Name…").click();
    await page.getByLabel("What it is called in lists").fill("Not this one");
    await page.button("Leave it as it is").click();
    equal((await shipped.get(`/v1/sessions/${of}`)).summary, "Chairs <b>of</b> Ada", "its name");
    await page.open("/console/sessions");
    await page.locator(".longlist a").nth(1).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("chairs <b>");
    await page.getByText(/^1 of \d+$/).waitFor();
    equal(await page.locator(".longlist a .line").allInnerTexts(), ["Chairs <b>of</b> Ada"], "what is found");
    // It goes on to be found, and to be written, while the list is asked for again.
    const asked = page.waitForResponse((response) => response.url().includes("/v1/sessions?limit=200"));
    await session(shipped, "persona_purchase");
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await asked;
    await page.keyboard.type("of");
    await until("nothing else is found", async () => (await page.locator(".longlist a").allInnerTexts()).length === 1 && await page.getByLabel("Find in sessions").inputValue() === "chairs <b>of");
    await accessible(page, "sessions, narrowed down");
    await picture(page, "sessions-found-wide-light");
    await page.locator(".longlist a").click();
    await page.goBack();
    await page.getByText(/^1 of \d+$/).waitFor();
  });

  await check("a conversation is asked for whole once, and again when a turn was cut off; tasks that have ended and what was made are not asked for again", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const seen = await page.evaluate(async () => {
      const [{ sessionView }, { Client }] = await Promise.all([import("/console/sessions.js"), import("/console/api.js")]);
      const at = (number) => new Date(1.7e12 + number * 1000).toISOString();
      const part = (text) => ({ type: "text", text });
      const message = (number) => ({ id: `message_${number}`, role: "user", created_at: at(number), parts: [part(`word ${number}`)] });
      const event = (number, more = {}) => ({ id: `event_${number}`, event: "user.message", created_at: at(number), resource: { object: "message", id: `message_${number}` }, payload: { role: "user", parts: [part(`word ${number}`), { type: "text", redacted: "internal" }] }, ...more });
      // The first was said before the session was forked: no event of it tells that.
      let messages = [message(1), message(2)]; const events = [event(2)]; let fails = 0; let failsToList = 0; let hear;
      const tasks = Array.from({ length: 450 }, (_, number) => ({ id: `task_${450 - number}`, status: "COMPLETED", created_at: at(0) }));
      const asked = []; const made = [];
      const pages = (all, from, size) => ({ data: all.slice(from, from + size), page: { has_more: from + size < all.length, next_cursor: from + size < all.length ? `place_${from + size}` : null } });
      const answer = (path) => {
        const place = Number(path.match(/place_(\d+)/)?.[1] ?? 0);
        if (path.includes("/messages")) { asked.push("messages"); if (fails > 0) { fails -= 1; return null; } return pages(messages, 0, 200); }
        if (path.includes("/tasks?")) { asked.push(`tasks ${place}`); return pages(tasks, place, 200); }
        if (path.includes("/events")) { const last = path.match(/after_event_id=(\w+)/)?.[1]; return pages(events.slice(events.findIndex((one) => one.id === last) + 1), 0, 200); }
        if (path.startsWith("/v1/artifacts")) { asked.push("results"); if (failsToList > 0) { failsToList -= 1; return null; } return pages(made, 0, 50); }
        return { id: "session_talk", state: "IDLE", created_at: at(0) };
      };
      const asks = window.fetch;
      window.fetch = async (path, options) => {
        if (!path.includes("session_talk")) return asks(path, options);
        const found = answer(path);
        return found ? Response.json(found) : Response.json({ error: { code: "service_unavailable", message: "later" } }, { status: 503 });
      };
      const view = sessionView({ client: new Client("key", () => {}), follow: () => () => {}, live: { on: (listener) => { hear = listener; return () => {}; } } }, "session_talk");
      document.querySelector("#content").replaceChildren(view.node);
      const words = () => [...view.node.querySelectorAll(".talk .message")].map((one) => one.textContent.match(/word \d+/)?.[0]?.slice(5)).join(" ");
      const shown = [];
      const until = async (is) => { for (let left = 400; left > 0 && words() !== is; left -= 1) await new Promise((done) => setTimeout(done, 50)); shown.push(words(), asked.splice(0).sort().join(", ")); };
      const news = (...more) => { events.push(...more); for (const one of more) hear({ ...one, session_id: "session_talk" }); };
      await until("1 2");
      messages = [message(1), message(2), message(3)];
      tasks.unshift({ id: "task_451", status: "WORKING", created_at: at(3) });
      news(event(3), event(4, { replayed: true }), { ...event(5), event: "task.started", resource: { object: "task", id: "task_451" }, payload: { status: "WORKING" } });
      await until("1 2 3");
      // The first look at what is left fails.
      messages = [message(1)];
      fails = 1;
      news({ id: "event_6", event: "session.truncated", created_at: at(6), resource: { object: "session", id: "session_talk" }, payload: { kept_turn_count: 1 } });
      hear({ event: "x-resumed" });
      await until("1");
      messages = [message(1), message(7)];
      tasks[0].status = "COMPLETED";
      failsToList = 1;
      made.push({ id: "artifact_1", kind: "file", mime_type: "text/plain", created_at: at(7) });
      news({ ...event(6.5), event: "artifact.created", resource: { object: "artifact", id: "artifact_1" }, payload: {} }, event(7));
      await until("1 7");
      messages = [message(1), message(7), message(8)];
      news(event(8));
      await until("1 7 8");
      shown.push(view.node.querySelectorAll(".aside .runs button").length);
      view.leave();
      window.fetch = asks;
      return shown;
    });
    equal(seen, ["1 2", "messages, results, tasks 0, tasks 200, tasks 400", "1 2 3", "tasks 0", "1", "messages, messages, tasks 0, tasks 0", "1 7", "results, tasks 0", "1 7 8", "results, tasks 0", 1], "what is shown, and what was asked for");
  });

  await check("a run is asked for its new events alone, and once at a time", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const asked = await page.evaluate(async () => {
      const [{ runView }, { Client }] = await Promise.all([import("/console/run.js"), import("/console/api.js")]);
      const rest = (time) => new Promise((done) => setTimeout(done, time));
      const event = (number) => ({ id: `event_${number}`, event: "span.completed", created_at: new Date(1.7e12 + number).toISOString(), payload: { name: `step ${number}`, duration_ms: 1 } });
      let there = 450; let now = 0; let most = 0; let hear; const cursors = [];
      const answer = async (path) => {
        if (path.startsWith("/v1/x-pauses")) return null;
        if (!path.includes("/events")) return { id: "task_1", status: "WORKING", session_id: "session_1", created_at: new Date(1.7e12).toISOString(), created_by: "ada" };
        now += 1; most = Math.max(most, now);
        await rest(300);
        now -= 1;
        const from = Number(path.match(/after_event_id=event_(\d+)/)?.[1] ?? 0);
        cursors.push(from);
        const to = Math.min(from + 200, there);
        return { data: Array.from({ length: to - from }, (_, at) => event(from + at + 1)), page: { has_more: to < there, next_cursor: to < there ? `event_${to}` : null } };
      };
      const asks = window.fetch;
      window.fetch = async (path, options) => (path.includes("task_1") ? Response.json(await answer(path)) : asks(path, options));
      const client = new Client("key", () => {});
      const view = runView({ client, graphs: async () => [], follow: () => () => {}, live: { on: (listener) => { hear = listener; return () => {}; } } }, "task_1");
      document.querySelector("#content").append(view.node);
      await rest(1500);
      for (let number = 0; number < 12; number += 1) { there += 1; hear({ task_id: "task_1", event: "span.completed" }); await rest(210); }
      await rest(1200);
      view.leave();
      window.fetch = asks;
      return { steps: view.node.querySelectorAll(".steps > li").length, most, again: cursors.slice(3).filter((from) => from < 450).length };
    });
    equal(asked, { steps: 462, most: 1, again: 0 }, "steps that are shown, how many times it is asked at a time, and how often for what is known");
  });

  await check("events of a run are found behind many of others", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const names = await page.evaluate(async () => {
      const [{ runView }, { Client }] = await Promise.all([import("/console/run.js"), import("/console/api.js")]);
      const event = (number) => ({ id: `event_${number}`, event: "span.completed", created_at: new Date(1.7e12 + number).toISOString(), payload: { name: `step ${number}`, duration_ms: 1 } });
      const pages = { "": [[1], 2000], event_2000: [[], 4000], event_4000: [[4001], null] };
      let isDrawn; const drawn = new Promise((done) => { isDrawn = done; });
      const answer = (path) => {
        if (path.startsWith("/v1/x-pauses")) return null;
        if (!path.includes("/events")) return { id: "task_1", status: "WORKING", session_id: "session_1", created_at: new Date(1.7e12).toISOString(), created_by: "ada" };
        const [numbers, next] = pages[path.match(/after_event_id=(\w+)/)?.[1] ?? ""];
        return { data: numbers.map(event), page: { has_more: next !== null, next_cursor: next && `event_${next}` } };
      };
      const asks = window.fetch;
      window.fetch = async (path, options) => (path.includes("task_1") ? Response.json(answer(path)) : asks(path, options));
      const client = new Client("key", () => {});
      const view = runView({ client, graphs: async () => [], follow: () => { isDrawn(); return () => {}; }, live: { on: () => () => {} } }, "task_1");
      document.querySelector("#content").append(view.node);
      await drawn;
      view.leave();
      window.fetch = asks;
      return [...view.node.querySelectorAll(".steps > li")].map((step) => step.textContent.match(/step \d+/)?.[0]);
    });
    equal(names.sort(), ["step 1", "step 4001"], "steps that are shown");
  });

  await check("sleep is drawn to scale", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/inbox");
    await page.live();
    const drawn = await page.evaluate(async () => {
      const [{ spansOf }, { timePicture }] = await Promise.all([import("/console/run.js"), import("/console/pictures.js")]);
      const begin = Date.parse("2026-01-01T00:00:00Z");
      const event = (minutes, name, payload = {}) => ({ event: name, created_at: new Date(begin + minutes * 60000).toISOString(), payload });
      const { spans } = spansOf([event(0, "task.submitted"), event(60, "task.input_required"), event(240, "task.status_changed"), event(300, "span.completed", { duration_ms: 30 * 60000, name: "model" }), event(360, "task.completed")]);
      const picture = timePicture(spans, begin, begin + 360 * 60000);
      return [...picture.querySelectorAll(".span")].map((span) => { const rect = span.querySelector("rect"); return [span.getAttribute("class"), Math.round(Number(rect.getAttribute("x"))), Math.round(Number(rect.getAttribute("width")))]; });
    });
    // 360 minutes are 1000 wide.
    equal(drawn.sort(), [["span call", 750, 83], ["span sleep", 167, 500], ["span work", 0, 167], ["span work", 667, 333]], "stretches: their place and width");
  });

  await check("a month of costs", async (tab) => {
    const page = await tab({ server: shipped });
    const first = Date.now() - 29 * 86400000;
    const events = Array.from({ length: 30 }, (_, day) => ({ id: `event_${day}`, event: "span.completed", created_at: new Date(first + day * 86400000).toISOString(), task_id: `task_${day}`, payload: { "gen_ai.request.model": day % 3 === 0 ? "large" : "small", usage: { total_tokens: 1000 * (day + 1) }, cost: String(0.1 * (day + 1)), duration_ms: 900 } }));
    await page.route("**/v1/x-feed*", (route) => route.fulfill({ json: { first: "event_0" } }));
    await page.route("**/v1/events/event_0", (route) => route.fulfill({ json: events[0] }));
    await page.route("**/v1/events?*", (route) => route.fulfill({ json: { data: events.slice(1), page: { has_more: false, next_cursor: null } } }));
    await page.open("/console/costs");
    await page.locator("svg.bars .bar").nth(29).waitFor();
    const tall = await page.locator("svg.bars .bar rect").evaluateAll((bars) => bars.map((bar) => Math.round(Number(bar.getAttribute("height")))));
    equal([tall.length, tall[29], tall[14]], [30, 152, 76], "bars: their number, the height of the last and of the middle one");
    await page.sees("Models: $46.50 in 30 days");
    await page.sees("465,000");
    await page.sees("A day begins at midnight UTC.");
    await page.getByText("The numbers of each day").click();
    equal(await page.locator("details[open] tbody tr").count(), 30, "days in numbers");
    await accessible(page, "a month of costs");
    await page.getByText("The numbers of each day").click();
    await picture(page, "month-wide-light");
    await page.getByRole("link", { name: "7 days" }).click();
    await page.waitForURL(/days=7/);
    await until("seven bars", async () => (await page.locator("svg.bars .bar").count()) === 7);
    for (const [days, bars] of [["1e9", 366], ["-5", 30], ["2.9", 2]]) {
      await page.open(`/console/costs?days=${days}`);
      await until(`${days} days are ${bars}`, async () => (await page.locator("svg.bars .bar").count()) === bars);
    }
  });

  await check("at every size, from 320 to 2560 wide: nothing overflows, nothing shifts", async (tab) => {
    const views = await addresses(shipped, "every size");
    for (const [size, viewport] of Object.entries(SIZES)) {
      const page = await tab({ server: shipped, size: viewport });
      for (const [name, to] of Object.entries(views)) {
        await page.open(to);
        await page.live();
        await page.locator(".waiting").first().waitFor({ state: "detached" });
        await rest(100);
        const wide = await page.evaluate(() => [...document.querySelectorAll("main, #app, .detail, .side, .page")].filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => `${box.className || box.id}: ${box.scrollWidth} in ${box.clientWidth}`));
        equal(wide, [], `${name} ${size}: what overflows`);
        const shift = await shifted(page);
        holds(shift.sum < 0.005, `${name} ${size}: it shifts, ${JSON.stringify(shift)}`);
        if (["narrow", "huge"].includes(size)) await picture(page, `${name}-${size}-light`);
      }
      await page.context().close();
    }
  });
}

const ended = (server, id, status) => until(`${id} is ${status}`, async () => (await server.get(`/v1/x-pauses/${id}`)).status === status);
