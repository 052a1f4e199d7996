// Pictures: where a run stands in its graph, its time with sleep to scale, a month in bars.

import { h, s } from "./dom.js";
import { count, dollars, lasting, stamp } from "./words.js";

const ROW = 58; const WIDE = 148; const HIGH = 34;

/** The graph of an agent: what has run, where it stands, what may follow. */
export function graphPicture(shape, { done = [], here = "" } = {}) {
  const nodes = shape.nodes;
  const place = new Map(nodes.map((node, index) => [node.name, index]));
  const passed = new Set(done.map((step) => step.split("/")[0]));
  const stands = here.split("/")[0];
  const hasEnd = nodes.some((node) => node.decides || node.next === null);
  const height = nodes.length * ROW + (hasEnd ? 30 : 0);
  const left = 120; const middle = left + WIDE / 2;
  const y = (index) => 10 + index * ROW;
  const picture = s("svg", { viewBox: `0 0 ${left + WIDE + 120} ${height}`, class: "graph", role: "img", "aria-label": describe(shape, passed, stands) });
  picture.append(s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto-start-reverse" }, s("path", { d: "M0 0L8 4L0 8z", class: "tip" }))));
  const linked = new Set(nodes.map((node) => node.next));
  const edge = (from, to, look) => {
    const isNext = to === from + 1;
    const above = to <= from;
    const bend = 26 + Math.min(70, Math.abs(to - from) * 12);
    const d = isNext ? `M${middle} ${y(from) + HIGH}V${y(to) - 2}`
      : to === nodes.length ? `M${left + WIDE} ${y(from) + HIGH / 2}C${left + WIDE + bend} ${y(from) + HIGH / 2} ${left + WIDE + bend} ${y(to) + 12} ${middle + 11} ${y(to) + 12}`
      : above ? `M${left} ${y(from) + HIGH / 2}C${left - bend} ${y(from) + HIGH / 2} ${left - bend} ${y(to) + HIGH / 2} ${left - 3} ${y(to) + HIGH / 2}`
        : `M${left + WIDE} ${y(from) + HIGH / 2}C${left + WIDE + bend} ${y(from) + HIGH / 2} ${left + WIDE + bend} ${y(to) + HIGH / 2} ${left + WIDE + 3} ${y(to) + HIGH / 2}`;
    picture.append(s("path", { d, class: `edge ${look}`, "marker-end": "url(#tip)" }));
  };
  nodes.forEach((node, index) => {
    if (node.next !== null) edge(index, place.get(node.next) ?? nodes.length, "");
    else if (!node.decides) edge(index, nodes.length, "");
    else {
      // A function of the state decides; where it does not say among what, it may lead to what nothing else leads to.
      const may = node.among ?? nodes.filter((other) => other.name !== shape.entry && !linked.has(other.name) && other !== node).map((other) => other.name);
      for (const name of may) edge(index, place.get(name) ?? nodes.length, "may");
      edge(index, nodes.length, "may");
    }
  });
  nodes.forEach((node, index) => {
    const look = node.name === stands ? "here" : passed.has(node.name) ? "passed" : "ahead";
    const title = [node.name, node.kind === "function" ? "" : node.kind.replace("_", "-"), node.durable ? "committed when it ends" : "", node.decides ? "decides what follows" : ""].filter(Boolean).join(", ");
    picture.append(s("g", { class: `node ${look}` },
      s("title", {}, title),
      s("rect", { x: left, y: y(index), width: WIDE, height: HIGH, rx: node.decides ? 17 : 7 }),
      node.kind !== "function" && s("rect", { x: left + 4, y: y(index) + 4, width: WIDE - 8, height: HIGH - 8, rx: 5, class: "inner" }),
      s("text", { x: middle, y: y(index) + HIGH / 2 + 4.5, "text-anchor": "middle" }, cut(node.name, 18)),
      node.name === stands && s("text", { x: left - 12, y: y(index) + HIGH / 2 + 4.5, "text-anchor": "end", class: "note" }, "stands here")));
  });
  if (hasEnd) picture.append(s("g", { class: "node end" }, s("circle", { cx: middle, cy: y(nodes.length) + 12, r: 8 }), s("circle", { cx: middle, cy: y(nodes.length) + 12, r: 4, class: "dot" })));
  return picture;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function describe(shape, passed, stands) {
  const names = shape.nodes.map((node) => `${node.name}${node.name === stands ? " (stands here)" : passed.has(node.name) ? " (done)" : ""}`);
  return `Graph ${shape.name}: ${names.join(", ")}`;
}

/** The time of a run. `spans`: {from, to, kind: sleep|work|call, label}, instants as numbers; sleep to scale. */
export function timePicture(spans, begin, end, { open = false } = {}) {
  const width = 1000; const lane = 30; const lanes = { sleep: 0, work: 1, call: 2 };
  const used = [...new Set(spans.map((span) => span.kind))].sort((a, b) => lanes[a] - lanes[b]);
  const total = Math.max(1, end - begin);
  const x = (instant) => ((instant - begin) / total) * width;
  const height = used.length * (lane + 8) + 2;
  const asleep = sum(spans, "sleep");
  const words = `${lasting(total)} in all, ${lasting(asleep)} of it asleep`;
  const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "timeline", role: "img", "aria-label": words, preserveAspectRatio: "none" });
  picture.append(s("defs", {}, s("pattern", { id: "dusk", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 7, height: 7, class: "dusk" }), s("line", { x1: 0, y1: 0, x2: 0, y2: 7, class: "duskline" }))));
  for (let part = 0; part <= 4; part += 1) picture.append(s("line", { x1: (width * part) / 4, x2: (width * part) / 4, y1: 0, y2: height, class: "tick" }));
  const drawn = new Set();
  for (const span of spans) {
    const row = used.indexOf(span.kind) * (lane + 8);
    const from = x(span.from); const wide = Math.max(3, x(span.to) - from);
    // Of those that are no wider than a stroke one is seen in a place.
    const place = `${span.kind} ${Math.round(from)}`;
    if (wide === 3 && drawn.has(place)) continue;
    drawn.add(place);
    picture.append(s("g", { class: `span ${span.kind}` }, s("title", {}, `${span.label}: ${lasting(span.to - span.from)}, from ${stamp(new Date(span.from).toISOString())}`), s("rect", { x: Math.min(from, width - 3), y: row + 2, width: wide, height: lane, rx: 3 })));
  }
  if (open) picture.append(s("line", { x1: width - 1, x2: width - 1, y1: 0, y2: height, class: "nowline" }));
  const names = { sleep: "asleep, free", work: "working", call: "model and tools" };
  const legend = h("ul", { class: "legend" }, used.map((kind) => h("li", {}, h("span", { class: `key ${kind}` }), `${names[kind]} ${lasting(sum(spans, kind))}`)));
  return h("figure", { class: "picture" }, picture, h("div", { class: "axis" }, h("span", {}, stamp(new Date(begin).toISOString())), h("span", {}, open ? "now" : stamp(new Date(end).toISOString()))), h("figcaption", {}, words, legend));
}

