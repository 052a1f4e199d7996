// The browser: pages that are watched for errors, foreign requests and markup that comes alive; checks, and their count.

import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const modules = process.env.MODULES;
const requiring = createRequire(`${modules}/from.js`);
const { chromium } = requiring("playwright-core");
const axe = fs.readFileSync(requiring.resolve("axe-core/axe.min.js"), "utf8");
const { default: packed } = await import(path.join(modules, "@sparticuz/chromium/build/index.js"));

export const PHONE = { width: 390, height: 844 };
export const WIDE = { width: 1360, height: 860 };

export const browser = await chromium.launch({ executablePath: await packed.executablePath(), args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", ...(process.env.ASSETS ? ["--disable-features=LocalNetworkAccessChecks"] : [])], headless: true });

/** Everything that no page may do, as it was seen. */
export const faults = [];
/** Bytes of code and style by file, as they came over the wire. */
export const sizes = new Map();
let checks = 0; let failed = 0; let current = "";

export async function check(name, work) {
  if (process.env.ONLY && !name.includes(process.env.ONLY)) return;
  const begin = Date.now();
  current = name;
  checks += 1;
  const before = faults.length;
  const open = [];
  try {
    await work((options) => tab(options, open));
    if (faults.length > before) throw new Error(faults.slice(before).join("\n"));
    console.log(`ok      ${name} (${Date.now() - begin} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n        ${String(error.stack ?? error).split("\n").slice(0, 40).join("\n        ")}`);
    for (const one of open) await told(one);
    for (const one of open) await one.screenshot({ path: path.join(process.env.PICTURES, `failed-${checks}.png`), timeout: 5000 }).catch(() => {});
  }
  for (const one of open) await one.context().close().catch(() => {});
}

/** Prints where `page` is, and what it shows: who reads the log of a failed check sees no picture. */
async function told(page) {
  const shows = await Promise.race([page.evaluate(() => document.body.innerText), new Promise((done) => setTimeout(done, 5000, "(it does not answer)"))]).catch((error) => String(error));
  console.log(`        ${page.url()} shows: ${shows.replace(/\s+/g, " ").slice(0, 700)}`);
}

export function summary() {
  console.log(`console: ${checks - failed} passed, ${failed} failed`);
  return failed === 0 && checks > 0 ? 0 : 1;
}

/** A page that is signed in with `key`, in a context of its own or in that of another page. */
async function tab({ server, base = server?.base, key = server?.key, size = WIDE, dark = false, beside = null, expects = [], also = [], locale = "en-GB" } = {}, open) {
  const context = beside ? beside.context() : await browser.newContext({ viewport: size, colorScheme: dark ? "dark" : "light", locale, timezoneId: "UTC", reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(120000);
  open.push(page);
  const home = new URL(base).origin;
  const fault = (words) => faults.push(`${current}: ${words}`);
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    const status = message.text().match(/status of (\d+)/)?.[1];
    if (status && page.expects.includes(Number(status))) return;
    if (/ERR_(CONNECTION|EMPTY|INCOMPLETE|SOCKET)/.test(message.text()) && page.expects.includes(0)) return;
    fault(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => fault(`error: ${error.message}`));
  page.on("dialog", (dialog) => { fault(`something opened a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (![home, ...also].includes(new URL(request.url()).origin)) fault(`a request to ${request.url()}`); });
  page.on("response", async (response) => {
    const { pathname } = new URL(response.url());
    if (/^\/console\/.*\.(js|css)$/.test(pathname) && response.status() === 200) {
      const size = await response.request().sizes().catch(() => null);
      if (size) sizes.set(pathname, size.responseBodySize);
    }
  });
  page.expects = expects;
  if (process.env.ASSETS) await fromDisk(page);
  page.base = base;
  if (key) await page.addInitScript((kept) => { if (!sessionStorage.getItem("left")) sessionStorage.setItem("dormouse-key", kept); }, key);
  await page.addInitScript(() => {
    globalThis.shifts = [];
    new PerformanceObserver((list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) globalThis.shifts.push([one.value, one.sources.map((source) => source.node?.className || source.node?.nodeName)]); }).observe({ type: "layout-shift", buffered: true });
  });
  page.open = async (to) => { await page.goto(base + to); return page; };
  page.sees = (text) => page.getByText(text).first().waitFor();
  page.button = (name) => page.getByRole("button", { name, exact: true });
  page.live = () => page.locator(".state.live").waitFor();
  return page;
}

const KINDS = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html; charset=utf-8" };

/** Gives the files of the folder ASSETS in the place of those that the binary holds: to see a change without a build. */
async function fromDisk(page) {
  await page.route((url) => url.pathname.startsWith("/console"), async (route) => {
    const name = path.basename(new URL(route.request().url()).pathname);
    if (name.endsWith(".json")) { await route.continue().catch(() => {}); return; }
    const file = path.join(process.env.ASSETS, fs.existsSync(path.join(process.env.ASSETS, name)) && name.includes(".") ? name : "index.html");
    const response = await route.fetch().catch(() => null);
    if (response) await route.fulfill({ status: 200, headers: { ...response.headers(), "content-type": KINDS[file.split(".").pop()] }, body: fs.readFileSync(file) }).catch(() => {});
  });
}

/** Everything that axe finds wrong with the page as it stands. */
export async function accessible(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ["violations"] })).violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`));
  if (found.length > 0) throw new Error(`${where}: ${found.join("\n")}`);
}

/** How far what stood on the page has moved by itself: the sum, and what moved. */
export const shifted = (page) => page.evaluate(() => ({ sum: globalThis.shifts.reduce((all, [value]) => all + value, 0), what: globalThis.shifts }));

export const picture = (page, name) => page.screenshot({ path: path.join(process.env.PICTURES, `${name}.png`) });

export function equal(found, expected, what) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what}: ${one}, not ${other}`);
}

export function holds(is, what) {
  if (!is) throw new Error(what);
}
