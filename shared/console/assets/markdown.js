// The part of Markdown that models write, as elements. All else, HTML above all, is the text that it is.
// Whatever stands there, it takes a time that grows with its length.

import { become, calmly, clean, command, goOn, h, howMuch } from "./dom.js";

/** What is deeper is text. */
const DEEP = 12;
const STEP = 65536;

const MARK = /\\[!-/:-@[-`{-~\n]|`+|\*+|_+|~+|!?\[|\]|<|https?:\/\//g;
const TARGET = /\([ \n]*(?:<([^<>\n]+)>|((?:[^\s()<\\]|\\.|\([^\s()]*\))+))(?:[ \n]+"[^"]*")?[ \n]*\)/y;
const BARE = /https?:\/\/(?:[^\s<>[\]()`"|\\]|\([^\s<>[\]()`"|\\]*\))+/y;

const address = (to) => { try { return /^(?:https?:\/\/|mailto:)/i.test(to) && new URL(to); } catch { return null; } };

/** A link. Words that look like another address are followed by where it leads. */
function link(url, words) {
  const made = h("a", { target: "_blank", rel: "noopener noreferrer", title: url.href }, words);
  made.setAttribute("href", url.href);
  for (const inner of made.querySelectorAll("a")) inner.replaceWith(h("span", {}, [...inner.childNodes]));
  const said = made.textContent.trim(); const place = url.host || url.pathname;
  if (!said) made.append(url.href);
  const isOther = /[^\s.][.@][^\s.]/.test(said) && said.match(/^(?:https?:\/\/|mailto:)?([^\s/?#]*)/i)[1].toLowerCase() !== place.toLowerCase();
  return isOther ? h("span", {}, made, ` (${place})`) : made;
}

function joined(tokens) {
  const all = [];
  for (const one of tokens) all.push(typeof one === "string" && typeof all.at(-1) === "string" ? all.pop() + one : one);
  return all;
}

function inline(text, isCell) {
  const tokens = []; const run = /`+/g; const runs = {};
  for (const found of text.matchAll(run)) runs[found[0]] = found.index;
  const open = []; let end = 0; let match;
  const is = (pattern, from) => { pattern.lastIndex = from; match = pattern.exec(text); return match; };
  const add = (to, token) => { tokens.push(token); end = to; };
  while (is(MARK, end)) {
    const { 0: mark, index: at } = match; const [first] = mark;
    add(at + mark.length, text.slice(end, at));
    if (open.length > DEEP) open.shift();
    if (first === "\\") add(end, mark[1]);
    else if (first === "`" && runs[mark] > at) {
      for (is(run, end); match[0] !== mark;) is(run, run.lastIndex);
      const code = text.slice(end, match.index).replaceAll("\n", " ");
      add(run.lastIndex, h("code", {}, code.replace(/^ (.+) $/, "$1")));
    } else if (/^(?:\*{1,3}|_{1,3}|~~)$/.test(mark)) {
      const may = (inside, outside = "") => /\S/.test(inside ?? "") && (first !== "_" || !/\w/.test(outside));
      const opens = may(text[end], text[at - 1]); const closes = may(text[at - 1], text[end]);
      const { length } = mark; let count = length;
      for (let place = open.length - 1; closes && count > 0 && place >= 0; place -= 1) {
        const one = open[place];
        if (one.mark !== first || ((one.closes || opens) && length % 3 > 0 && (one.length + length) % 3 === 0)) continue;
        const size = Math.min(2, one.count, count);
        add(end, h(first === "~" ? "del" : size === 2 ? "strong" : "em", {}, joined(tokens.splice(one.at + 1))));
        count -= size; one.count -= size;
        tokens[one.at] = first.repeat(one.count);
        if (one.count > 0) place += 1;
        open.length = place;
      }
      if (opens && count > 0) open.push({ mark: first, at: tokens.length, length, count, closes });
      add(end, first.repeat(count));
    } else if (first === "]") {
      const place = open.findLastIndex((other) => other.mark.endsWith("["));
      const [one] = place < 0 ? [] : open.splice(place, 1);
      const url = one && is(TARGET, end) && address((match[1] ?? match[2]).replace(/\\(?=[!-/:-@[-`{-~])/g, ""));
      if (!url) { add(end, mark); continue; }
      open.length = place;
      const [, ...words] = tokens.splice(one.at);
      // A picture is a link too: fetched, it would tell elsewhere who looks at it.
      add(TARGET.lastIndex, link(url, one.mark === "[" ? joined(words) : text.slice(one.end, at)));
    } else if (first === "h" && is(BARE, at)) {
      const to = match[0].replace(/[?!.,:;*_~']{1,9}$/, "");
      add(at + to.length, address(to) ? link(address(to), to) : to);
    } else if (isCell && is(/<br ?\/?>/y, at)) add(at + match[0].length, "\n");
    else {
      if (mark.endsWith("[")) open.push({ mark, at: tokens.length, end });
      add(end, mark);
    }
  }
  return joined([...tokens, text.slice(end)]);
}

const HEADING = /^ {0,3}#{1,6}[ \t]+(?=\S)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const ITEM = /^ {0,3}(?:[-*+]|(\d{1,9})[.)])(?:( +)(?=\S)|[ \t]*$)/;
/** What ends a paragraph. */
const BEGINS = [HEADING, RULE, QUOTE, FENCE, /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/];
const isBlank = (line) => !line.trim();
const indent = (line) => line.search(/[^ ]|$/);
const without = (line, most) => line.slice(Math.min(most, indent(line)));

// There are no zeros in cleaned text.
const cells = (line) => line.trim().replaceAll("\\|", "\0").replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.replaceAll("\0", "|").trim());

/** How the columns of a table are set. Browsers take long for many. */
function columns(lines, at) {
  if (!lines[at].includes("|") || !/^[ \t|:-]+$/.test(lines[at + 1])) return null;
  const all = cells(lines[at + 1]);
  if (all.length > 50 || all.length !== cells(lines[at]).length || !all.every((one) => /^:?-+:?$/.test(one))) return null;
  return all.map((one) => (!one.endsWith(":") ? null : one.startsWith(":") ? "mid" : "far"));
}

/** The blocks of `lines`; `starts` is given the line of each. */
function blocks(lines, depth = 0, starts = []) {
  const made = []; const isShallow = depth < DEEP; let at = 0; let match;
  const goesOn = (line) => !isBlank(line) && !(isShallow && BEGINS.some((one) => one.test(line)));
  const take = (fits, give = (line) => line) => {
    const taken = [];
    for (; at < lines.length && fits(lines[at], taken.at(-1)); at += 1) taken.push(give(lines[at]));
    return taken;
  };
  while (at < lines.length) {
    const line = lines[at];
    at += 1;
    if (isBlank(line)) continue;
    starts.push(at - 1);
    if ((match = FENCE.exec(line))) {
      const [, fence, info] = match;
      const code = command(take((one) => !one.trim().startsWith(fence) || one.trim().replaceAll(fence[0], ""), (one) => without(one, indent(line))).join("\n"));
      code.dataset.info = info.trim();
      made.push(code);
      at += 1;
    } else if (indent(line) >= 4) made.push(command([line, ...take((one) => isBlank(one) || indent(one) >= 4)].map((one) => without(one, 4)).join("\n").trimEnd()));
    else if (HEADING.test(line)) made.push(h("h2", {}, inline(line.replace(HEADING, "").trim().replace(/[ \t]#+$/, ""))));
    else if (RULE.test(line)) made.push(h("hr"));
    else if (isShallow && QUOTE.test(line)) {
      const bare = (one) => one.replace(QUOTE, "");
      made.push(h("blockquote", {}, blocks([bare(line), ...take((one, last = bare(line)) => QUOTE.test(one) || (goesOn(one) && !isBlank(last)), bare)], depth + 1)));
    } else if (isShallow && (match = ITEM.exec(line))) {
      const kind = ([all]) => all.trim().at(-1); const items = [];
      for (let item = match; item && kind(item) === kind(match); item = at < lines.length && !RULE.test(lines[at]) && ITEM.exec(lines[at])) {
        if (items.length > 0) at += 1;
        const wide = item[2]?.length < 5 ? item[0].length : item[0].trimEnd().length + 1;
        const words = lines[at - 1].slice(wide).replace(/^\[([ xX])\](?=[ \t]+\S)/, (_, mark) => (mark === " " ? "\u2610" : "\u2611"));
        const more = take((one, last = words) => isBlank(one) || indent(one) >= wide || (!isBlank(last) && goesOn(one) && !ITEM.test(one)), (one) => without(one, wide));
        const [inner, ...rest] = blocks([words, ...more], depth + 1);
        items.push(h("li", { class: /^[\u2610\u2611]/.test(words) && "task" }, inner?.matches("p") ? [...inner.childNodes] : inner, rest));
      }
      made.push(h(match[1] ? "ol" : "ul", { start: match[1] }, items));
    } else if ((match = columns(lines, at - 1))) {
      const row = (one, tag) => {
        const all = cells(one);
        if (all.length > match.length) all.push(all.splice(match.length - 1).join(" | "));
        return h("tr", {}, all.map((cell, place) => h(cell ? tag : "td", { class: match[place] }, inline(cell, true))));
      };
      at += 1;
      made.push(h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" }, h("table", {}, h("thead", {}, row(line, "th")), h("tbody", {}, take(goesOn).map((one) => row(one, "td"))))));
    } else made.push(h("p", {}, inline([line, ...take((one) => goesOn(one) && !columns(lines, at))].map((one) => one.trim()).join("\n"))));
  }
  return made;
}

/** What an agent says: a node, and `show` for all of it so far. `around` is called with how to draw that. */
export function paper(text, { limit = 10000, around = (draw) => draw() } = {}) {
  const box = h("div", { class: "told said" }); const node = h("div", { class: "longtext" }, box);
  const more = h("button", { class: "quiet small", type: "button", onclick: () => { limit += STEP; draw(); if (!more.isConnected) goOn(box); } });
  let at = 0; let firm = 0;
  const draw = () => {
    const open = text.slice(at, limit); const lines = open.split("\n"); const starts = [];
    const made = blocks(lines.map((line) => clean(line.replace(/\r$/, "")).replace(/^[ \t]+/, (tabs) => tabs.replaceAll("\t", "    "))), 0, starts);
    become(box, made, firm);
    // What ends before the last two lines stays. A block that does not end is ended.
    const last = Math.max(0, starts.findLastIndex((start) => start < lines.length - 2));
    const isLong = last === 0 && open.length > 2 * STEP && !FENCE.test(lines[starts[0]]);
    firm += isLong ? made.length : last;
    at += isLong ? open.length : lines.slice(0, starts[last] ?? 0).reduce((all, line) => all + line.length + 1, 0);
    if (limit < text.length) { more.textContent = howMuch(limit, text.length); if (!more.isConnected) node.append(more); } else more.remove();
  };
  draw();
  const later = calmly(() => around(draw));
  return { node, show(now) { text = now; later(); } };
}
