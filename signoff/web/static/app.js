// The page of the application. The server renders every part and decides what an answer means; this script puts
// the parts in their places and sends what a person does. Text by models and people is never parsed as markup
// here: the server escapes the parts, and live text is set as text.

const $ = (id) => document.getElementById(id);
const HIDDEN_SECONDS = 5;
const PEEK_SECONDS = 30;
const MOST_WAIT = 8000;

let token = null;
let thread = null;
let stream = null;
let terminal = null;
let wait = 250;
let pending = null;
let written = null;
const shown = new Map();

// --- requests ---

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function send(what, body = {}) {
  const answer = await fetch(`/api/${what}`, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(what === "enter" ? body : { thread, ...body }),
  });
  const found = await answer.json().catch(() => ({ problem: `The server returned status ${answer.status}.` }));
  if (!answer.ok) throw Object.assign(new Error(found.problem), { status: answer.status });
  return found;
}

async function attempt(work, then) {
  try {
    const found = await work();
    if (then) then(found);
    return true;
  } catch (error) {
    if (error.status === 401) outside(error.message);
    else tell(error.status ? error.message : "The server cannot be reached; try again.");
    return false;
  }
}

// --- messages ---

let telling = 0;
function tell(words) {
  clearTimeout(telling);
  $("told").textContent = words;
  $("told").hidden = false;
  telling = setTimeout(() => { $("told").hidden = true; }, 9000);
}

function say(words) {
  if (words && $("heard").textContent !== words) $("heard").textContent = words;
}

function outside(why) {
  stop();
  $("layout").hidden = true;
  $("enter").hidden = false;
  const asks = document.body.dataset.password === "yes";
  $("enter-password").hidden = !asks;
  $("enter-why").textContent = asks && !token ? "" : why;
  link("not connected", true);
  if (asks) $("password").focus();
}

function link(words, off) {
  $("link").textContent = words;
  $("link").classList.toggle("off", Boolean(off));
}

// --- the parts ---

// The view follows the end until the person scrolls away. A shift because an element has grown or shrunk is not
// scrolling.
let follows = true;
let seen = {};
function scrolled() {
  const box = $("scroll");
  return { top: box.scrollTop, height: box.scrollHeight, client: box.clientHeight };
}
function toEnd() {
  if (follows) $("scroll").scrollTop = $("scroll").scrollHeight;
  seen = scrolled();
}
$("scroll").addEventListener("scroll", () => {
  const now = scrolled();
  if (now.height - now.top - now.client < 60) follows = true;
  else if (now.height === seen.height && now.client === seen.client && now.top < seen.top) follows = false;
  seen = now;
});
new ResizeObserver(toEnd).observe($("scroll"));

const focusable = "a[href], button, input, textarea, summary, [tabindex]";

// Identifies an element by what it does, and for which call of which interrupt: a replacement has another name.
function nameOf(one) {
  if (one.id) return one.id;
  const data = JSON.stringify(one.dataset);
  return data === "{}" ? "" : [one.closest(".ask")?.dataset.interrupt, one.closest(".decide")?.dataset.call, data].join(" ");
}

// The focused element keeps the focus: by its name if it has one, since a list may change its order. Focus never
// moves from one button to another, which Enter would press.
function refocus(place, had, at) {
  const every = [...place.querySelectorAll(focusable)];
  const same = nameOf(had) ? every.find((one) => nameOf(one) === nameOf(had)) : every[at];
  if (same && (nameOf(had) || !same.matches("button"))) same.focus({ preventScroll: true });
  else if (had.matches("input, textarea")) {
    // Further typing must not land in the prompt, as an answer to something else.
    $("main").focus({ preventScroll: true });
    if (had.value) tell("The form that you were filling in has changed; nothing was sent.");
  } else toPrompt();
}

// A prompt with text in it is not focused: Enter would send it.
function toPrompt() {
  $($("prompt").value.trim() ? "main" : "prompt").focus({ preventScroll: true });
}