const sum = (spans, kind) => spans.filter((span) => span.kind === kind).reduce((all, span) => all + span.to - span.from, 0);

/** A bar for each day. `days`: {day, value, label}. */
export function barPicture(days, name) {
  const width = 1000; const height = 160;
  const most = Math.max(...days.map((day) => day.value), 1e-9);
  const step = width / days.length;
  const total = days.reduce((all, day) => all + day.value, 0);
  const picture = s("svg", { viewBox: `0 0 ${width} ${height + 4}`, class: "bars", role: "img", "aria-label": `${name} by day, ${dollars(total)} in all; the table below has the numbers`, preserveAspectRatio: "none" });
  for (let part = 0; part <= 3; part += 1) picture.append(s("line", { x1: 0, x2: width, y1: (height * part) / 3 + 1, y2: (height * part) / 3 + 1, class: "tick" }));
  days.forEach((day, index) => {
    const tall = day.value > 0 ? Math.max(2, (day.value / most) * (height - 8)) : 0;
    picture.append(s("g", { class: "bar" }, s("title", {}, `${day.day}: ${day.label}`), s("rect", { x: index * step + step * 0.14, y: height - tall, width: step * 0.72, height: tall, rx: 2 })));
  });
  return h("figure", { class: "picture" }, picture, h("div", { class: "axis" }, h("span", {}, days[0].day), h("span", {}, `most in a day: ${dollars(most < 1e-8 ? 0 : most)}`), h("span", {}, days.at(-1).day)), h("figcaption", {}, `${name}: ${dollars(total)} in ${count(days.length)} days`));
}
