/**
 * LangChain.js as a subject of Loopcheck: `createAgent` with the middleware and the checkpointer that its
 * documentation recommends. For another framework, keep the server at the end, and write the other three
 * parts anew: what the framework is, how an agent is made of a setup, and how its runs end.
 */

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { Command, interrupt, isGraphDrained, RunControl } from "@langchain/langgraph";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";
import { ChatOpenAI } from "@langchain/openai";
import {
  createAgent,
  createMiddleware,
  humanInTheLoopMiddleware,
  modelCallLimitMiddleware,
  toolCallLimitMiddleware,
  toolStrategy,
} from "langchain";

// ---------------------------------------------------------------------------------------------------------
// What the framework is.

/** JSON schema of an object, all of whose properties are required. */
function shape(description, properties) {
  return { type: "object", description, properties, required: Object.keys(properties) };
}

/**
 * The shapes of final answers, each a tool for the model. LangChain.js names such a tool itself, by a counter
 * of the process ("extract-1"), and its routing goes by that prefix; so they are made once, in this order.
 */
const DONE = toolStrategy(shape("Call this when the whole task is done.", { summary: { type: "string" } }));
const CITY = toolStrategy(shape("A city.", { city: { type: "string" }, population: { type: "integer" } }));

/** The answer to `GET /`. The templates say what the scripted model has to reply, to end, ask or delegate. */
const ABOUT = {
  protocol: 1,
  framework: "LangChain.js createAgent",
  versions: Object.fromEntries(
    ["langchain", "@langchain/langgraph", "@langchain/openai"].map((name) => [name, version(name)]),
  ),
  finish: {
    any: { text: "$text" },
    call: { name: DONE[0].name, args: { summary: "$text" } },
    structured: { name: CITY[0].name, args: "$value" },
  },
  ask: { name: "ask_user", args: { question: "$text" } },
  delegation: { name: "$name", args: { query: "$text" } },
  lacks: {
    approval_ids: 'decisions match calls by position; `interruptMode: "per_call"` is of langchain 1.5.18',
    compaction: "a history is summarised where `summarizationMiddleware` is among the middleware",
    deadline: "an interrupt waits without a deadline",
    one_runner: "checkpointers do not lock a thread; LangGraph's server does, by its own queue",
    tree_limit: "limits are middleware of one agent",
  },
};

/** The version that is installed, which is what the results are to name. */
function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

// ---------------------------------------------------------------------------------------------------------
// How an agent is made of a setup.

/** Nothing waits, or nothing is left to go on with. */
class Refused extends Error {}

/** Posts JSON to the suite; its status and its answer. */
async function post(url, body = {}) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: response.status, ...(await response.json()) };
}

/** A tool that takes place at the suite. What is wrong there is an exception here. */
function suiteTool(setup, { name, description, parameters }) {
  const run = async (args) => {
    const found = await post(`${setup.tools_url}/call/${name}`, args);
    if (found.status !== 200) throw new Error(found.error ?? `status ${found.status}`);
    return found.result;
  };
  return tool(run, { name, description, schema: parameters });
}

/** The question to the user: the run waits at the interrupt, and gets the answer there. */
const askUser = tool(({ question }) => String(interrupt({ question })), {
  name: "ask_user",
  description: "Ask the user something.",
  schema: shape("", { question: { type: "string" } }),
});

function toolsOf(setup) {
  const tools = setup.tools.map((definition) => suiteTool(setup, definition));
  return setup.asks ? [...tools, askUser] : tools;
}

/** The limit on the calls of the model, if there is one, as an error that the caller cannot overlook. */
function callLimit(turns) {
  return turns == null ? [] : [modelCallLimitMiddleware({ runLimit: turns, exitBehavior: "error" })];
}

/** The middleware of the agent that has the tools: limits, approvals, and the completion check. */
function middlewareOf(setup) {
  const found = callLimit(setup.turns);
  if (setup.tool_calls != null) found.push(toolCallLimitMiddleware({ runLimit: setup.tool_calls }));
  if (setup.approve?.length) {
    const interruptOn = Object.fromEntries(setup.approve.map((name) => [name, true]));
    found.push(humanInTheLoopMiddleware({ interruptOn }));
  }
  if (setup.gate) found.push(gate(setup));
  return found;
}

/** The completion check: what is missing goes back to the model. */
function gate(setup) {
  const hook = async () => {
    const { missing } = await post(`${setup.tools_url}/gate`);
    return missing ? { messages: [new HumanMessage(missing)], jumpTo: "model" } : undefined;
  };
  return createMiddleware({ name: "CompletionCheck", afterAgent: { canJumpTo: ["model"], hook } });
}

/** A sub-agent as a tool, as the documentation has it; its state is in the checkpoints of its caller. */
function helper(setup, model, name) {
  const run = async ({ query }) => {
    const found = await agent.invoke({ messages: [{ role: "user", content: query }] });
    return found.messages.at(-1).text;
  };
  const query = { type: "string", description: "The task, with all that is needed for it." };
  const itself = tool(run, { name, description: "Does a task.", schema: shape("", { query }) });
  const tools = setup.recursive ? [...toolsOf(setup), itself] : toolsOf(setup);
  const middleware = middlewareOf({ ...setup, turns: setup.helper_turns });
  const agent = createAgent({ name, model, tools, middleware });
  return itself;
}

