// What agents say is Markdown, while they write it and afterwards; what all others say is the text that it is.

import { PHONE, accessible, check, equal, holds, picture } from "./browser.mjs";
import { assistant, rest, said, session, task, until } from "./world.mjs";

/** Texts, and the elements that they are: [tag, …what is in it], a tag with what counts of its attributes. */
const TEXTS = [
  ["One\ntwo  \nthree\\\nfour\n\nfive", [["p", "One\ntwo\nthree\nfour"], ["p", "five"]]],
  ["# One #\n###### Six\n####### Seven\n#tag\nTwo\n---\nThree", [["h2", "One"], ["h2", "Six"], ["p", "####### Seven\n#tag\nTwo"], ["hr"], ["p", "Three"]]],
  ["*a* _b_ **c** __d__ ***e*** ~~f~~ **g *h* i** a*b*c a_b_c", [["p", ["em", "a"], " ", ["em", "b"], " ", ["strong", "c"], " ", ["strong", "d"], " ", ["em", ["strong", "e"]], " ", ["del", "f"], " ", ["strong", "g ", ["em", "h"], " i"], " a", ["em", "b"], "c a_b_c"]]],
  ["2 * 3 * 4, ~5 to ~6, **open, *open, \\*text\\*, a ** b, snake_case_name, `open", [["p", "2 * 3 * 4, ~5 to ~6, **open, *open, *text*, a ** b, snake_case_name, `open"]]],
  ["**中文。**中文**“强调”**中文", [["p", ["strong", "中文。"], "中文", ["strong", "“强调”"], "中文"]]],
  ["`a` `` b`c `` `*d*` `e\nf` ` `", [["p", ["code", "a"], " ", ["code", "b`c"], " ", ["code", "*d*"], " ", ["code", "e f"], " ", ["code", " "]]]],
  ["Do:\n```sh\nls *a*\n\n  <b>\n```\n~~~\n```\n~~~\ndone", [["p", "Do:"], ["code sh", "ls *a*\n\n  <b>"], ["code", "```"], ["p", "done"]]],
  ["```js\nlet a = 1;\n\n# no heading", [["code js", "let a = 1;\n\n# no heading"]]],
  ["\ta\n\n    b\n\nc\n    d", [["code", "a\n\nb"], ["p", "c\nd"]]],
  ["```one``` line", [["p", ["code", "one"], " line"]]],
  ["- a\n- b\n  - c\n\n    more of c\n- d\n* e", [["ul", ["li", "a"], ["li", "b", ["ul", ["li", "c", ["p", "more of c"]]]], ["li", "d"]], ["ul", ["li", "e"]]]],
  ["3. a\n   ```\n   b\n   ```\n4. c\nlazy\n\n10) d", [["ol 3", ["li", "a", ["code", "b"]], ["li", "c\nlazy"]], ["ol 10", ["li", "d"]]]],
  ["- [ ] a\n- [x] **b**\n- [y] c\n-\n- ***", [["ul", ["li.task", "☐ a"], ["li.task", "☑ ", ["strong", "b"]], ["li", "[y] c"], ["li"], ["li", ["hr"]]]]],
  ["In the year\n2024. A good one\n1. Yes", [["p", "In the year\n2024. A good one"], ["ol 1", ["li", "Yes"]]]],
  ["> a\n> > b\nlazy\n\nc\n***\n- - -", [["blockquote", ["p", "a"], ["blockquote", ["p", "b\nlazy"]]], ["p", "c"], ["hr"], ["hr"]]],
  ["So:\n| a | *b* | c |\n|---|:-:|--:|\n| 1 | `x\\|y` | 2 |\n3 | <br> 4\n|5|6|7|8|\n\nend", [["p", "So:"], ["div.scroll", ["table", ["thead", ["tr", ["th", "a"], ["th.mid", ["em", "b"]], ["th.far", "c"]]], ["tbody", ["tr", ["td", "1"], ["td.mid", ["code", "x|y"]], ["td.far", "2"]], ["tr", ["td", "3"], ["td.mid", "\n 4"]], ["tr", ["td", "5"], ["td.mid", "6"], ["td.far", "7 | 8"]]]]], ["p", "end"]]],
  ["| a | b |\n|---|\nno table | -", [["p", "| a | b |\n|---|\nno table | -"]]],
  ["&lt; &amp; <b>x</b> <br> <!-- y --> <img src=x onerror=alert(1)>", [["p", "&lt; &amp; <b>x</b> <br> <!-- y --> <img src=x onerror=alert(1)>"]]],
  ["[a *b*](https://x.example/p?q=1 \"t\") <https://x.example/> (see https://x.example/a_b_(c)). **https://x.example** [d](<https://x.example/e f>) [m](mailto:a@x.example)", [["p", ["a https://x.example/p?q=1", "a ", ["em", "b"]], " <", ["a https://x.example/", "https://x.example/"], "> (see ", ["a https://x.example/a_b_(c)", "https://x.example/a_b_(c)"], "). ", ["strong", ["a https://x.example/", "https://x.example"]], " ", ["a https://x.example/e%20f", "d"], " ", ["a mailto:a@x.example", "m"]]]],
  ["[a](javascript:alert(1)) [b](/console/inbox) [c](//x.example) [d](data:text/html,x) [e](JaVaScRiPt:x) [f](vbscript:x) [g](\u0001javascript:x) [h](file:///etc) [i] [j]() [k][l] <javascript:x>", [["p", "[a](javascript:alert(1)) [b](/console/inbox) [c](//x.example) [d](data:text/html,x) [e](JaVaScRiPt:x) [f](vbscript:x) [g](␁javascript:x) [h](file:///etc) [i] [j]() [k][l] <javascript:x>"]]],
  ["![a cat](https://x.example/c.png) [![b](https://x.example/b.png)](https://x.example/) [](https://x.example/d) ![e](data:x)", [["p", ["a https://x.example/c.png", "a cat"], " ", ["a https://x.example/", ["span", "b"]], " ", ["a https://x.example/d", "https://x.example/d"], " ![e](data:x)"]]],
  ["[https://bank.example/in](https://evil.example) [evil.example.bank.example](https://evil.example) [bank.example](https://bank.example/) https://user@b\u0430nk.example/ [me@bank.example](mailto:me@evil.example)", [["p", ["span", ["a https://evil.example/", ["span", "https://bank.example/in"]], " (evil.example)"], " ", ["span", ["a https://evil.example/", "evil.example.bank.example"], " (evil.example)"], " ", ["a https://bank.example/", "bank.example"], " ", ["span", ["a https://user@xn--bnk-6cd.example/", "https://user@b\u0430nk.example/"], " (xn--bnk-6cd.example)"], " ", ["span", ["a mailto:me@evil.example", "me@bank.example"], " (me@evil.example)"]]]],
  ["[Ada@x.example](mailto:Ada@x.example?subject=a)", [["p", ["a mailto:Ada@x.example?subject=a", "Ada@x.example"]]]],
  ["*a [b* c](https://x.example/) [d [e](https://x.example) f](https://y.example) **[0, 1)** [f]", [["p", ["em", "a [b"], " c](", ["a https://x.example/", "https://x.example/"], ") ", ["a https://y.example/", "d ", ["span", "e"], " f"], " ", ["strong", "[0, 1)"], " [f]"]]],
  ["a\u202eb\u200bc **\u2066d\u2069**\r\ne\r\n\r\n```\u00ad\r\nf\u001b[31m\r\n```", [["p", "a⟦U+202E⟧b⟦U+200B⟧c ", ["strong", "⟦U+2066⟧d⟦U+2069⟧"], "\ne"], ["code ⟦U+00AD⟧", "f␛[31m"]]],
];

