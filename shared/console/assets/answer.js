// What a pause asks, and the way to answer it: for people with a key and for those with a link alike.

import { beginning, brief, folded, h, lead, put, say, told, tree } from "./dom.js";
import { isPlain, read as parsed, write } from "./json.js";
import { size, stamp, time } from "./words.js";

const TOLD = new Set(["description", "kind", "agent", "risk", "calls", "questions", "expects", "into"]);

/** True of what stands in the place of arguments that are too long. */
const isCut = (given) => given?.cut === true && Object.keys(given).every((name) => name === "cut" || name === "bytes");

const isObject = (value) => !isPlain(value) && !Array.isArray(value);
const plain = (value) => (isObject(value) ? value : {});

/** A digest that people can compare: the first and last of its digits, the whole on hover. */
export const digest = (value) => h("code", { class: "digest", title: value }, value.length > 20 ? `${value.slice(0, 8)}…${value.slice(-8)}` : value);

/** What may be said of a call of which nobody knows whether it happened: the word on the button, its look, what is told then. */
const OF_DOUBT = { happened: ["Happened", "primary", "Noted as done. It goes on."], repeat: ["Repeat", "danger", "The call is made again."], skip: ["Skip", "", "The call is left. It goes on."] };
const isInDoubt = (pause) => [pause.kind, pause.request?.kind].includes("uncertain_effect");

/** What an answer with `payload` came to, where the pause is about a call in doubt. */
export const doubtWords = (pause, payload) => (isInDoubt(pause) && Object.hasOwn(OF_DOUBT, payload.decision ?? "") ? OF_DOUBT[payload.decision][2] : undefined);

const ACTION = { remind: "A reminder is sent", reassign: "It is given to others", escalate: "Whoever is responsible is told", notify: "A notification goes out", fail: "The run ends with an error", resume: "It goes on by itself" };

/** `value` without what says nothing: null, empty text, empty lists; undefined where nothing is left. */
function pruned(value) {
  if (value === null || value === "" || (Array.isArray(value) && value.length === 0)) return undefined;
  if (isPlain(value) || Array.isArray(value)) return value;
  const left = Object.entries(value).map(([name, one]) => [name, pruned(one)]).filter(([, one]) => one !== undefined);
  return left.length > 0 ? Object.fromEntries(left) : undefined;
}

/** A sentence with what stands between backticks set as code. */
export function ticked(text) {
  const pieces = String(text).split("`");
  return h("span", { class: "told", dir: "auto" }, pieces.map((piece, index) => (index % 2 === 1 && index < pieces.length - 1 ? h("code", {}, piece) : index % 2 === 1 ? `\`${piece}` : piece)));
}

/** What time does, in order, and what happens when nobody answers. */
export function ladder(pause) {
  if (pause.ladder.length === 0) return h("p", { class: "default" }, "It waits for as long as it takes: no deadline.");
  const last = pause.ladder.at(-1);
  const { dormouse_resolution, ...all } = last.sets ?? {};
  const isDeclined = Object.keys(plain(pause.request?.questions)).length > 0 && plain(all.reply).decision === "decline";
  const sets = isDeclined ? {} : pruned(all) ?? {};
  const isNo = [pause.kind, pause.request?.kind].includes("approval") && Object.keys(plain(pause.request?.calls)).length > 0;
  const end = last.action === "fail" ? "the run ends with an error" : last.action === "resume" ? Object.keys(sets).length > 0 ? "it goes on by itself with what stands below" : isDeclined ? "the tool is told no" : isNo ? "it counts as a no, and nothing of it is done" : isInDoubt(pause) ? "the call is left, and is not made again" : "it goes on by itself, without an answer" : "nothing else happens, and it waits on";
  return h("div", { class: "ladder" },
    h("p", { class: "default" }, h("strong", {}, "If nobody answers"), ` until ${stamp(last.at)} (`, time(last.at, "ahead"), `): ${end}.`),
    Object.keys(sets).length > 0 && h("div", { class: "sets" }, tree(sets)),
    pause.ladder.length > 1 && h("ol", {}, pause.ladder.map((step) => h("li", {}, time(step.at, step === last ? "ahead" : "step"), h("span", { class: "quiet" }, ` ${stamp(step.at)}`), h("br"), ACTION[step.action] ?? step.action, step.to && [": ", told(step.to, { limit: 80 })]))));
}

