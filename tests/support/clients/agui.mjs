// Drives the client of the protocol's own package: each line of stdin asks for one run, each line of stdout
// tells what the client made of it.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const [url, token, threadId] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
console.error = () => {};
// What the client has to repair or to leave out is a fault of the server's.
const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));

async function run(asked) {
  const events = [];
  let failed = null;
  if (asked.text) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: asked.text });
  try {
    await agent.runAgent(
      { resume: asked.resume },
      {
        onEvent: ({ event }) => {
          events.push(event);
        },
      },
    );
  } catch (error) {
    failed = { message: error.message, status: error.status ?? null };
  }
  return {
    events,
    failed,
    warnings: warnings.splice(0),
    messages: agent.messages,
    state: agent.state,
    interrupts: agent.pendingInterrupts,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))));
}
