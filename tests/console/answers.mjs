// Answers to what asks for several things at once, changes under the eyes of who answers, and what is lost on the way.

import { fileURLToPath } from "node:url";
import { PHONE, accessible, check, equal, holds, picture } from "./browser.mjs";
import { assistant, rest, said, session, task, until } from "./world.mjs";

/** Calls for two letters in one step, and a tool that asks. */
const twice = {
  extend(write, model, tool) {
    const server = fileURLToPath(new URL("asking-server.mjs", import.meta.url));
    write(".openharness/tools/settings.yaml", `send_letter:\n  http:\n    method: POST\n    url: ${tool}\n    description: Sends a letter.\n    input_schema: {type: object, properties: {to: {type: string}, text: {type: string}}, required: [to, text]}\npainter: {command: "exec '${process.execPath}' '${server}'"}\n`);
  },
  reply(body, choice) {
    const last = body.messages.at(-1);
    if (last.role === "user" && /paint/.test(String(last.content))) {
      const calls = Array.from({ length: String(last.content).includes("two doors") ? 2 : 1 }, (_, at) => ({ id: `call_paint_${at}`, type: "function", function: { name: body.tools.find((one) => one.function.name.includes("paint")).function.name, arguments: "{}" } }));
      return choice({ role: "assistant", content: null, tool_calls: calls }, "tool_calls");
    }
    if (last.role !== "user" || !String(last.content).includes("two letters")) return null;
    const call = (number) => ({ id: `call_${number}`, type: "function", function: { name: "send_letter", arguments: JSON.stringify({ to: `person-${number}@example.com`, text: `number ${number}` }) } });
    return choice({ role: "assistant", content: null, tool_calls: [call(1), call(2)] }, "tool_calls");
  },
};