/** The calls that are asked about: tool, arguments, digest. */
function calls(pause) {
  return Object.entries(plain(pause.request.calls)).map(([part, call]) => {
    const { tool, source, arguments: shown, digest: sum, known } = plain(call);
    const given = isCut(shown) ? plain(pause.arguments)[part] ?? shown : shown;
    return h("section", { class: "call" },
      h("h2", {}, h("span", { class: "quiet" }, "Calls "), told(tool ?? "a tool", { tag: "code", limit: 120 }), source && [h("span", { class: "quiet" }, " of "), told(String(source), { tag: "code", limit: 120 })], pause.parts.length > 0 && h("span", { class: "quiet" }, " part ", brief(part, 80))),
      isCut(shown) && !isCut(given) ? folded(`The arguments are long (${size(shown.bytes ?? 0)}): read all of them before you approve`, () => tree(given)) : isCut(given) ? h("p", { class: "hint" }, `These arguments are too long to be shown here (${size(given.bytes ?? 0)}). Read them in the console with a key, or with dormouse chat, before you approve them.`) : given !== undefined && tree(given),
      known && h("p", {}, h("strong", {}, "Known of it: "), told(known)),
      sum && h("p", { class: "quiet small" }, "Digest of these arguments ", digest(String(sum)), ": only they will run."));
  });
}

const headline = (text) => (text.length > 600 ? told(text, { limit: 600 }) : ticked(text));

/** Everything that is asked. */
export function question(pause) {
  const request = plain(pause.request);
  const rest = Object.entries(request).filter(([name]) => !TOLD.has(name) && !["signal_id", "due_at", "missing", "pause"].includes(name));
  const asked = calls(pause);
  const all = Object.entries(plain(request.questions));
  const questions = all.map(([part, of]) => {
    const { tool, source, message, schema, unfit } = plain(of);
    return h("section", { class: "call" }, h("h2", {}, h("span", { class: "quiet" }, "Asked by "), told(String(tool ?? "a tool"), { tag: "code", limit: 120 }), source && [h("span", { class: "quiet" }, " of "), told(String(source), { tag: "code", limit: 120 })], all.length > 1 && h("span", { class: "quiet" }, " part ", brief(part, 80))),
      all.length > 1 && message && told(String(message), { tag: "p" }), all.length > 1 && unfit && h("p", { class: "outcome bad" }, "An answer was not taken: ", told(String(unfit), { limit: 400 })), folded("The form, as the tool describes it", () => tree(schema ?? {})));
  });
  return h("div", { class: "question" },
    h("h1", {}, headline(request.description ?? pause.question ?? "It waits for an answer")),
    request.risk && h("p", {}, h("span", { class: "mark bad" }, "Risk "), " ", told(String(request.risk), { limit: 80 })),
    asked, questions,
    rest.length > 0 && h("section", { class: "more" }, asked.length > 0 ? folded("What else it says", () => tree(Object.fromEntries(rest))) : tree(Object.fromEntries(rest))),
    (pause.left_out ?? []).length > 0 && h("p", { class: "quiet" }, `Too large to be shown here: ${pause.left_out.join(", ")}.`));
}

/** Who was asked, and who has answered. */
export function parts(pause) {
  if (pause.parts.length === 0) return null;
  const there = pause.parts.filter((one) => one.answered_at).length;
  return h("section", { class: "parts" }, h("h2", {}, `${there} of ${pause.needed ?? pause.parts.length} answers are there`),
    h("ul", {}, pause.parts.map((one) => h("li", {}, h("span", { class: `mark ${one.answered_at ? "good" : "sleep"}` }, one.answered_at ? "answered" : "waits"), " ", told(one.part, { limit: 80 }), one.answered_at && [" ", time(one.answered_at)]))));
}