function put(place, name, markup) {
  if (shown.get(name) === markup) return;
  shown.set(name, markup);
  const open = [...place.querySelectorAll("details")].map((one) => one.dataset.chosen ? one.open : null);
  const had = place.contains(document.activeElement) ? document.activeElement : null;
  const at = had ? [...place.querySelectorAll(focusable)].indexOf(had) : -1;
  place.innerHTML = markup;
  [...place.querySelectorAll("details")].forEach((one, number) => {
    if (open[number] == null) return;
    one.open = open[number];
    one.dataset.chosen = "yes";
  });
  if (had) refocus(place, had, at);
}

function parts(found) {
  const timeline = $("timeline");
  if (found.order) {
    const names = found.order.filter((name) => name.startsWith("p-"));
    const known = new Map([...timeline.children].map((one) => [one.dataset.name, one]));
    for (const [name, one] of known) {
      if (!names.includes(name)) { one.remove(); shown.delete(name); }
    }
    names.forEach((name, number) => {
      let one = known.get(name);
      if (!one) {
        one = document.createElement("div");
        one.className = "part";
        one.dataset.name = name;
      }
      if (timeline.children[number] !== one) timeline.insertBefore(one, timeline.children[number] ?? null);
    });
  }
  for (const [name, markup] of Object.entries(found.put)) {
    if (name === "hint") {
      $("prompt").placeholder = markup;
    } else if (name.startsWith("p-")) {
      const one = [...timeline.children].find((child) => child.dataset.name === name);
      if (one) put(one, name, markup);
    } else {
      const place = document.querySelector(`[data-part="${name}"]`);
      if (place) put(place, name, markup);
    }
  }
  stands(found.put);
  toEnd();
  hints();
}

// A box with more content below its edge shows it.
function hints() {
  for (const one of document.querySelectorAll("#needs, .asked")) {
    one.classList.toggle("more", one.scrollHeight - one.scrollTop - one.clientHeight > 4);
  }
}
$("needs").addEventListener("scroll", hints, { capture: true, passive: true });
for (const one of ["needs", "say"]) new ResizeObserver(hints).observe($(one));

function stands(changed) {
  const badge = document.querySelector("[data-word]");
  const word = badge ? badge.dataset.word : "";
  document.title = `${word} · ${thread} · Signoff`;
  const ask = asked();
  $("prompt-label").textContent = ask ? "Answer" : "Task";
  if ("ask" in changed && ask) say(`${ask.querySelector(".title")?.textContent ?? ""} ${ask.querySelector(".prose, .tool")?.textContent ?? ""}`);
  else if ("problem" in changed && changed.problem) return;
  else if ("head" in changed) say(`${thread}: ${word}`);
}

function live(found) {
  const has = Boolean(found.text || found.calls.length || found.state || found.note || found.line);
  $("live").hidden = !has;
  $("live-line").textContent = [found.state, found.line].filter(Boolean).join(" · ");
  $("live-text").textContent = found.text;
  $("live-note").textContent = found.note;
  $("live-calls").replaceChildren(...found.calls.map((call) => {
    const one = document.createElement("li");
    one.textContent = `running ${call}`;
    return one;
  }));
  light(found.state);
  toEnd();
}

function light(state) {
  for (const one of document.querySelectorAll("#side .box")) {
    one.classList.toggle("now", Boolean(state) && one.querySelector(".name")?.textContent === state);
  }
}

function list(markup) {
  put(document.querySelector('[data-part="list"]'), "list", markup);
  for (const one of document.querySelectorAll("[data-thread]")) {
    if (one.dataset.thread === thread) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  ago();
}

function ago() {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    const seconds = Math.max(0, (Date.now() - Date.parse(one.dateTime)) / 1000);
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) ?? [1, "s"];
    one.textContent = seconds < 10 ? "now" : `${Math.floor(seconds / size)} ${unit}`;
  }
}

// --- the stream ---

function stop() {
  if (stream) stream.abort();
  stream = null;
}

