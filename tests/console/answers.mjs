// Answers to what asks for several things at once, changes under the eyes of who answers, and what is lost on the way.

import { accessible, check, equal, holds, picture } from "./browser.mjs";
import { assistant, rest, said, session, task, until } from "./world.mjs";

/** Calls for two letters in one step. */
const twice = {
  reply(body, choice) {
    const last = body.messages.at(-1);
    if (last.role !== "user" || !String(last.content).includes("two letters")) return null;
    const call = (number) => ({ id: `call_${number}`, type: "function", function: { name: "send_letter", arguments: JSON.stringify({ to: `person-${number}@example.com`, text: `number ${number}` }) } });
    return choice({ role: "assistant", content: null, tool_calls: [call(1), call(2)] }, "tool_calls");
  },
};

export async function answers(shipped) {
  const server = await assistant(twice);
  const of = await session(server, (await server.get("/v1/personas")).data[0].id);

  await check("arguments that were changed and folded away are what runs", async (tab) => {
    const before = server.letters.length;
    const id = await task(server, of, said("Send a letter to be changed and folded away"));
    const page = await tab({ server });
    await page.open(`/console/inbox/${id}`);
    const title = page.getByText("Change the arguments before approving");
    await title.click();
    await page.getByLabel("Arguments, a JSON object").fill(JSON.stringify({ to: "ada@example.com", text: "folded" }));
    await title.click();
    await page.locator("summary .mark", { hasText: "Changed" }).waitFor();
    await accessible(page, "changed arguments, folded away");
    await page.button("Approve").click();
    await until("the letter is sent", () => server.letters.length > before);
    equal(server.letters.slice(before), [{ to: "ada@example.com", text: "folded" }], "the letter");
  });
}