export async function answers(shipped) {
  const server = await assistant(twice);
  const of = await session(server, (await server.get("/v1/personas")).data[0].id);

  await check("arguments that were changed and folded away are what runs", async (tab) => {
    const before = server.letters.length;
    const id = await task(server, of, said("Send a letter to be changed and folded away"));
    const page = await tab({ server });
    await page.open(`/console/inbox/${id}`);
    const title = page.getByText("Change the arguments before approving");
    await title.click();
    await page.getByLabel("Arguments, a JSON object").fill(JSON.stringify({ to: "ada@example.com", text: "folded" }));
    await title.click();
    await page.locator("summary .mark", { hasText: "Changed" }).waitFor();
    await accessible(page, "changed arguments, folded away");
    await page.button("Approve").click();
    await until("the letter is sent", () => server.letters.length > before);
    equal(server.letters.slice(before), [{ to: "ada@example.com", text: "folded" }], "the letter");
  });

  await check("of two calls that are asked about at once the second is asked for when the first is approved", async (tab) => {
    const before = server.letters.length;
    const id = await task(server, of, said("Send two letters"));
    const page = await tab({ server });
    await page.open("/console/inbox");
    await page.getByRole("link", { name: /make these 2 calls/ }).click();
    await page.button("Approve").waitFor();
    equal(await page.getByLabel("Answer for").locator("option").allInnerTexts(), ["call-1: send_letter", "call-2: send_letter"], "what may be answered for");
    // The notification that has gone out by then is not late.
    await page.locator(".ladder li", { hasText: /^just now.*desk$/s }).waitFor();
    await page.button("Approve").click();
    await page.locator(".outcome.good", { hasText: "Taken. It still waits for call-2." }).waitFor();
    await accessible(page, "one of two calls is answered");
    await picture(page, "one-of-two-wide-light");
    equal([server.letters.length - before, await page.getByText("It goes on.").count()], [0, 0], "letters, and words that say otherwise");
    await page.getByRole("link", { name: /make these 2 calls/ }).getByText("1 to answer").waitFor();
    await until("the way on has the focus", () => page.evaluate(() => document.activeElement.innerText === "Answer for call-2"));
    await page.keyboard.press("Enter");
    await page.sees("1 of 2 answers are there");
    await page.button("Deny").click();
    await page.locator(".outcome.good", { hasText: "Denied. The agent is told." }).waitFor();
    await until("one letter is sent", () => server.letters.length > before);
    await page.getByRole("link", { name: /make these 2 calls/ }).waitFor({ state: "detached" });
    await rest(500);
    equal(server.letters.slice(before), [{ to: "person-1@example.com", text: "number 1" }], "the letters");
  });

  await check("an answer stays for whom it was chosen when others answer meanwhile, with all that is written, and is for nobody else", async (tab) => {
    const vote = async (to) => equal((await fetch(to, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ vote: "yes" }) })).status, 202, "the answer of another one");
    const { invocation_id: id, callback_urls: ways } = await shipped.post("/graphs/purchase/turns", { state: { item: "a drill", amount_cents: 120000 } });
    const page = await tab({ server: shipped });
    await page.open(`/console/inbox/${id}`);
    await page.getByLabel("Answer for").selectOption("linus");
    await vote(ways.grace);
    await page.sees("1 of 2 answers are there");
    equal([await page.getByLabel("Answer for").inputValue(), await page.getByLabel("Answer for").locator("option").allInnerTexts()], ["linus", ["ada", "linus"]], "for whom it is, and might be");
    await page.button("Approve").click();
    await until("it has completed", async () => (await shipped.get(`/v1/x-pauses/${id}`)).status === "completed");
    // The calls of an agent: what is written for the second stays when the first is answered, and is not sent for the other.
    const calls = await task(server, of, said("Send two letters, slowly answered"));
    await page.context().close();
    const other = await tab({ server });
    await other.open(`/console/inbox/${calls}`);
    await other.live();
    await other.getByLabel("Answer for").selectOption("call-2");
    await other.getByText("Change the arguments before approving").click();
    await other.getByLabel("Arguments, a JSON object").fill("{}");
    await other.getByLabel(/Reason/).fill("half a reason");
    const answer = (part) => server.post(`/v1/tasks/${calls}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: false } }], metadata: { in_reply_to: part } } });
    await answer("call-1");
    await other.sees("1 of 2 answers are there");
    equal([await other.getByLabel("Answer for").inputValue(), await other.getByLabel("Arguments, a JSON object").inputValue(), await other.getByLabel(/Reason/).inputValue()], ["call-2", "{}", "half a reason"], "what stands there");
    const third = await task(server, of, said("Send two letters, answered elsewhere"));
    await other.open(`/console/inbox/${third}`);
    await other.live();
    await other.getByLabel("Answer for").selectOption("call-2");
    await server.post(`/v1/tasks/${third}/messages`, { kind: "tool_confirmation", message: { role: "user", parts: [{ type: "json", value: { approved: false } }], metadata: { in_reply_to: "call-2" } } });
    await other.sees("This was answered elsewhere.");
    holds(await other.button("Approve").isDisabled(), "nothing is sent for the other call");
    await other.button("Show what it is now").click();
    await other.sees("1 of 2 answers are there");
    holds(await other.button("Approve").isEnabled(), "the other one is asked for");
  });

  await check("what a tool asks is a form: nothing is chosen before, what is missing is told, and it may be declined", async (tab) => {
    const id = await task(server, of, said("Please paint the door"));
    const page = await tab({ server });
    await page.open(`/console/inbox/${id}`);
    await page.getByRole("heading", { name: "How shall it be painted?" }).waitFor();
    await page.getByLabel(/Which color/).waitFor();
    await page.sees(/: the tool is told no\./);
    equal([await page.getByLabel(/Which color/).inputValue(), await page.getByLabel(/Are you sure/).inputValue(), await page.getByLabel(/weight/).inputValue()], ["", "", "2.5"], "what stands there before");
    await accessible(page, "the form of a tool");
    await picture(page, "form-wide-light");
    await page.button("Send the answer").click();
    await page.locator(".outcome.bad", { hasText: "“Which color?” is not chosen. “Are you sure?” is not chosen. “count” is missing." }).waitFor();
    await page.getByLabel(/Which color/).selectOption({ label: "Blue" });
    await page.getByLabel(/Are you sure/).selectOption({ label: "no" });
    await page.getByLabel(/count/).fill("1.5");
    await page.button("Send the answer").click();
    await page.locator(".outcome.bad", { hasText: "“count” must be integer." }).waitFor();
    await page.getByLabel(/count/).fill("17");
    await page.getByLabel("<b>windows</b>").check();
    await page.getByRole("textbox", { name: /day/ }).fill("2026-12-24");
    await page.button("Send the answer").click();
    await page.locator(".outcome.good").waitFor();
    await until("it has ended", async () => (await server.get(`/v1/tasks/${id}`)).status === "COMPLETED");
    const heard = JSON.stringify(server.heard.at(-1).messages.at(-1).content);
    for (const one of ["color", "b", "sure", "false", "17", "windows", "2026-12-24", "2.5"]) holds(heard.includes(one), `the tool was told ${one}: ${heard}`);
    const other = await task(server, of, said("Please paint it again"));
    const phone = await tab({ server, size: PHONE });
    await phone.open(`/console/inbox/${other}`);
    await phone.button("Decline").waitFor();
    await picture(phone, "form-phone-light");
    const isSeen = (page) => page.locator(".question h1").evaluate((title) => { const box = title.getBoundingClientRect(); return title.contains(document.elementFromPoint(box.x + 10, box.y + 5)); });
    holds(await isSeen(phone), "on a phone the form does not cover what is asked");
    await page.open(`/console/inbox/${other}`);
    await page.button("Decline").click();
    await page.locator(".outcome.good").waitFor();
    await until("it has ended", async () => (await server.get(`/v1/tasks/${other}`)).status === "COMPLETED");
    holds(JSON.stringify(server.heard.at(-1).messages.at(-1).content).includes("decline"), "the tool is told no");
  });

  await check("a message whose answer is lost is sent once, however often it is sent again, and one of two quick Enters too", async (tab) => {
    const mine = await session(server, (await server.get("/v1/personas")).data[0].id);
    const page = await tab({ server, expects: [0] });
    await page.open(`/console/session/${mine}`);
    await page.getByText("Nothing was said yet.").waitFor();
    let lost = 3;
    await page.route("**/v1/sessions/*/tasks", async (route) => {
      if (route.request().method() !== "POST" || lost === 0) { await route.continue(); return; }
      lost -= 1;
      await route.fetch();
      await route.abort("connectionreset");
    });
    const box = page.getByLabel("Message");
    await box.fill("Hello, once");
    await page.button("Send").click();
    await page.sees("The server does not answer");
    equal([lost, await box.inputValue()], [0, "Hello, once"], "what is left to lose, and what is written there again");
    await page.button("Send").click();
    await page.sees("You said: Hello, once");
    equal([(await server.get(`/v1/sessions/${mine}/tasks`)).data.length, await box.inputValue()], [1, ""], "runs, and what is still written");
    await box.fill("Hello, twice");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    await page.sees("You said: Hello, twice");
    await rest(500);
    equal((await server.get(`/v1/sessions/${mine}/tasks`)).data.length, 2, "runs");
    // The same words once more are said once more.
    await box.fill("Hello, twice");
    await page.keyboard.press("Enter");
    await until("it is said again", async () => (await server.get(`/v1/sessions/${mine}/tasks`)).data.length === 3);
    await box.fill("half of a message");
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Catalog" }).click();
    await page.getByRole("heading", { name: "Agents", exact: true }).waitFor();
    await page.goBack();
    await page.sees("You said: Hello, once");
    equal(await page.getByLabel("Message").inputValue(), "half of a message", "what was begun to be written");
  });

  await check("a message that has arrived unheard is sent under its name whatever else is answered, and after another view", async (tab) => {
    const mine = await session(server, (await server.get("/v1/personas")).data[0].id);
    const page = await tab({ server, expects: [0, 429] });
    await page.open(`/console/session/${mine}`);
    await page.getByText("Nothing was said yet.").waitFor();
    let came = 0;
    await page.route("**/v1/sessions/*/tasks", async (route) => {
      if (route.request().method() !== "POST") { await route.continue(); return; }
      came += 1;
      if (came === 1) { await route.fetch(); await route.abort("connectionreset"); }
      else if (came === 2) await route.fulfill({ status: 429, json: { error: { code: "too_many_requests", message: "Too many requests of this key" } } });
      else await route.continue();
    });
    const box = page.getByLabel("Message");
    await box.fill("Hello, unheard");
    await page.button("Send").click();
    await page.sees("Too many requests");
    await page.sees("You said: Hello, unheard");
    await box.pressSequentially("!");
    await box.press("Backspace");
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Catalog" }).click();
    await page.getByRole("heading", { name: "Agents", exact: true }).waitFor();
    await page.goBack();
    await page.sees("You said: Hello, unheard");
    equal(await box.inputValue(), "Hello, unheard", "what is written there again");
    await page.button("Send").click();
    await until("it is taken", async () => came === 3 && await box.inputValue() === "" && await page.button("Send").isVisible());
    equal((await server.get(`/v1/sessions/${mine}/tasks`)).data.length, 1, "runs");
    await box.fill("Hello, unheard");
    await page.keyboard.press("Enter");
    await until("the same words are said once more", async () => (await server.get(`/v1/sessions/${mine}/tasks`)).data.length === 2);
  });

  await check("an answer that is cut in its midst counts as none: the same is sent again under the same name", async (tab) => {
    const page = await tab({ server });
    await page.open("/console/inbox");
    await page.live();
    const told = await page.evaluate(async () => {
      const { Client } = await import("/console/api.js");
      const asks = window.fetch; const names = []; let cuts = 2;
      window.fetch = async (path, options) => {
        if (path !== "/v1/cut") return asks(path, options);
        names.push(options.headers["idempotency-key"]);
        cuts -= 1;
        return cuts < 0 ? Response.json({ id: "task_1" }) : new Response(new ReadableStream({ start: (body) => { body.enqueue(new TextEncoder().encode("{")); body.error(new TypeError("network error")); } }));
      };
      const client = new Client("key", () => {});
      const made = await client.post("/v1/cut", {}).catch((error) => error.message);
      cuts = 1;
      const { status } = await client.get("/v1/cut").catch((error) => error);
      window.fetch = asks;
      return [made.id, names.length, new Set(names.slice(0, 3)).size, status];
    });
    equal(told, ["task_1", 4, 1, 0], "what is made, how often it was asked, under how many names, and what is said of a reading that is cut");
  });

  await check("a conversation and a list stay there when they cannot be had again for a while", async (tab) => {
    const mine = await session(server, (await server.get("/v1/personas")).data[0].id);
    await task(server, mine, said("Good evening"));
    const page = await tab({ server, expects: [429, 500] });
    await page.open(`/console/session/${mine}`);
    await page.sees("You said: Good evening");
    await page.live();
    let refuses = true;
    await page.route(/\/v1\/sessions(\?|\/[^/]+$)/, async (route) => {
      if (refuses && route.request().method() === "GET") await route.fulfill({ status: 429, json: { error: { code: "too_many_requests", message: "Too many requests of this key" } } });
      else await route.continue();
    });
    await task(server, mine, said("Good night"));
    await page.sees("Too many requests");
    equal(await page.getByText("You said: Good evening").count(), 1, "what was said before");
    refuses = false;
    await page.sees("You said: Good night");
    await page.open("/console/sessions");
    await page.locator(".longlist a").first().waitFor();
    await page.live();
    refuses = true;
    await task(server, mine, said("Good morning"));
    await page.sees("Too many requests");
    holds(await page.locator(".longlist a").count() > 0, "the list is still there");
  });
}