/** The agent of the setup. Where there are helpers, the tools and the approvals are theirs. */
function agentOf(setup, checkpointer) {
  const configuration = { baseURL: setup.model };
  const model = new ChatOpenAI({ model: "scripted", apiKey: "none", configuration });
  const leads = setup.helpers?.length > 0;
  return createAgent({
    model,
    checkpointer,
    tools: leads ? setup.helpers.map((name) => helper(setup, model, name)) : toolsOf(setup),
    middleware: leads ? callLimit(setup.turns) : middlewareOf(setup),
    responseFormat: { call: DONE, structured: CITY }[setup.finish],
    ...(setup.system ? { systemPrompt: setup.system } : {}),
  });
}

// ---------------------------------------------------------------------------------------------------------
// How its runs end.

/** The errors by which LangChain.js says that a limit ended a run; one of the classes is not exported. */
const LIMITS = ["ModelCallLimitMiddlewareError", "GraphRecursionError"];

/** One agent and its thread, in this process. The thread outlives it, in the folder of the setup. */
class Run {
  constructor(setup) {
    this.setup = setup;
    this.saver = SqliteSaver.fromConnString(join(setup.folder, "threads.sqlite"));
    this.agent = agentOf(setup, this.saver);
    this.config = { configurable: { thread_id: setup.thread }, durability: "sync" };
    // A graph ends after 25 steps unless told otherwise. A call of the model with its tools takes up to six
    // of them, so whoever sets a limit on the calls of the model has to raise this one.
    if (setup.turns ?? setup.helper_turns) this.config.recursionLimit = 1000;
  }

  /** The report on one step. */
  async step(order) {
    try {
      return await this[order.do](order);
    } catch (error) {
      if (error instanceof Refused) return { status: "refused", words: error.message };
      console.error(error);
      const words = `${error.name}: ${error.message}`.slice(0, 300);
      if (isGraphDrained(error)) return { status: "stopped", words };
      return { status: LIMITS.includes(error.name) ? "limit" : "error", words };
    }
  }

  say({ text }) {
    return this.invoke({ messages: [{ role: "user", content: text }] });
  }

  async resume() {
    const { next } = await this.agent.graph.getState(this.config);
    if (!next.length) throw new Refused("the thread has no next step");
    return this.invoke(null);
  }

  async answer({ text }) {
    const [question] = await this.waiting("question");
    return this.invoke(new Command({ resume: { [question.id]: text } }));
  }

  /** Each interrupt holds the calls of one reply; all are answered at once, in the order of `pending`. */
  async decide({ decisions }) {
    const left = [...decisions];
    const resume = {};
    for (const { id, value } of await this.waiting("actionRequests")) {
      resume[id] = { decisions: value.actionRequests.map(({ name }) => asDecision(left.shift(), name)) };
    }
    return this.invoke(new Command({ resume }));
  }

  expire() {
    throw new Refused("an interrupt waits without a deadline");
  }

  /** Ends the run at the next step boundary, with its state saved. */
  stop() {
    this.control?.requestDrain("stop");
  }

  close() {
    this.saver.db.close();
  }

  /** The interrupts of the thread, of sub-agents too. key: what tells questions from approvals. */
  async waiting(key) {
    const { tasks } = await this.agent.graph.getState(this.config);
    // A task that got its answer, beside one that has not, still shows its interrupt; but it has a result.
    const open = tasks.filter((task) => task.result === undefined).flatMap((task) => task.interrupts);
    const found = open.filter(({ value }) => key in value);
    if (!found.length) throw new Refused("no such interrupt is pending");
    return found;
  }

  /** Invokes the agent once; how that ended. */
  async invoke(input) {
    this.control = new RunControl();
    const found = await this.agent.invoke(input, { ...this.config, control: this.control });
    const [first] = found.__interrupt__ ?? [];
    if (first && "question" in first.value) return { status: "question", words: first.value.question };
    if (first) {
      const calls = (await this.waiting("actionRequests")).flatMap(({ value }) => value.actionRequests);
      return { status: "approval", pending: calls.map(({ name, args }) => ({ name, args })) };
    }
    return this.ended(found);
  }

  /** How a run ended that returned and waits for nobody. */
  ended({ messages, structuredResponse }) {
    const last = messages.at(-1);
    const words = `${last.getType()}: ${last.text}`.slice(0, 300);
    if (this.setup.finish === "any") return { status: "success", words, final: last.text };
    if (structuredResponse === undefined) {
      return { status: "error", words: `returned without a structured response; ${words}` };
    }
    const final = this.setup.finish === "call" ? structuredResponse.summary : structuredResponse;
    return { status: "success", words, final };
  }
}

/** A decision of the protocol, as the middleware has it. name: of the tool that is decided on. */
function asDecision(decision, name) {
  if (decision.type !== "edit") return decision;
  return { type: "edit", editedAction: { name, args: decision.args } };
}

// ---------------------------------------------------------------------------------------------------------
// The server. Nothing below knows the framework.

let run;

function setUp(setup) {
  run?.close();
  run = new Run(setup);
  return { status: "ready" };
}

const routes = {
  "GET /": () => ABOUT,
  "POST /setup": setUp,
  "POST /step": (order) => run.step(order),
  "POST /stop": () => run.stop() ?? {},
};

async function handle(request, response) {
  let body = "";
  for await (const chunk of request.setEncoding("utf8")) body += chunk;
  const route = routes[`${request.method} ${request.url}`];
  let [status, said] = [404, { error: "no such route" }];
  try {
    if (route) [status, said] = [200, await route(body ? JSON.parse(body) : undefined)];
  } catch (error) {
    console.error(error);
    [status, said] = [500, { error: String(error) }];
  }
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(said));
}

createServer(handle).listen(Number(process.env.LOOPCHECK_PORT), "127.0.0.1");
