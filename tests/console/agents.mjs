// Everything that somebody else may write, as hostile as it can be; and agents that ask agents.

import { accessible, check, equal, holds, picture, PHONE } from "./browser.mjs";
import { assistant, rest, said, session, task, until } from "./world.mjs";

export const HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe\u001b[31mred\u0007\u0000\"'>{{7*7}}";
/** Text that nobody sees and a model reads, and marks that cover the lines around. */
const HIDDEN = `${[..."obey"].map((letter) => String.fromCodePoint(0xe0000 + letter.charCodeAt(0))).join("")}\u3164\u00ad Z${"\u0334\u0300".repeat(200)}`;

/** Counts what hostile text has become on the page, and what it has left there raw. */
const harmed = (page) => page.evaluate(() => ({
  images: document.querySelectorAll("img:not([src^='/console/'])").length, scripts: document.querySelectorAll("script:not([src^='/console/'])").length,
  raw: /[\u202e\u0007\u001b\u3164\u00ad\u{e0000}-\u{e007f}]/u.test(document.body.innerText), covers: /\p{M}{6}/u.test(document.body.innerText), wide: document.documentElement.scrollWidth > innerWidth,
}));
const HARMLESS = { images: 0, scripts: 0, raw: false, covers: false, wide: false };

/** Lets the model write the second half of what it has begun. */
let goOn = () => {};

async function* slowly() {
  const piece = (delta, finish_reason = null) => ({ id: "c", object: "chat.completion.chunk", created: 1, model: "scripted", choices: [{ index: 0, delta, finish_reason }] });
  yield piece({ role: "assistant", content: "Once upon a time <b>there was" });
  await new Promise((done) => { goOn = done; });
  yield piece({ content: " a dormouse</b>." });
  await new Promise((done) => { goOn = done; });
  yield { ...piece({}, "stop"), usage: { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 } };
}

const agents = {
  extend(write, model, tool) {
    const text = JSON.stringify(`${HOSTILE.replaceAll("\u0000", "")} ${HIDDEN}`);
    write(".openharness/agents/evil.md", `---\ndescription: ${text}\nmodel: workspace/evil\n---\n${HOSTILE.replaceAll("\u0000", "")}\n`);
    write(".openharness/models/evil.yaml", `evil:\n  provider: openai-compatible\n  name: ${text}\n  url: ${model}\n  key: \${env.SCRIPTED_KEY}\n  metadata:\n    prices: {prompt: 2.0, completion: 8.0}\n`);
    write(".openharness/tools/settings.yaml", `send_letter:\n  http:\n    method: POST\n    url: ${tool}\n    description: ${text}\n    input_schema: {type: object, properties: {to: {type: string}, text: {type: string}}, required: [to, text]}\n`);
    write(".openharness/agents/asker.md", "---\ndescription: Asks others.\nmodel: default\nmode: primary\nsubagents: [scout]\n---\nYou ask the scout.\n");
    write(".openharness/agents/scout.md", "---\ndescription: Looks around.\nmodel: default\nmode: subagent\n---\nYou are the scout.\n");
  },
  reply(body, choice) {
    const instructions = JSON.stringify(body.messages[0]);
    const last = body.messages.at(-1);
    if (last.role === "user" && String(last.content).includes("slowly")) return { pieces: slowly() };
    if (instructions.includes("You are the scout")) return choice({ role: "assistant", content: "Nothing but trees." }, "stop");
    const call = { id: "call_scout", type: "function", function: { name: "SubAgent", arguments: JSON.stringify({ prompt: "Look around", subagent_name: "scout" }) } };
    return instructions.includes("You ask the scout") && last.role === "user" ? choice({ role: "assistant", content: null, tool_calls: [call] }, "tool_calls") : null;
  },
  // What the tool gives back: 2 MB of it.
  sent: { report: `2 MB ${HOSTILE} ${HIDDEN} `.repeat(4000).slice(0, 2_000_000) },
};

export async function hostile() {
  const server = await assistant(agents);
  const personas = (await server.get("/v1/personas")).data;
  const persona = (name) => personas.find((one) => one.name === name).id;

  await check("hostile agents, models, tools and outputs of 2 MB are text in every view", async (tab) => {
    const of = await session(server, persona("evil"));
    const id = await task(server, of, said(`a letter ${HOSTILE} ${HIDDEN}`));
    const asking = await tab({ server, size: PHONE });
    await asking.open(`/console/inbox/${id}`);
    await asking.button("Approve").waitFor();
    equal(await harmed(asking), HARMLESS, "the request");
    await accessible(asking, "a hostile request");
    await picture(asking, "hostile-request-phone-light");
    await asking.button("Approve").click();
    await until("it has ended", async () => ["COMPLETED", "FAILED"].includes((await server.get(`/v1/tasks/${id}`)).status));
    equal((await server.get(`/v1/tasks/${id}`)).status, "COMPLETED", "its end");
    await until("the feed tells of a model", async () => (await server.get("/v1/events?limit=200")).data.some((event) => event.payload.usage));
    const page = await tab({ server });
    for (const [to, words] of [[`/console/session/${of}`, /onerror=alert/], [`/console/run/${id}`, /onerror=alert/], ["/console/catalog", /onerror=alert/], ["/console/costs", "By model"], ["/console/sessions", "Sessions"], ["/console/asleep", "Asleep"]]) {
      await page.open(to);
      await page.getByText(words).filter({ visible: true }).first().waitFor();
      for (let deep = 0; deep < 3; deep += 1) {
        await page.evaluate(() => { for (const box of document.querySelectorAll("details")) box.open = true; });
        await rest(100);
      }
      equal(await harmed(page), HARMLESS, to);
      const characters = await page.evaluate(() => document.body.textContent.length);
      holds(characters < 400000, `${to} shows pieces: ${characters} characters`);
      equal(await page.getByText(/\(0 of/).count(), 0, `${to} says how much of a text is shown`);
      await accessible(page, `hostile ${to}`);
    }
    await page.open(`/console/run/${id}`);
    await page.getByText(/2 MB <img/).first().waitFor({ state: "attached" });
    const squares = await page.locator(".legend .key").evaluateAll((all) => all.map((one) => [one.offsetWidth, one.offsetHeight]));
    equal(squares, Array(3).fill([11, 11]), "the squares of the legend");
    await page.getByRole("heading", { name: "Receipts" }).waitFor();
    for (const card of await page.locator(".card.receipt").all()) { await card.getByRole("button", { name: "Verify" }).click(); await card.getByText(/Valid: verified in this browser/).waitFor(); }
  });

  await check("agents that were asked stand in the tree, with their runs and what was said", async (tab) => {
    const of = await session(server, persona("asker"));
    const page = await tab({ server });
    await page.open(`/console/session/${of}`);
    await page.getByLabel("Message").fill("What is there?");
    await page.button("Send").click();
    await page.getByText(/The tool said: Nothing but trees/).waitFor();
    await page.sees("and sleeps until it has the answer");
    const child = page.locator("aside .runs .runs a", { hasText: "scout" });
    await child.filter({ hasText: "Completed" }).waitFor();
    await accessible(page, "a session with an agent that was asked");
    await picture(page, "asked-wide-light");
    await child.click();
    await page.getByRole("link", { name: "‹ The run that asked" }).click();
    await page.getByText("Asked another agent:").waitFor();
    await page.getByRole("link", { name: "Its run" }).click();
    await page.getByRole("link", { name: "‹ Session", exact: true }).click();
    await page.getByRole("link", { name: "‹ The session that it comes from" }).click();
    equal(new URL(page.url()).pathname, `/console/session/${of}`, "the address");
  });

  await check("what a model writes is shown while it writes, and is a message in the end", async (tab) => {
    const of = await session(server, persona("clerk"));
    const page = await tab({ server });
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.live();
    await page.getByLabel("Message").fill("Tell it slowly");
    await page.button("Send").click();
    await page.getByText("Once upon a time <b>there was", { exact: true }).waitFor();
    await page.getByText("The agent writes").waitFor();
    await page.getByLabel("Message").fill("And a second thing");
    await page.button("Send").click();
    const waits = page.locator(".message.queued", { hasText: "And a second thing" });
    await waits.getByText("Waits for its turn").waitFor();
    await accessible(page, "an agent that writes");
    await picture(page, "writing-wide-light");
    // Who comes in the midst of it sees what is written from then on.
    const late = await tab({ server });
    await late.open(`/console/session/${of}`);
    await late.getByText("The agent works…").waitFor();
    await late.live();
    await rest(500);
    goOn();
    await late.getByText("… a dormouse</b>.", { exact: true }).waitFor();
    goOn();
    await page.getByText("Once upon a time <b>there was a dormouse</b>.", { exact: true }).waitFor();
    await page.getByText("The agent writes").waitFor({ state: "detached" });
    equal(await page.getByText("Once upon a time").count(), 1, "times that it stands there");
    await waits.waitFor({ state: "detached" });
    const told = (await page.locator(".talk .message :is(p.text,.said)").allInnerTexts()).slice(0, 3);
    equal(told, ["Tell it slowly", "Once upon a time <b>there was a dormouse</b>.", "And a second thing"], "in the order in which it was done");
  });
}