const fieldsOf = (pause) => Object.entries(plain(plain(pause.accepts).properties));
const lets = (pause, name) => !pause.accepts || fieldsOf(pause).some(([field]) => field === name);

/** A form for an answer. `give({approved, payload, part})` sends it, and gives back what to say. */
export function answerForm(pause, { give, after, me = null, part: fixed = null }) {
  const form = h("form", { class: "answer", autocomplete: "off" });
  const missing = pause.parts.filter((one) => !one.answered_at).map((one) => one.part);
  const state = { part: fixed ?? (missing.includes(me) ? me : missing.length === 1 ? missing[0] : missing[0] ?? null), busy: false };
  const chosen = () => plain(plain(pause.request.calls)[state.part] ?? Object.values(plain(pause.request.calls))[0]);
  const line = h("p", { class: "outcome", role: "status", "aria-live": "polite" });
  const plainAnswers = plain(pause.answers);
  const yesNo = plainAnswers.approved !== undefined && plainAnswers.denied !== undefined;
  const allowed = isInDoubt(pause) ? plain(fieldsOf(pause).find(([name]) => name === "decision")?.[1]).enum : null;
  const decisions = [allowed ?? []].flat().filter((one) => Object.hasOwn(OF_DOUBT, one));
  const reasonField = plainAnswers.text ?? (pause.accepts && lets(pause, "reason") ? "reason" : null);
  const buttons = [];

  const send = async (answer, button) => {
    if (state.busy) return;
    state.busy = true;
    for (const other of buttons) other.disabled = true;
    line.className = "outcome";
    const wait = setTimeout(() => put(line, "Sending the answer…"), 250);
    try {
      const words = await give({ ...answer, part: state.part });
      clearTimeout(wait);
      put(line, words);
      line.className = "outcome good";
      say(words);
      form.classList.add("done");
      after?.(true);
    } catch (error) {
      clearTimeout(wait);
      line.className = "outcome bad";
      // Of an answer it says that another one counts, or another pause; of all else, what stands in the way.
      if (error.status === 409) error.title = "Somebody was faster";
      put(line, `${error.title ?? "That did not work"}. `, told(error.message, { limit: 400 }), error.decided && [" What counts: ", tree(error.decided)]);
      state.busy = false;
      for (const other of buttons) other.disabled = false;
      lead(form, button);
      // What stands there by then takes the place of these words.
      if (after && [404, 409, 410].includes(error.status)) { say(`${error.title}. ${error.message}`, true); after(false); }
    }
  };

  let edited = null; let content = null;
  const toolOf = (part) => { const { tool } = plain(plain(pause.request.calls)[part] ?? plain(pause.request.questions)[part]); return typeof tool === "string" ? `: ${beginning(tool, 60)}` : ""; };
  const forWhom = missing.length > 1 && !fixed ? h("select", { onchange: (event) => { state.part = event.target.value; edited?.reset(); content?.reset(); } }, missing.map((one) => h("option", { value: one, selected: one === state.part }, `${one}${toolOf(one)}`))) : null;
  if (forWhom) form.append(h("label", { class: "field" }, "Answer for", forWhom));
  /** Takes away whom nobody has to answer for any more; false where this answer would be for one of them, or others are asked. */
  form.still = (others) => {
    if ((state.part !== null && !others.includes(state.part)) || others.some((one) => !missing.includes(one))) return false;
    for (const option of [...forWhom?.options ?? []]) if (!others.includes(option.value)) option.remove();
    return true;
  };

  const hasCalls = Object.keys(plain(pause.request.calls)).length > 0;
  if (yesNo && hasCalls && !isCut(chosen().arguments) && pause.accepts && lets(pause, "arguments")) edited = editor(chosen);
  const reason = reasonField && (yesNo || decisions.length > 0) && h("textarea", { id: "reason", rows: "2", maxlength: "4000", placeholder: "Told to the agent, and kept" });
  const comment = () => (reason && reason.value.trim() ? { [reasonField]: reason.value.trim() } : {});
  // What a tool asks has a form of its own, which may be declined.
  const asks = plain(pause.request.questions);
  const isAsked = !yesNo && Object.keys(asks).length > 0 && ["answer", "decline"].every((word) => [plain(fieldsOf(pause).find(([name]) => name === "decision")?.[1]).enum ?? []].flat().includes(word));
  const others = yesNo || isAsked || decisions.length > 0 ? [] : fieldsOf(pause).filter(([name]) => name !== plainAnswers.by);
  const inputs = fieldsBy({ properties: Object.fromEntries(others), required: plain(pause.accepts).required });
  if (isAsked) content = formOf(() => plain(plain(asks[state.part] ?? Object.values(asks)[0]).schema));

  if (edited) form.append(edited.box);
  if (reason) form.append(h("label", { class: "field", for: "reason" }, "Reason ", h("span", { class: "quiet" }, "(optional)")), reason);
  form.append(...content ? [content.box] : inputs.boxes);
  let raw = null;
  if (!yesNo && !pause.accepts) {
    raw = h("textarea", { id: "raw", rows: "5", class: "code", spellcheck: "false", value: "{\n}" });
    form.append(h("label", { class: "field", for: "raw" }, "Answer, a JSON object ", h("span", { class: "quiet" }, "(the pause takes any field)")), raw);
  }

  const button = (words, look, key, act) => {
    const made = h("button", { type: look === "primary" ? "submit" : "button", class: look, "aria-keyshortcuts": key, title: key && `Key ${key}, then Enter` }, words);
    made.addEventListener("click", (event) => { event.preventDefault(); act(made); });
    if (key) made.dataset.key = key;
    buttons.push(made);
    return made;
  };
  const bar = h("div", { class: "actions" });
  if (decisions.length > 0) {
    // Neither a yes nor a no: whoever takes one of these for "repeat" makes the call twice.
    for (const decision of decisions) {
      const [word, look] = OF_DOUBT[decision];
      bar.append(button(word, look, "", (made) => send({ payload: { decision, ...comment() } }, made)));
    }
  } else if (yesNo) {
    bar.append(button("Approve", "primary", "a", (made) => {
      const changed = edited?.read();
      if (changed?.wrong) { put(line, changed.wrong); line.className = "outcome bad"; edited.focus(); return; }
      const call = chosen();
      const payload = { ...comment() };
      if (changed?.value) payload.arguments = changed.value;
      else if (call.digest && lets(pause, "digest") && pause.accepts) payload.digest = call.digest;
      send({ approved: true, payload }, made);
    }));
    bar.append(button("Deny", "danger", "d", (made) => send({ approved: false, payload: comment() }, made)));
  } else {
    bar.append(button("Send the answer", "primary", "", (made) => {
      const read = raw ? object(raw) : (content ?? inputs).read();
      if (read.wrong) { put(line, read.wrong); line.className = "outcome bad"; read.focus?.(); return; }
      send({ payload: content ? { decision: "answer", content: read.value } : { ...read.value, ...comment() } }, made);
    }));
    if (content) bar.append(button("Decline", "danger", "d", (made) => send({ payload: { decision: "decline" } }, made)));
  }
  // So short that it may stay in sight on a phone, beside what is asked.
  if (yesNo || decisions.length > 0) form.classList.add("short");
  form.append(bar, line);
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

/** What is written in `area`, which is to be a JSON object. */
function object(area) {
  const focus = () => area.focus();
  try {
    const value = parsed(area.value);
    return isObject(value) ? { value } : { wrong: "An answer is a JSON object.", focus };
  } catch (error) { return { wrong: `This is no JSON: ${error.message}`, focus }; }
}

/** The form that `schema()` describes, made anew when that is another one: fields, or a JSON object where it names none. */
function formOf(schema) {
  const box = h("div", {});
  let read;
  const reset = () => {
    const of = schema();
    if (isObject(of.properties) || Object.keys(of).every((name) => name === "type")) {
      const found = fieldsBy(of);
      put(box, found.boxes);
      ({ read } = found);
      return;
    }
    const area = h("textarea", { id: "content", rows: "5", class: "code", spellcheck: "false", value: "{\n}" });
    put(box, h("label", { class: "field", for: "content" }, "Answer, a JSON object"), area);
    read = () => object(area);
  };
  reset();
  return { box, reset, read: () => read() };
}

/** Arguments that may be changed before they are approved. */
function editor(chosen) {
  const text = () => write(chosen().arguments ?? {}, 2);
  const title = h("summary", {});
  const label = () => put(title, "Change the arguments before approving", area.value !== text() && [" ", h("span", { class: "mark bad" }, "Changed")]);
  const area = h("textarea", { id: "arguments", class: "code", rows: "8", spellcheck: "false", value: text(), oninput: () => label() });
  const reset = () => { area.value = text(); label(); };
  const box = h("details", { class: "edit" }, title, h("label", { class: "field", for: "arguments" }, "Arguments, a JSON object"), area,
    h("button", { type: "button", class: "quiet small", onclick: reset }, "Put back what was asked"));
  label();
  return {
    box, reset, focus: () => { box.open = true; area.focus(); },
    read() {
      // What was changed counts, also when it is folded away.
      if (area.value === text()) return null;
      try {
        const value = parsed(area.value);
        return isObject(value) ? { value } : { wrong: "Arguments are a JSON object." };
      } catch (error) { return { wrong: `The arguments are no JSON: ${error.message}` }; }
    },
  };
}

let fields = 0;

/** The values that `schema` leaves to choose from, as `[value, words]`: also where each has a title; null where it does not. */
function choicesOf(schema) {
  const titled = [schema.oneOf, schema.anyOf].find((all) => Array.isArray(all) && all.length > 0 && all.every((one) => plain(one).const !== undefined));
  if (titled) return titled.map((one) => [one.const, one.title ?? one.const]);
  const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
  if (Array.isArray(schema.enum)) return schema.enum.map((one, index) => [one, names[index] ?? one]);
  return schema.const !== undefined ? [[schema.const, schema.const]] : null;
}

const worded = (value) => beginning(typeof value === "string" ? value : write(value), 200);

/** What one field of an answer is called, and what is said of it. */
const called = (name, schema) => beginning(typeof schema.title === "string" && schema.title ? schema.title : name, 200);
const named = (name, schema, isRequired) => [called(name, schema), " ", !isRequired && h("span", { class: "quiet" }, "(optional)"), typeof schema.description === "string" && h("span", { class: "quiet" }, ` ${beginning(schema.description, 600)}`)];

/** The fields of an object by `schema`: their boxes, and what is read of them. */
function fieldsBy(schema, depth = 0) {
  const inputs = Object.entries(plain(schema.properties)).map(([name, one]) => field(name, plain(one), (Array.isArray(schema.required) ? schema.required : []).includes(name), depth));
  return {
    boxes: inputs.map((input) => input.box),
    read() {
      const value = {}; const faults = []; let first = null;
      for (const input of inputs) {
        const read = input.read();
        if (read.wrong) { faults.push(read.wrong); first ??= read.focus ?? input.focus; } else if (read.value !== undefined) value[input.name] = read.value;
      }
      return faults.length > 0 ? { wrong: faults.join(" "), focus: first } : { value };
    },
  };
}

/** One field of an answer, by its schema. */
function field(name, schema, isRequired, depth = 0) {
  const id = `field-${fields += 1}`;
  const type = [schema.type].flat().find((one) => one && one !== "null");
  const choices = choicesOf(schema) ?? (type === "boolean" ? [[true, "yes"], [false, "no"]] : null);
  const several = type === "array" ? choicesOf(plain(schema.items)) : null;
  const given = schema.default;
  if (several) return severalOf(name, schema, several, isRequired);
  if (isObject(schema.properties) && depth < 3) return group(name, schema, isRequired, depth);
  let input;
  // What has to be chosen is chosen by a person: nothing is before.
  if (choices) input = h("select", { id }, !(isRequired && choices.length === 1) && h("option", { value: "" }, isRequired ? "Choose…" : "–"), choices.map(([one, words]) => h("option", { value: write(one), selected: given !== undefined && write(one) === write(given) }, worded(words))));
  else if (type === "integer" || type === "number") input = h("input", { id, type: "text", inputmode: "decimal" });
  else if (type === "string" && schema.format === "date") input = h("input", { id, type: "date" });
  else if (type === "string" && (schema.maxLength ?? 1000) <= 80) input = h("input", { id, type: "text", maxlength: schema.maxLength });
  else input = h("textarea", { id, rows: type === "string" ? "2" : "3", class: type === "string" ? "" : "code" });
  if (!choices && given !== undefined && given !== null) input.value = type === "string" ? String(given) : write(given);
  const read = () => {
    const text = input.value;
    if (choices && text === "") return isRequired ? { wrong: `“${called(name, schema)}” is not chosen.` } : {};
    if (text.trim() === "") return isRequired && type !== "string" ? { wrong: `“${called(name, schema)}” is missing.` } : isRequired ? { value: text } : {};
    if (type === "string" && !choices) return { value: text };
    let value;
    try { value = parsed(text); } catch { return type ? { wrong: `“${called(name, schema)}” must be ${type}.` } : { value: text }; }
    const isNumber = typeof value === "number" || (isPlain(value) && value instanceof Number);
    const fits = choices || { integer: isNumber && Number.isInteger(Number(value)), number: isNumber, array: Array.isArray(value), object: isObject(value) }[type];
    return fits === false ? { wrong: `“${called(name, schema)}” must be ${type}.` } : { value };
  };
  return { name, read, focus: () => input.focus(), box: h("div", {}, h("label", { class: "field", for: id }, named(name, schema, isRequired)), input) };
}

/** A field of which several may be chosen. */
function severalOf(name, schema, choices, isRequired) {
  const before = (Array.isArray(schema.default) ? schema.default : []).map((one) => write(one));
  const boxes = choices.map(([one, words]) => ({ one, box: h("input", { type: "checkbox", checked: before.includes(write(one)) }), words }));
  const read = () => {
    const value = boxes.filter(({ box }) => box.checked).map(({ one }) => one);
    return value.length > 0 || isRequired ? { value } : {};
  };
  return { name, read, focus: () => boxes[0]?.box.focus(), box: h("fieldset", {}, h("legend", {}, named(name, schema, isRequired)), boxes.map(({ box, words }) => h("label", { class: "check" }, box, " ", worded(words)))) };
}

/** Fields within a field: left out where it may be, and none is filled in. */
function group(name, schema, isRequired, depth) {
  const within = fieldsBy(schema, depth + 1);
  const box = h("fieldset", {}, h("legend", {}, named(name, schema, isRequired)), within.boxes);
  const isTouched = () => [...box.querySelectorAll("input,select,textarea")].some((one) => (one.type === "checkbox" ? one.checked : one.value.trim() !== ""));
  return { name, read: () => (isRequired || isTouched() ? within.read() : {}), focus: () => box.querySelector("input,select,textarea")?.focus(), box };
}

/** In words what came of an answer. */
export const outcomeWords = (taken) => {
  if (taken.repeated) return "The same answer was there already: it counts once.";
  if ((taken.missing ?? []).length > 0) return `Taken. It still waits for ${taken.missing.join(", ")}.`;
  if (taken.status === "completed") return "Answered. It went on and has completed.";
  return "Answered. It goes on.";
};

