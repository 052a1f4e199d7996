// A server of tools (MCP over stdio) whose tool asks a person with a form of every kind of field, and tells what it was answered.

import readline from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const schema = {
  type: "object",
  required: ["color", "sure", "count", "topics"],
  properties: {
    color: { type: "string", title: "Which color?", description: "Of the door", oneOf: [{ const: "r", title: "Red" }, { const: "b", title: "Blue" }] },
    sure: { type: "boolean", title: "Are you sure?" },
    count: { type: "integer", minimum: 1 },
    weight: { type: "number", default: 2.5 },
    topics: { type: "array", items: { type: "string", enum: ["doors", "<b>windows</b>"] } },
    day: { type: "string", format: "date" },
    note: { type: "string", maxLength: 40 },
  },
};
const waiting = new Map();
let asked = 0;

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === "initialize") send({ id, result: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "painter", version: "1" } } });
  else if (method === "tools/list") send({ id, result: { tools: [{ name: "paint", description: "Paints.", inputSchema: { type: "object", properties: {} }, annotations: { readOnlyHint: true } }] } });
  else if (method === "tools/call") {
    const question = `q${asked += 1}`;
    waiting.set(question, id);
    send({ id: question, method: "elicitation/create", params: { message: "How shall it be painted?", requestedSchema: schema } });
  } else if (method === undefined && waiting.has(id)) {
    send({ id: waiting.get(id), result: { content: [{ type: "text", text: JSON.stringify(result ?? "refused") }] } });
    waiting.delete(id);
  } else if (id !== undefined && method) send({ id, result: {} });
});
