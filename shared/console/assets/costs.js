// What models cost, day by day, and what sleeping would have cost on a server that is always on.

import { empty, h, put, told, trouble, waiting } from "./dom.js";
import { barPicture } from "./pictures.js";
import { count, dollars, lasting } from "./words.js";

/** Dollars an hour of the smallest container that is always on: 0.25 vCPU and 0.5 GB of Fargate in us-east-1, 2025. */
const SERVER = 0.25 * 0.04048 + 0.5 * 0.004445;
/** Dollars of a task that sleeps until it is approved, without compute, as measured. */
const TASK = 29.44e-6;
/** Dollars a month of a sleeper of 4 KB, with point-in-time recovery. */
const SLEEPER = 1.8e-6;
const MOST_PAGES = 60;

const dayOf = (instant) => instant.slice(0, 10);

export function costsView(app) {
  const node = h("main", { class: "page", tabindex: "0" });
  const wanted = Math.trunc(Number(new URLSearchParams(location.search).get("days")));
  const days = wanted >= 1 ? Math.min(wanted, 366) : 30;
  let left = false;
  const abort = new AbortController();
  const load = async () => {
    const begin = new Date(Date.now() - (days - 1) * 86400000);
    const byDay = new Map(); const byModel = new Map(); const asleepSince = new Map();
    for (let day = 0; day < days; day += 1) byDay.set(dayOf(new Date(begin.getTime() + day * 86400000).toISOString()), { cost: 0, tokens: 0, calls: 0, runs: 0 });
    const sums = { cost: 0, tokens: 0, calls: 0, runs: 0, asleep: 0, events: 0 };
    const note = h("p", { class: "waiting", role: "status" });
    put(node, heading(days), note);
    const soon = setTimeout(() => { note.textContent = "Adding up the events…"; }, 300);
    try {
      const { first } = await app.client.get(`/v1/x-feed?since=${encodeURIComponent(`${dayOf(begin.toISOString())}T00:00:00Z`)}`, abort.signal);
      let isWhole = true;
      if (first) {
        let pages = 0;
        const begun = await app.client.get(`/v1/events/${encodeURIComponent(first)}`).catch(() => null);
        if (begun) take(begun);
        for await (const page of app.client.pages("/v1/events?limit=200", { most: MOST_PAGES, name: "after_event_id", from: first, signal: abort.signal })) {
          page.data.forEach(take);
          pages += 1;
          if (pages === MOST_PAGES) isWhole = !page.page.has_more;
          note.textContent = `${count(sums.events)} events so far…`;
          if (left) return;
        }
      }
      const now = Date.now();
      for (const since of asleepSince.values()) sums.asleep += now - since;
      draw(isWhole);
    } catch (error) { if (!left) put(node, heading(days), trouble(error, load)); } finally { clearTimeout(soon); }

    function take(event) {
      const day = byDay.get(dayOf(event.created_at));
      const { payload = {} } = event;
      sums.events += 1;
      // A replay asks no model, and costs nothing.
      if (!day || event.replayed) return;
      if (event.event === "task.submitted") { day.runs += 1; sums.runs += 1; }
      if (event.event === "task.input_required" || event.event === "task.auth_required") asleepSince.set(event.task_id, Date.parse(event.created_at));
      else if (event.event.startsWith("task.") && asleepSince.has(event.task_id)) { sums.asleep += Date.parse(event.created_at) - asleepSince.get(event.task_id); asleepSince.delete(event.task_id); }
      // The end of a run tells the sum of what its calls have told.
      if (!payload.usage || event.event === "vendor.dormouse.run_ended") return;
      const usage = payload.usage;
      const tokens = Number(usage.total_tokens ?? (usage.prompt_tokens ?? usage.input_tokens ?? 0) + (usage.completion_tokens ?? usage.output_tokens ?? 0)) || 0;
      const cost = Number(payload.cost) || 0;
      const model = String(payload["gen_ai.request.model"] ?? "unknown").slice(0, 80);
      const of = byModel.get(model) ?? { calls: 0, tokens: 0, cost: 0 };
      byModel.set(model, { calls: of.calls + 1, tokens: of.tokens + tokens, cost: of.cost + cost });
      for (const to of [day, sums]) { to.cost += cost; to.tokens += tokens; to.calls += 1; }
    }

    function draw(isWhole) {
      const rows = [...byDay].map(([day, one]) => ({ day, value: one.cost, label: `${dollars(one.cost)}, ${count(one.tokens)} tokens, ${count(one.calls)} calls, ${count(one.runs)} runs`, ...one }));
      const table = (head, body) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": head[0] }, h("table", {}, h("thead", {}, h("tr", {}, head.map((one) => h("th", { scope: "col" }, one)))), h("tbody", {}, body.map((cells) => h("tr", {}, cells.map((cell, index) => h(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : {}, cell)))))));
      const server = SERVER * 24 * days;
      put(node, heading(days), !isWhole && h("p", { class: "hint" }, `Only the first ${count(sums.events)} events of these days are counted: choose fewer days.`),
        sums.events === 0 && empty("Nothing was done in these days", h("p", {}, "What models cost stands here as soon as an agent has asked one. Sleeping costs nothing to compute, and is counted too.")),
        h("div", { class: "figures" }, figure(dollars(sums.cost), "models"), figure(count(sums.tokens), "tokens"), figure(count(sums.runs), "runs"), figure(lasting(sums.asleep), "slept, for free")),
        h("h2", {}, "Models, day by day"), sums.calls > 0 ? barPicture(rows, "Models") : h("p", { class: "quiet" }, "No model was asked in these days."),
        byModel.size > 0 && [h("h2", {}, "By model"), table(["Model", "Calls", "Tokens", "Cost"], [...byModel].sort((a, b) => b[1].cost - a[1].cost).map(([name, one]) => [told(name, { limit: 80 }), count(one.calls), count(one.tokens), dollars(one.cost)]))],
        h("h2", {}, "Sleeping, and what it would cost awake"),
        table([`${days} days`, "Here", "On a server that is always on"], [["Computing while all sleeps", dollars(0), dollars(server)], ["Runs, each slept and approved once", dollars(sums.runs * TASK), "–"], [`Keeping the tasks that sleep now (${count(asleepSince.size)}), a month`, dollars(asleepSince.size * SLEEPER), "–"]]),
        h("p", { class: "quiet small" }, `A day begins at midnight UTC. Figures of AWS in us-east-1 as of 2025: a slept and approved task ${dollars(TASK)} without compute, a sleeper of 4 KB ${dollars(SLEEPER)} a month. The server is the smallest container of Fargate, 0.25 vCPU and 0.5 GB, ${dollars(SERVER)} an hour. Costs of models are those that the runs recorded; a local model costs nothing.`),
        h("details", {}, h("summary", {}, "The numbers of each day"), table(["Day", "Models", "Tokens", "Calls", "Runs"], rows.map((row) => [row.day, dollars(row.cost), count(row.tokens), count(row.calls), count(row.runs)]))));
    }
  };
  const figure = (value, name) => h("div", { class: "figure" }, h("strong", {}, value), h("span", {}, name));
  load();
  return { title: "Costs", node, leave: () => { left = true; abort.abort(); } };
}

const heading = (days) => h("div", { class: "head" }, h("h1", {}, "Costs"), h("nav", { class: "actions", "aria-label": "Days" }, [7, 30, 90].map((one) => h("a", { class: "button", href: `/console/costs?days=${one}`, "aria-current": one === days ? "true" : null }, `${one} days`))));
