// Who is here: agents with their graphs, models and tools, and what is disabled and why.

import { empty, folded, h, put, told, tree, trouble, waiting } from "./dom.js";
import { graphPicture } from "./pictures.js";

const TIER = { shadow: "watches only", suggest: "proposes", act_with_approval: "acts when somebody approves", act_auto: "acts by itself" };

export function catalogView(app) {
  const node = h("main", { class: "page", tabindex: "0" }, waiting("Fetching the catalog…"));
  let left = false;
  /** The list at `path`, where the server offers it. */
  const optional = async (path) => {
    const described = (await app.offered()).paths?.[path.split("?")[0]]?.get;
    return described && !described["x-dormouse-not-offered"] ? app.client.all(path, { most: 5 }) : [];
  };
  const load = async () => {
    try {
      const [personas, graphs, tools, skills] = await Promise.all([app.client.all("/v1/personas?limit=200", { most: 10 }), app.graphs().catch(() => []), optional("/v1/tools?limit=200"), optional("/v1/skills?limit=200")]);
      const found = await optional("/v1/x-catalog");
      if (left) return;
      const usable = (kind) => found.filter((one) => one.kind === kind && one.enabled);
      put(node, h("h1", {}, "Catalog"), h("h2", {}, "Agents"), personas.length === 0 ? empty("No agent is served here", h("p", {}, "dormouse new makes a package with one, dormouse new --template assistant a folder with one.")) : h("div", { class: "cards" }, personas.map((persona) => agent(persona, graphs))),
        listed("Agents that others ask", usable("subagent")), listed("Models", usable("model")), listed("Tools", tools), listed("Servers of tools", usable("tool").filter((one) => !tools.some((tool) => tool.name === one.name))), listed("Actions", usable("action")), listed("Skills", skills), listed("Where commands work", usable("tier")), listed("Hooks", usable("hook")), listed("Mistakes in the files", found.filter((one) => one.kind === "problem")), listed("Disabled", found.filter((one) => !one.enabled && one.kind !== "problem").map((one) => ({ ...one, description: `${one.kind}. ${one.description}` }))));
    } catch (error) { if (!left) put(node, h("h1", {}, "Catalog"), trouble(error, load)); }
  };
  load();
  return { title: "Catalog", node, leave: () => { left = true; } };
}

function agent(persona, graphs) {
  const shape = graphs.find((graph) => graph.name === persona.entry_workflow);
  return h("section", { class: "card" }, h("h3", {}, told(persona.name, { limit: 80 })), persona.description && told(persona.description, { tag: "p", limit: 400 }), h("p", { class: "quiet" }, `Version ${persona.version} · ${TIER[persona.autonomy_tier] ?? persona.autonomy_tier}`),
    persona.tools?.length > 0 && h("p", {}, "Tools: ", told(persona.tools.join(", "), { limit: 300 })), Object.keys(persona.model_policy ?? {}).length > 0 && folded("Models", () => tree(persona.model_policy)),
    shape && folded(`Graph of ${shape.nodes.length} nodes`, () => graphPicture(shape)));
}

const listed = (title, all) => (all.length === 0 ? null : [h("h2", {}, title), h("ul", { class: "plain" }, all.map((one) => h("li", {}, h("strong", {}, told(one.name, { limit: 80 })), " ", told(one.description ?? "", { limit: 300, name: "quiet" }), (one.reasons ?? []).map((reason) => h("p", { class: "outcome bad" }, told(reason, { limit: 400 }))))))]);
