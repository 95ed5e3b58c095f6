// Mounts a component of React that uses one of LangGraph's hooks: each line of stdin presses a button of it,
// each line of stdout tells what it shows then.
import { createInterface } from "node:readline";
import { createElement } from "react";
import renderer from "react-test-renderer";

// A browser has both; Node before 21 has no navigator.
globalThis.navigator ??= { onLine: true };
globalThis.IS_REACT_ACT_ENVIRONMENT = false;
console.error = () => {};

const [component, apiUrl, threadId] = process.argv.slice(2);
const { default: Component } = await import(component);
const mounted = renderer.create(createElement(Component, { apiUrl, assistantId: "signoff", threadId }));

const all = (kind) => mounted.root.findAll((node) => node.type === kind);
const text = (node) => (typeof node === "string" ? node : node.children.map(text).join(""));
const shown = () => ({
  lines: [...all("p"), ...all("output")].map(text),
  labels: all("label").map((label) => text(label.children[0])),
});

async function until(told) {
  for (let tries = 0; tries < 600; tries++) {
    const found = JSON.stringify(shown());
    if (found.includes(told)) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return JSON.stringify({ ...shown(), missing: told });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { type, press, sees } = JSON.parse(line);
  if (type !== undefined) all("input")[0].props.onChange({ target: { value: type } });
  // The next frame has what was typed.
  await new Promise((resolve) => setTimeout(resolve, 50));
  if (press) all("button").find((button) => text(button) === press).props.onClick();
  console.log(await until(sees));
}
process.exit(0);
