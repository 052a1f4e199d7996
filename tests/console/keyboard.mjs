// Without a mouse: every way through the console, from the way in to the last answer.

import { accessible, check, equal, holds } from "./browser.mjs";
import { expense, said, session, task, until } from "./world.mjs";

/** Presses Tab until what has the focus is called `name`. */
async function tabTo(page, name, most = 60) {
  for (let press = 0; press < most; press += 1) {
    await page.keyboard.press("Tab");
    const is = await page.evaluate(() => { const one = document.activeElement; return one.matches("a, button, summary, input, textarea, select") ? `${one.labels?.[0]?.innerText ?? ""} ${one.getAttribute("aria-label") ?? ""} ${one.innerText ?? ""}` : ""; });
    if (name.test(is)) return;
  }
  throw new Error(`Tab never comes to ${name}`);
}

const focus = (page) => page.evaluate(() => `${document.activeElement.localName} ${document.activeElement.innerText ?? ""}`);

export async function keyboard(shipped, clerk, ofClerk) {
  await check("keys alone: sign in, find, open, deny with a reason, go to the next one", async (tab) => {
    const first = await expense(shipped, "hands on the keys, one");
    await expense(shipped, "hands on the keys, two");
    const page = await tab({ server: shipped, key: null });
    await page.open("/console");
    await page.getByLabel("API key").waitFor();
    await page.keyboard.type(shipped.key);
    await page.keyboard.press("Enter");
    await page.live();
    await page.getByRole("link", { name: /hands on the keys, one/ }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("hands on the keys");
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await until("the title of the request has the focus", async () => (await focus(page)).startsWith("h1 Ada asks for EUR 120.00 for hands on the keys, one"));
    // A slow g, then a: nobody meant to approve.
    await page.keyboard.press("a");
    equal([await focus(page), (await shipped.get(`/v1/x-pauses/${first.invocation_id}`)).status], ["button Approve", "asleep"], "a single letter chooses, and does nothing");
    await page.keyboard.press("d");
    equal(await focus(page), "button Deny", "what has the focus");
    await page.keyboard.press("Enter");
    await page.sees(/Answered|Denied/);
    await until("the next one is offered", async () => (await focus(page)).startsWith("a Next: "));
    await page.keyboard.press("n");
    await until("the next title has the focus", async () => /^h1 .*hands on the keys, two/.test(await focus(page)));
    await page.keyboard.press("Escape");
    await until("back in the list, at its row", async () => /^a .*hands on the keys, two/.test(await focus(page)));
    await page.keyboard.press("k"); await page.keyboard.press("End"); await page.keyboard.press("Home");
    holds(await page.evaluate(() => document.activeElement.closest(".row") !== null), "the list keeps the focus");
  });

  await check("who closes a dialog stands where it was opened, and who listens is told what is new alone", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/sessions");
    await page.live();
    const begin = page.button("New session").first();
    await begin.focus();
    await page.keyboard.press("Enter");
    await page.locator("dialog[open]").waitFor();
    await page.keyboard.press("Escape");
    await until("the button has the focus", async () => (await focus(page)) === "button New session");
    equal(await page.locator(".toast[role=status]").count(), 1, "places in which something will be said");
    await page.open("/console/inbox");
    await page.sees(/waits? for an answer$/);
    const counted = page.locator(".counted");
    await counted.evaluate((line) => { line.firstChild.isKnown = true; });
    await page.getByLabel("Find in requests").dispatchEvent("input");
    holds(await counted.evaluate((line) => line.firstChild.isKnown), "the same number is not told again");
    const talk = await tab({ server: shipped });
    await talk.clock.install();
    await talk.open(`/console/session/${await session(shipped, "persona_chat")}`);
    await talk.getByText("Nothing was said yet.").waitFor();
    const log = talk.getByRole("log");
    equal(await log.getAttribute("aria-live"), "off", "what was there when somebody came");
    await talk.clock.runFor(1500);
    equal(await log.getAttribute("aria-live"), "polite", "what is said from then on");
  });

  await check("who asks for more goes on where it begins", async (tab) => {
    const page = await tab({ server: shipped });
    await page.open("/console/catalog");
    await page.live();
    const seen = await page.evaluate(async () => {
      const [{ told, tree }, { paper }] = await Promise.all([import("/console/dom.js"), import("/console/markdown.js")]);
      const shown = (node) => { document.querySelector("#content").replaceChildren(node); return node; };
      const press = (node) => { const more = node.querySelector("button"); more.focus(); more.click(); return document.activeElement; };
      const ofText = (node) => [press(node) === node.querySelector("button"), press(node) === node.querySelector(".told")];
      const names = shown(tree(Object.fromEntries(Array.from({ length: 130 }, (_, at) => [`name ${at}`, at]))));
      return [...ofText(shown(told("a".repeat(70000)))), ...ofText(shown(paper("word\n\n".repeat(20000)).node)), ...[60, 120].map((first) => press(shown(names)).textContent.startsWith(`name ${first}`))];
    });
    equal(seen, [true, true, true, true, true, true], "a text, an answer and names, in the midst and at their ends");
  });

  await check("keys alone: arguments are changed and approved, a run is canceled, a session begins, says something and closes", async (tab) => {
    const id = await task(clerk, ofClerk, said("Send a letter by keys"));
    const before = clerk.letters.length;
    const page = await tab({ server: clerk });
    await page.open(`/console/inbox/${id}`);
    await page.button("Approve").waitFor();
    await tabTo(page, /Change the arguments/);
    await page.keyboard.press("Enter");
    await tabTo(page, /Arguments, a JSON object/);
    await page.keyboard.press("Control+a");
    await page.keyboard.type(JSON.stringify({ to: "ada@example.com", text: "typed" }));
    await tabTo(page, /^\W*Approve/);
    await page.keyboard.press("Enter");
    await page.sees("Approved. It goes on.");
    await until("the letter is sent", () => clerk.letters.length === before + 1);
    equal(clerk.letters[before], { to: "ada@example.com", text: "typed" }, "the letter");
    const other = await task(clerk, ofClerk, said("Send a letter that is canceled"));
    await page.open(`/console/asleep/${other}`);
    await page.button("Approve").waitFor();
    await tabTo(page, /Cancel this run/);
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await accessible(page, "the question before a run is canceled");
    await page.keyboard.type("by mistake");
    await tabTo(page, /Leave it as it is/);
    await page.keyboard.press("Enter");
    equal((await clerk.get(`/v1/tasks/${other}`)).status, "AUTH_REQUIRED", "it goes on to wait");
    await until("the button has the focus again", async () => (await focus(page)).includes("Cancel this run"));
    await page.keyboard.press("Enter");
    await tabTo(page, /^\W*Cancel the run/);
    await page.keyboard.press("Enter");
    await page.sees("It was canceled.");
    await until("the title has the focus where the button is gone", async () => (await focus(page)).startsWith("h1 "));
    await page.keyboard.press("g"); await page.keyboard.press("s");
    await page.getByRole("heading", { name: "Sessions" }).waitFor();
    await tabTo(page, /New session/);
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await accessible(page, "a new session");
    await tabTo(page, /Begin/);
    await page.keyboard.press("Enter");
    await page.getByLabel("Message").waitFor();
    await page.getByText("Nothing was said yet.").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("Good morning, by keys");
    await page.keyboard.press("Enter");
    await page.sees("You said: Good morning, by keys");
    await page.keyboard.press("Escape");
    await page.locator(".head h1").click();
    await tabTo(page, /Fork/);
    await page.keyboard.press("Enter");
    await page.sees("Forked: this is the new one.");
    await page.goBack();
    await page.sees("You said: Good morning, by keys");
    for (const [name, yes, words] of [[/Cut last turn/, /^\W*Cut it off/, "The last turn is cut off."], [/^\W*Close$/, /^\W*Close it/, "Closed."]]) {
      await page.locator(".head h1").click();
      await tabTo(page, name);
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      await tabTo(page, yes);
      await page.keyboard.press("Enter");
      await page.getByText(words).waitFor();
    }
    await page.getByLabel("Message").waitFor({ state: "hidden" });
  });

  await check("letters as keys can be turned off, and Tab alone still leads everywhere", async (tab) => {
    const { invocation_id: id } = await expense(shipped, "without letters");
    const page = await tab({ server: shipped });
    await page.open(`/console/inbox/${id}`);
    await page.button("Approve").waitFor();
    await page.keyboard.press("?");
    await page.getByLabel("Letters are keys, without Ctrl or Alt").uncheck();
    await page.keyboard.press("Escape");
    await page.keyboard.press("a");
    holds((await focus(page)) !== "button Approve", "a is no key any more");
    await page.keyboard.press("g"); await page.keyboard.press("c");
    equal(new URL(page.url()).pathname, `/console/inbox/${id}`, "the address");
    await page.reload();
    await page.button("Approve").waitFor();
    const seen = new Set();
    for (let press = 0; press < 80; press += 1) {
      await page.keyboard.press("Tab");
      for (const word of await page.evaluate(() => { const one = document.activeElement; if (one === document.body) return []; const box = one.getBoundingClientRect(); const style = getComputedStyle(one); return [one.innerText?.trim().split("\n")[0] || one.getAttribute("aria-label") || "", style.outlineStyle !== "none" || box.width === 0 ? "" : `no ring: ${one.outerHTML.slice(0, 80)}`]; })) if (word) seen.add(word);
    }
    for (const name of ["Inbox", "Sessions", "Asleep", "Catalog", "Costs", "Theme: auto", "Keys", "Sign out", "Approve", "Deny", "Where it stands", "Details", "Cancel this run…"]) holds(seen.has(name), `Tab comes to ${name}: ${[...seen].join(", ")}`);
    equal([...seen].filter((one) => one.startsWith("no ring")), [], "what has the focus and does not show it");
  });
}