async function follow() {
  stop();
  const own = new AbortController();
  stream = own;
  try {
    const answer = await fetch(`/api/events?thread=${encodeURIComponent(thread)}`, { headers: headers(), signal: own.signal });
    if (answer.status === 401) { outside((await answer.json()).problem); return; }
    if (answer.status >= 400 && answer.status < 500) { refused((await answer.json()).problem); return; }
    if (!answer.ok) throw new Error((await answer.json()).problem);
    wait = 250;
    link("connected");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      buffer += value;
      const events = buffer.split("\n\n");
      buffer = events.pop();
      for (const one of events) if (stream === own) happened(one);
    }
  } catch (error) {
    if (own.signal.aborted) return;
  }
  if (stream !== own) return;
  link("not connected; trying again", true);
  // With jitter, so that many pages do not reconnect at the same moment.
  setTimeout(() => { if (stream === own) follow(); }, wait * (0.5 + Math.random()));
  wait = Math.min(2 * wait, MOST_WAIT);
}

// There is nothing to follow, and a retry would not help.
function refused(why) {
  stop();
  link("not connected", true);
  tell(why);
}

function happened(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  if (!fields.event) return;
  const data = JSON.parse(fields.data);
  if (fields.event === "all") {
    parts(data);
    list(data.list);
    live(data.live);
    if (terminal) terminal.begin(data.terminal);
    else if (data.terminal?.used && !narrow()) view("terminal", true);
    if (hidden) { stop(); hiding = setTimeout(peek, 1000 * PEEK_SECONDS); }
  } else if (fields.event === "parts") { parts(data); light($("live-line").textContent.split(" · ")[0]); }
  else if (fields.event === "live") live(data);
  else if (fields.event === "list") list(data.list);
  else if (fields.event === "terminal") { if (!narrow()) view("terminal", true, true); terminal?.show(data.data); }
  else if (fields.event === "size") terminal?.size(data.rows, data.cols);
  else if (fields.event === "gone") { tell("This thread was deleted."); begin(); }
}

// --- switching threads ---

function open(name, { replace = false } = {}) {
  thread = name;
  meant = null;
  shown.clear();
  follows = true;
  $("timeline").replaceChildren();
  $("live").hidden = true;
  for (const one of document.querySelectorAll('[data-part]:not([data-part="list"])')) one.replaceChildren();
  if (terminal) terminal.end();
  terminal = null;
  view("terminal", false);
  const address = `/?thread=${encodeURIComponent(name)}`;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  if (narrow()) { view("threads", false); view("side", false); }
  follow();
}

async function begin(replace = true) {
  await attempt(async () => {
    const answer = await fetch("/api/new", { headers: headers() });
    const found = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(found.problem), { status: answer.status });
    return found;
  }, (found) => { open(found.thread, { replace }); $("prompt").focus(); });
}

const narrow = () => matchMedia("(max-width: 1100px)").matches;
const views = { threads: "threads", side: "side", terminal: "terminal-box" };

function view(name, visible, quietly) {
  if (name === "terminal" && quietly && failures && !terminal) return;
  const button = $(`view-${name}`);
  const is = !$(views[name]).hidden;
  if (name === "terminal" && visible && !terminal && (!quietly || !is)) openTerminal();
  if (is === visible) return;
  $(views[name]).hidden = !visible;
  button.setAttribute("aria-expanded", String(visible));
  $("layout").classList.toggle("no-threads", $("threads").hidden);
  $("layout").classList.toggle("no-side", $("side").hidden);
  if (visible && narrow()) {
    if (name === "threads") view("side", false);
    if (name === "side" && matchMedia("(max-width: 640px)").matches) view("threads", false);
  }
}

