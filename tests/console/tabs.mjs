// Many tabs, and what one that nobody looks at does not do.

import { check, equal, holds } from "./browser.mjs";
import { cable, session, task, until } from "./world.mjs";

/** A tab that can be hidden and seen again, which a headless browser does not do by itself. */
async function hideable(page) {
  await page.addInitScript(() => {
    globalThis.isHidden = false;
    Object.defineProperty(document, "hidden", { get: () => globalThis.isHidden });
  });
  page.hide = (is) => page.evaluate((now) => { globalThis.isHidden = now; document.dispatchEvent(new Event("visibilitychange")); }, is);
  return page;
}

export async function tabs(shipped) {
  await check("tabs that nobody looks at hold no connection: the sixth still opens, and the first goes on where it was", async (tab) => {
    const of = await session(shipped, "persona_expense-approval");
    const first = await task(shipped, of, { employee: "Tess", amount_cents: 66600, purpose: "the first tab" });
    const pages = [];
    for (let number = 0; number < 6; number += 1) {
      const page = await hideable(await tab({ server: shipped, beside: pages[0] ?? null }));
      await page.open(`/console/session/${of}`);
      await page.live();
      await page.locator(".talk .asks").first().waitFor();
      pages.push(page);
      if (number < 5) await page.hide(true);
    }
    equal(await pages[0].locator(".talk .asks").count(), 1, "requests that the first tab shows");
    await shipped.post(`/v1/tasks/${first}/cancel`, {});
    await pages[5].locator(".talk .mark", { hasText: "Canceled" }).waitFor();
    equal(await pages[0].locator(".talk .mark", { hasText: "Canceled" }).count(), 0, "what a tab that nobody looks at has heard");
    await pages[5].hide(true);
    await pages[0].hide(false);
    await pages[0].locator(".talk .mark", { hasText: "Canceled" }).waitFor();
    await pages[0].live();
  });

  await check("a tab that was not looked at for long asks for what there is, and not for all that was", async (tab) => {
    const page = await hideable(await tab({ server: shipped }));
    const cursors = [];
    page.on("request", (request) => { if (request.url().endsWith("/v1/events/stream")) cursors.push(request.headers()["last-event-id"] ?? null); });
    await page.clock.install();
    await page.open("/console/inbox");
    await page.live();
    await page.hide(true);
    const of = await session(shipped, "persona_expense-approval");
    await task(shipped, of, { employee: "Tess", amount_cents: 66600, purpose: "while nobody looked" });
    await page.clock.fastForward(3600 * 1000);
    const before = cursors.length;
    await page.hide(false);
    await until("it is live again", () => cursors.length > before);
    await page.getByLabel("Find in requests").fill("while nobody looked");
    await page.getByRole("link", { name: /while nobody looked/ }).waitFor();
    holds(cursors.at(-1) && cursors.at(-1) !== cursors[0], `it begins behind what there is: ${cursors}`);
  });

  await check("a tab that was not looked at for long and is seen while the server is away asks for what there is when it is back", async (tab) => {
    const page = await hideable(await tab({ server: shipped, expects: [0] }));
    const cursors = []; let refused = 0;
    page.on("request", (request) => { if (request.url().endsWith("/v1/events/stream")) cursors.push(request.headers()["last-event-id"] ?? null); });
    await page.clock.install();
    await page.open("/console/inbox");
    await page.live();
    const of = await session(shipped, "persona_expense-approval");
    await task(shipped, of, { employee: "Tess", amount_cents: 66600, purpose: "before the lid was closed" });
    await page.getByLabel("Find in requests").fill("the lid was");
    await page.getByRole("link", { name: /before the lid was closed/ }).waitFor();
    await page.hide(true);
    await page.clock.fastForward(3600 * 1000);
    await task(shipped, of, { employee: "Tess", amount_cents: 66600, purpose: "while the lid was closed" });
    const before = cursors.length;
    await page.route("**/v1/sessions?limit=50", (route) => { refused += 1; return refused < 3 ? route.abort("connectionrefused") : route.continue(); });
    await page.hide(false);
    await until("it is live again", () => cursors.length > before);
    holds(refused > 2 && cursors.slice(before).every(Boolean), `none asks for all that ever happened: ${refused} ${cursors}`);
    await page.getByRole("link", { name: /while the lid was closed/ }).waitFor();
  });

  await check("what waits stands in the title, within a minute also where nobody looks at the tab", async (tab) => {
    const page = await hideable(await tab({ server: shipped }));
    await page.clock.install();
    await page.open("/console/catalog");
    await page.live();
    const waits = async () => Number((await page.title()).match(/^\((\d+)\) Catalog · Dormouse$/)?.[1] ?? 0);
    const all = async () => (await shipped.get("/v1/x-pauses?asks=person&limit=1000")).data.length;
    const before = await all();
    await until("the title tells how many wait", async () => await waits() === before);
    await page.hide(true);
    const of = await session(shipped, "persona_expense-approval");
    await task(shipped, of, { employee: "Tess", amount_cents: 66600, purpose: "in the title" });
    await page.clock.fastForward(70 * 1000);
    await until("the title tells of one more", async () => await waits() === before + 1);
  });

  await check("a view that was opened while the server was away is there when it is back", async (tab) => {
    const wire = await cable(shipped.base);
    const page = await tab({ server: shipped, base: wire.base, expects: [0] });
    await page.open("/console/inbox");
    await page.live();
    wire.cut();
    await page.getByText("Offline: trying again").waitFor();
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Catalog" }).click();
    await page.sees("The server does not answer");
    wire.join();
    await page.getByRole("heading", { name: "Agents", exact: true }).waitFor();
  });
}