/** What would take long where a step went over the text again and again, or deeper than browsers go: `size` characters, or twice as many. */
const HARD = {
  "quotes": (size) => `${">".repeat(size)} a`,
  "quotes apart": (size) => "> ".repeat(size / 2),
  "brackets": (size) => "[".repeat(size),
  "brackets and back": (size) => "[".repeat(size / 2) + "](https://x.example)".repeat(size / 40),
  "links that do not end": (size) => "[a](b ".repeat(size / 6),
  "emphasis in a link in a link": (size) => `[[${"*a* ".repeat(size / 4)}](https://x.example)](https://x.example)`,
  "one address": (size) => `https://x.example/${"a".repeat(size)}`,
  "links in links": (size) => "[a](<b".repeat(size / 6),
  "pictures in pictures": (size) => "![".repeat(size / 25) + "](https://x.example/a)".repeat(size / 25),
  "titles": (size) => "[a](b \"".repeat(size / 7),
  "spaces before a title": (size) => `[a](b${" ".repeat(size)}x`,
  "spaces in a link": (size) => `[a](${" ".repeat(size)}x`,
  "parentheses": (size) => `https://x.example/${")".repeat(size)} (${"(".repeat(size / 2)}`,
  "addresses that are none": (size) => "https://%".repeat(size / 9),
  "points": (size) => "https://x.example/..".repeat(size / 20),
  "stars": (size) => "*".repeat(size),
  "stars that open": (size) => "*a **b ".repeat(size / 7),
  "stars of three kinds": (size) => "*a_ **b_ ***c~~ _d* __e** ".repeat(size / 26),
  "stars that pair": (size) => `${"*".repeat(size / 2)}a${"*".repeat(size / 2)}`,
  "stars within": (size) => `${"**a ".repeat(size / 8)}${" a**".repeat(size / 8)}`,
  "emphasis": (size) => "*a* ".repeat(size / 4),
  "ticks": (size) => { let text = ""; for (let count = 1; text.length < size; count += 1) text += `${"`".repeat(count)} `; return text; },
  "angles": (size) => "<https://".repeat(size / 9),
  "backslashes": (size) => "\\".repeat(size),
  "spaces": (size) => `a${" ".repeat(size)}b`,
  "tabs": (size) => `${"\t".repeat(size)}b`,
  "a heading of spaces": (size) => `# a${" ".repeat(size)}b`,
  "a heading of hashes": (size) => `# a${" #".repeat(size / 2)}b`,
  "a rule that is none": (size) => `${"-  ".repeat(size / 3)}x`,
  "a fence that is none": (size) => `${"`".repeat(size)}a\`b`,
  "lists": (size) => "- ".repeat(size / 2),
  "lists by lines": (size) => { let text = ""; for (let deep = 0; text.length < size; deep += 1) text += `${"  ".repeat(deep % 300)}- a\n`; return text; },
  "items": (size) => "- a\n".repeat(size / 4),
  "numbers": (size) => "1. ".repeat(size / 3),
  "columns": (size) => `${"|a".repeat(size / 4)}|\n${"|-".repeat(size / 4)}|`,
  "cells": (size) => `|a|\n|-|\n${"|".repeat(size)}`,
  "rows": (size) => `|a|b|\n|-|-|\n${"|1|2|\n".repeat(size / 6)}`,
  "a delimiter that is none": (size) => `a|b\n-|-${" ".repeat(size)}x`,
  "lines": (size) => "a\n".repeat(size / 2),
  "blank lines": (size) => "\n".repeat(size),
  "one line": (size) => "abcdefgh".repeat(size / 4),
  "words": (size) => "a b ".repeat(size / 4),
  "a fence": (size) => `\`\`\`\n${"let a = 1;\n".repeat(size / 11)}`,
  "many fences": (size) => "```\na\n```\n".repeat(size / 10),
  "digits": (size) => "1 ".repeat(size / 2),
  "marks of direction": (size) => "\u202e".repeat(size / 8),
  "elements": (size) => "<b><script>".repeat(size / 11),
  "entities": (size) => "&amp;&am".repeat(size / 8),
};

/** Everything at once, as models write it. */
const ANSWER = `## What I found

The **build** fails in \`parse()\`, see [the log](https://ci.example/log/7) or https://ci.example/7.

1. Open \`src/main.rs\`
   - the *first* function
   - [x] which is ~~wrong~~ right
2. Run this:

   \`\`\`sh
   cargo test # all\u200b of it
   \`\`\`

| Step | Time |
|:-----|-----:|
| parse | 12 ms |
| build | **3 s** |

> Nothing else is <b>broken</b>.

---

\`\`\`rust
fn main() {
    println!("**hello**");
}
\`\`\`
`;
/** What somebody copies who selects all of it. */
const COPIED = `What I found
The build fails in parse(), see the log or https://ci.example/7.
Open src/main.rs
the first function
☑ which is wrong right
Run this:
cargo test # all⟦U+200B⟧ of it
Step\tTime
parse\t12 ms
build\t3 s
Nothing else is <b>broken</b>.
fn main() {
    println!("**hello**");
}`;
const RAW = "**raw** `raw` [raw](https://x.example/)";

/** Lets the model write the next piece. */
let goOn = () => {};

async function* pieces() {
  const piece = (delta, finish_reason = null) => ({ id: "c", object: "chat.completion.chunk", created: 1, model: "scripted", choices: [{ index: 0, delta, finish_reason }] });
  for (const content of ["A **bold", "** word.\n\n```js\nlet a", " = 1;\n", "```\n\n- one\n- t", "wo\n\nThe end."]) {
    yield piece({ role: "assistant", content });
    await new Promise((done) => { goOn = done; });
  }
  yield { ...piece({}, "stop"), usage: { prompt_tokens: 10, completion_tokens: 10, total_tokens: 20 } };
}

const agents = {
  reply(body, choice) {
    const last = body.messages.at(-1);
    if (last.role === "tool") return choice({ role: "assistant", content: ANSWER }, "stop");
    return String(last.content).includes("in pieces") ? { pieces: pieces() } : null;
  },
  sent: { note: RAW },
};

/** Gives the page `outlines`, which tells what elements a text becomes, at once and bit by bit. */
const outlined = (page) => page.evaluate(async () => {
  const { paper } = await import("/console/markdown.js");
  const outline = (node) => {
    if (node.className === "command") return [["code", node.dataset.info].filter(Boolean).join(" "), node.querySelector("pre").textContent];
    const tag = [node.localName, node.className && `.${node.className}`].filter(Boolean).join("");
    return [[tag, node.getAttribute("start") ?? node.getAttribute("href")].filter(Boolean).join(" "), ...inside(node)];
  };
  const inside = (node) => { node.normalize(); return [...node.childNodes].map((one) => (one.nodeType === 3 ? one.data : outline(one))); };
  globalThis.outlines = (text) => {
    const once = inside(paper(text).node.querySelector(".said"));
    const grown = paper("");
    const { setTimeout: timer, requestAnimationFrame: frame } = globalThis;
    Object.assign(globalThis, { setTimeout: (work) => work(), requestAnimationFrame: (work) => work() });
    for (let to = 1; to <= text.length; to += 1) grown.show(text.slice(0, to));
    Object.assign(globalThis, { setTimeout: timer, requestAnimationFrame: frame });
    return [once, inside(grown.node.querySelector(".said"))];
  };
});

export async function markdown() {
  const server = await assistant(agents);
  const clerk = (await server.get("/v1/personas")).data.find((one) => one.name === "clerk").id;

  await check("Markdown becomes elements, at once and bit by bit, and nothing else does", async (tab) => {
    const page = await tab({ server });
    await page.open("/console/catalog");
    await page.live();
    await outlined(page);
    for (const [text, expected] of TEXTS) {
      const [once, grown] = await page.evaluate((one) => globalThis.outlines(one), text);
      equal(once, expected, JSON.stringify(text));
      equal(grown, expected, `bit by bit: ${JSON.stringify(text)}`);
    }
    const link = await page.evaluate(async () => {
      const { paper } = await import("/console/markdown.js");
      const made = paper("[a](https://x.example/b)").node.querySelector("a");
      return [made.target, made.rel, made.title];
    });
    equal(link, ["_blank", "noopener noreferrer", "https://x.example/b"], "a link");
  });

  await check("what a model says is Markdown, and what people, tools and requests say is as it is", async (tab) => {
    const of = await session(server, clerk);
    const id = await task(server, of, said(`a letter ${RAW}`));
    const asks = await tab({ server });
    await asks.open(`/console/inbox/${id}`);
    await asks.button("Approve").waitFor();
    await asks.getByText(`a letter ${RAW}`, { exact: true }).first().waitFor();
    equal(await asks.locator("article.pause :is(.said,em,a[target])").count(), 0, "what was made of the request");
    await asks.button("Approve").click();
    await until("it has ended", async () => (await server.get(`/v1/tasks/${id}`)).status === "COMPLETED");
    for (const [to, name] of [[`/console/session/${of}`, "session"], [`/console/run/${id}`, "run"]]) {
      const page = await tab({ server, size: name === "run" ? PHONE : undefined, dark: name === "run" });
      await page.open(to);
      await page.getByRole("heading", { name: "What I found" }).waitFor();
      equal(await page.locator(".said").count(), 1, `${name}: texts that are Markdown`);
      equal(await page.locator(".said :is(li,table,pre,blockquote,del,hr)").evaluateAll((all) => all.map((one) => one.localName)), ["li", "li", "li", "del", "li", "pre", "table", "blockquote", "hr", "pre"], `${name}: elements`);
      equal(await page.locator(".said a").evaluateAll((all) => all.map((one) => [one.href, one.title === one.href, one.target, one.rel])), ["https://ci.example/log/7", "https://ci.example/7"].map((href) => [href, true, "_blank", "noopener noreferrer"]), `${name}: links`);
      await page.evaluate(() => { for (const box of document.querySelectorAll("details")) box.open = true; });
      await rest(100);
      holds(await page.getByText(`a letter ${RAW}`, { exact: true }).count() > 0, `${name}: what the person said`);
      equal(await page.locator("main :is(em,del,a[target])").evaluateAll((all) => all.filter((one) => !one.closest(".said")).length), 0, `${name}: what was made of the words of others`);
      holds(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: it is as wide as the page`);
      await accessible(page, `Markdown in a ${name}`);
      await page.locator(".said").scrollIntoViewIfNeeded();
      await picture(page, `markdown-${name}`);
      const copied = await page.evaluate(() => { getSelection().selectAllChildren(document.querySelector(".said")); return getSelection().toString().replace(/\n+/g, "\n").trim(); });
      equal(copied, COPIED, `${name}: what is copied`);
      // What cannot be seen is not pasted either.
      await page.evaluate(() => { navigator.clipboard.writeText = async (text) => { globalThis.pasted = text; }; });
      const stands = page.locator(".said pre").first();
      await stands.focus();
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await page.locator(".said").getByText("Copied").waitFor();
      equal(await page.evaluate(() => globalThis.pasted), "cargo test # all⟦U+200B⟧ of it", `${name}: what the button copies`);
      await page.keyboard.press("Tab");
      equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Table", `${name}: where the keyboard goes on`);
    }
  });

  await check("what a model writes is Markdown while it writes, and what stands there stays", async (tab) => {
    const of = await session(server, clerk);
    const page = await tab({ server });
    await page.open(`/console/session/${of}`);
    await page.getByText("Nothing was said yet.").waitFor();
    await page.live();
    await page.getByLabel("Message").fill("Tell it in pieces");
    await page.button("Send").click();
    await page.getByText("A **bold", { exact: true }).waitFor();
    goOn();
    const code = page.locator(".said pre");
    await code.getByText("let a", { exact: true }).waitFor();
    equal(await page.locator(".said strong").allInnerTexts(), ["bold"], "what is bold");
    await page.evaluate(() => { globalThis.kept = document.querySelectorAll(".said p,.said pre,.said button"); getSelection().selectAllChildren(document.querySelector(".said pre")); });
    goOn();
    await code.getByText("let a = 1;", { exact: true }).waitFor();
    equal(await page.evaluate(() => [[...globalThis.kept].every((one) => one.isConnected), getSelection().toString().startsWith("let a")]), [true, true], "what was there is there, and still selected");
    goOn();
    await page.locator(".said li", { hasText: /^t$/ }).waitFor();
    goOn();
    await page.getByText("The end.", { exact: true }).waitFor();
    await accessible(page, "Markdown that is written");
    goOn();
    await page.getByText("The agent writes").waitFor({ state: "detached" });
    equal(await page.locator(".said :is(p,pre,li)").allInnerTexts(), ["A bold word.", "let a = 1;", "one", "two", "The end."], "in the end");
  });

  await check("a text that grows is drawn once a frame, and each part of it a few times", async (tab) => {
    const page = await tab({ server });
    await page.open("/console/catalog");
    await page.live();
    const grown = await page.evaluate(async () => {
      const { paper } = await import("/console/markdown.js");
      const whole = "Some **words** of `a` paragraph.\n\n- one\n- *two*\n\n".repeat(4000);
      const rest = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      let draws = 0; let frames = 0; let spent = 0; let isOver = false;
      const one = paper("", { limit: Infinity, around: (draw) => { draws += 1; const begin = performance.now(); draw(); spent += performance.now() - begin; } });
      document.querySelector("#content").replaceChildren(one.node);
      (async () => { while (!isOver) { await rest(); frames += 1; } })();
      for (let to = 100; to <= whole.length; to += 100) { one.show(whole.slice(0, to)); if (to % 2000 === 0) await rest(); }
      const first = one.node.querySelector("p");
      one.show(whole);
      while (one.node.querySelectorAll("li").length < 8000) await rest();
      isOver = true;
      return { calm: draws <= frames + 2 && draws > 2, spent, same: first.isConnected, paragraphs: one.node.querySelectorAll("p").length };
    });
    holds(grown.calm && grown.same && grown.paragraphs === 4000 && grown.spent < 10000, JSON.stringify(grown));
    const stays = await page.evaluate(async () => {
      const { paper } = await import("/console/markdown.js");
      const { node } = paper(`${"a".repeat(9999)} **b** ${"c\n\n".repeat(50000)}`);
      document.querySelector("#content").replaceChildren(node);
      const before = [node.querySelectorAll("p").length, node.querySelector("button").textContent];
      node.querySelector("button").click();
      const then = [node.querySelectorAll("strong").length, node.querySelectorAll("p").length > 10000];
      for (let more = 0; more < 9; more += 1) node.querySelector("button")?.click();
      return [before, then, node.querySelectorAll("p").length, node.querySelector("button")];
    });
    equal(stays, [[1, "Show more (10 of 160 thousand characters)"], [1, true], 50000, null], "a long text");
  });

  await check("Markdown that is hostile takes as long as its length, and goes as deep as it may", async (tab) => {
    const page = await tab({ server });
    await page.open("/console/catalog");
    await page.live();
    for (const [name, make] of Object.entries(HARD)) {
      const found = await page.evaluate(async (whole) => {
        const { paper } = await import("/console/markdown.js");
        const timed = (to) => { const begin = performance.now(); const { node } = paper(whole.slice(0, to), { limit: Infinity }); return [performance.now() - begin, node]; };
        timed(20000);
        const [short] = timed(whole.length / 4); const [long, node] = timed(whole.length);
        const deepest = (one, depth) => [...one.children].reduce((most, child) => Math.max(most, depth > 200 ? depth : deepest(child, depth + 1)), depth);
        // What is shown of it at once, with all that a browser has to do for that.
        const begin = performance.now();
        const { node: shown } = paper(whole);
        document.querySelector("#content").replaceChildren(shown);
        shown.getBoundingClientRect();
        const drawn = performance.now() - begin;
        const isWide = document.documentElement.scrollWidth > innerWidth;
        document.querySelector("#content").replaceChildren();
        return { short, long, drawn, deep: deepest(node, 0), isWide, alive: node.querySelectorAll("script,img,b,iframe,style").length };
      }, make(500_000));
      if (process.env.TIMES) console.log(`        ${name}: ${Math.round(found.short)} and ${Math.round(found.long)} ms, ${Math.round(found.drawn)} ms shown, ${found.deep} deep`);
      // Four times as long takes four times as long, and not sixteen times.
      holds(found.long < 10 * found.short + 1000, `${name}: ${found.short} ms for a quarter of it, ${found.long} ms for all`);
      holds(found.drawn < 3000, `${name}: ${found.drawn} ms until it is shown`);
      holds(found.deep < 60, `${name}: ${found.deep} deep`);
      equal([found.alive, found.isWide], [0, false], `${name}: elements of its own, and whether it is wider than the page`);
    }
  });
}