let opening = false;
let failures = 0;
async function openTerminal() {
  if (opening) return;
  opening = true;
  try {
    // A browser may remember that a file failed to load: a retry uses another address.
    const { Shared } = await import(`/static/terminal.js${failures ? `?try=${failures}` : ""}`);
    if (terminal || $("terminal-box").hidden) return;
    const mine = thread;
    terminal = new Shared($("terminal"), (body) => send("terminal", { thread: mine, ...body }), () => $("prompt").focus(), tell);
    // The earlier output comes with the whole state.
    follow();
  } catch {
    failures += 1;
    view("terminal", false);
    tell("The terminal could not be loaded; press Terminal to try again.");
  } finally { opening = false; }
}

// --- actions ---

async function answer(ask, texts) {
  if (pending) return;
  pending = ask.dataset.interrupt;
  ask.querySelectorAll("button").forEach((one) => { one.disabled = true; });
  const done = await attempt(() => send("answer", { interrupt_id: ask.dataset.interrupt, shown: ask.dataset.shown, texts }));
  pending = null;
  if (!done) allow(ask);
  else toPrompt();
  return done;
}

// Enables buttons: all decisions are sent together once each is made, and an open edit rules out an approval.
function allow(ask) {
  ask.querySelectorAll("button").forEach((one) => { one.disabled = false; });
  const calls = [...ask.querySelectorAll(".decide")];
  const all = ask.querySelector("[data-send]");
  if (all) all.disabled = calls.some((one) => !one.dataset.text);
  for (const call of calls) {
    const edit = call.querySelector('[data-form="edit"]');
    const approve = call.querySelector('[data-kind="approve"]');
    if (edit && approve) approve.disabled = !edit.hidden;
  }
}

function undecide(call) {
  delete call.dataset.text;
  call.querySelectorAll("[data-kind]").forEach((one) => one.setAttribute("aria-pressed", "false"));
  call.querySelector(".taken").textContent = "";
}

function decide(button, ask) {
  const call = button.closest(".decide");
  const kind = button.dataset.kind;
  const words = call.querySelector(`[data-form="${kind}"] textarea`)?.value.trim() ?? "";
  call.dataset.text = kind === "approve" ? kind : `${kind}: ${words}`;
  if (ask.dataset.calls === "1") { answer(ask, [call.dataset.text]); return; }
  call.querySelectorAll("[data-kind]").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
  call.querySelector(".taken").textContent = `decided: ${kind}`;
  allow(ask);
}

function opens(button) {
  const call = button.closest(".decide");
  for (const one of call.querySelectorAll("[data-opens]")) {
    const form = call.querySelector(`[data-form="${one.dataset.opens}"]`);
    const visible = one === button && form.hidden;
    form.hidden = !visible;
    one.setAttribute("aria-expanded", String(visible));
    if (visible) {
      form.querySelector("textarea").focus();
      form.scrollIntoView({ block: "end" });
    }
  }
  undecide(call);
  allow(call.closest(".ask"));
}

// A message whose response was lost is sent again with the same id, so that it begins only one task.
async function write(text) {
  const settings = {};
  for (const one of document.querySelectorAll("[data-own]")) {
    if (one.value.trim()) settings[one.dataset.own] = one.value.trim();
  }
  if (written?.text !== text || written.thread !== thread) written = { text, thread, request: newId() };
  return attempt(() => send("write", { text, request: written.request, settings }), () => { written = null; });
}

// crypto.randomUUID exists only in secure contexts.
const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

// The interrupt that the text in the prompt is meant for: the one that was open when typing began.
let meant = null;
const asked = () => document.querySelector('[data-part="ask"] .ask');
const waits = () => asked()?.dataset.interrupt ?? "";
$("prompt").addEventListener("input", () => {
  // After the prompt was emptied, new text is meant for what waits then.
  if (!$("prompt").value.trim()) meant = written = null;
  else if (meant === null) meant = waits();
});
// A decision holds only for the text that it was made with.
document.addEventListener("input", (event) => {
  const call = event.target.closest(".decide");
  if (call?.dataset.text) { undecide(call); allow(call.closest(".ask")); }
});

let sending = false;
async function prompted() {
  const text = $("prompt").value.trim();
  if (!text || sending) return;
  const ask = asked();
  if (meant !== null && meant !== waits()) {
    meant = waits();
    tell(ask ? "The thread has asked for an answer since you began to type. Read it; Enter then sends your text as the answer."
      : "The thread no longer waits for what you were answering. Enter now sends your text as a task.");
    return;
  }
  sending = true;
  const done = ask ? await answer(ask, [text]) : await write(text);
  sending = false;
  if (done) { $("prompt").value = ""; meant = null; }
}

document.addEventListener("click", (event) => {
  // What a person has opened or closed stays so when its part is rendered again.
  const summary = event.target.closest("summary");
  if (summary) summary.parentElement.dataset.chosen = "yes";
  const button = event.target.closest("button");
  const place = event.target.closest("[data-thread]");
  if (place && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    open(place.dataset.thread);
    return;
  }
  if (!button) return;
  const ask = button.closest(".ask");
  const { move, fork, text, kind } = button.dataset;
  if (move) attempt(() => send("move", { move, ...(move === "go_on" && $("turns") ? { turns: $("turns").value } : {}) }));
  else if (fork !== undefined) attempt(() => send("fork", { at: fork || null }), (found) => { open(found.thread); tell(`Forked to ${found.thread}.`); $("prompt").focus(); });
  else if (button.dataset.delete) sure();
  else if (ask && text !== undefined) answer(ask, [text]);
  else if (ask && button.dataset.again) attempt(() => send("again", { interrupt_id: ask.dataset.interrupt }));
  else if (ask && button.dataset.opens) opens(button);
  else if (ask && kind) decide(button, ask);
  else if (ask && button.dataset.send) answer(ask, [...ask.querySelectorAll(".decide")].map((one) => one.dataset.text));
});

function sure() {
  $("sure-words").textContent = `Delete ${thread} and all its data? Your files are not changed.`;
  $("sure").showModal();
}
$("sure-no").addEventListener("click", () => $("sure").close());
$("sure-yes").addEventListener("click", () => {
  $("sure").close();
  attempt(() => send("delete"));
});
$("new").addEventListener("click", () => begin(false));
for (const name of Object.keys(views)) {
  $(`view-${name}`).addEventListener("click", () => view(name, $(views[name]).hidden));
}
$("say").addEventListener("submit", (event) => { event.preventDefault(); prompted(); });
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); prompted(); }
});
$("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    keep((await send("enter", { password: $("password").value })).token);
    $("password").value = "";
    enter();
  } catch (error) { $("enter-why").textContent = error.message; }
});
addEventListener("popstate", () => {
  const name = new URLSearchParams(location.search).get("thread");
  if (name && name !== thread) open(name, { replace: true });
});
// A browser opens only a few connections to a server, so a hidden tab closes its own. It reconnects from time to
// time, so that its title shows when the thread waits.
let hiding = 0;
let hidden = false;
function peek() {
  hidden = true;
  if (thread && !$("layout").hidden) follow();
}
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  hidden = false;
  if (document.hidden) hiding = setTimeout(peek, 1000 * HIDDEN_SECONDS);
  else if (thread && !stream && !$("layout").hidden) follow();
});
setInterval(ago, 15000);

// --- startup ---

function keep(found) {
  token = found;
  sessionStorage.setItem("token", found);
}

function enter() {
  $("enter").hidden = true;
  $("layout").hidden = false;
  const name = new URLSearchParams(location.search).get("thread");
  if (name) open(name, { replace: true });
  else begin();
}

const given = new URLSearchParams(location.hash.slice(1));
if (given.has("token")) keep(given.get("token"));
else token = sessionStorage.getItem("token");
if (given.has("token") || given.has("thread")) {
  const name = given.get("thread");
  history.replaceState(null, "", name ? `/?thread=${encodeURIComponent(name)}` : location.pathname + location.search);
}
if (narrow()) { view("side", false); if (matchMedia("(max-width: 640px)").matches) view("threads", false); }
if (token || document.body.dataset.proxy === "yes") enter();
else outside("Open the address that signoff serve printed, with its token.");
