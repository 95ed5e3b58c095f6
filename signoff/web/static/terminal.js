// The terminal of a thread: xterm.js (MIT, see xterm-LICENSE.txt) on the output that the server sends to all pages.

// xterm makes style elements and style attributes, which the page's policy forbids. So the elements get the page's
// nonce, and attributes are set as properties.
const nonce = document.querySelector('meta[name="style-nonce"]').content;
const make = document.createElement.bind(document);
document.createElement = (name, options) => {
  const made = make(name, options);
  if (String(name).toLowerCase() === "style") made.nonce = nonce;
  return made;
};
const set = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (String(name).toLowerCase() === "style" && this.style) this.style.cssText = value;
  else set.call(this, name, value);
};

const styled = make("link");
styled.rel = "stylesheet";
styled.href = "/static/xterm.css";
document.head.append(styled);

// With the same `try` in the address as this file.
const { Terminal } = await import(`/static/xterm.mjs${new URL(import.meta.url).search}`);

const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
const MOST = 60000;

export class Shared {
  constructor(place, send, leave, tell) {
    this.place = place;
    this.send = send;
    this.tell = tell;
    this.typed = "";
    this.busy = false;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.screen = new Terminal({
      rows: 12, cols: 90, scrollback: 2000, fontSize: 13, cursorBlink: !still, screenReaderMode: true,
      minimumContrastRatio: 4.5,
      fontFamily: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
      theme: { background: "#0c1017", foreground: "#e8edf5" },
      // Links that a program prints are plain text.
      linkHandler: { activate() {}, allowNonHttpProtocols: false },
    });
    // Several pages show one terminal: none of them may answer a program's queries about it.
    const quiet = () => true;
    for (const id of [{ final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }, { final: "n" }, { prefix: "?", final: "n" }, { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" }, { final: "t" }]) {
      this.screen.parser.registerCsiHandler(id, quiet);
    }
    for (const id of [4, 10, 11, 12, 52]) this.screen.parser.registerOscHandler(id, quiet);
    this.screen.parser.registerDcsHandler({ intermediates: "$", final: "q" }, quiet);
    this.screen.open(place);
    place.querySelector("textarea").setAttribute("aria-describedby", "terminal-help");
    this.screen.attachCustomKeyEventHandler((event) => {
      if (event.ctrlKey && event.key === "]") {
        if (event.type === "keydown") leave();
        event.preventDefault();
        return false;
      }
      return true;
    });
    this.screen.onData((data) => this.type(data));
    place.addEventListener("focusin", () => this.fit(), { once: false });
    this.type("");
  }

  begin(found) {
    this.screen.reset();
    if (!found) return;
    this.size(found.rows, found.cols);
    this.show(found.data);
  }

  show(data) { this.screen.write(bytes(data)); }

  size(rows, cols) { this.screen.resize(cols, rows); }

  end() { this.screen.dispose(); this.place.replaceChildren(); }

  // The terminal takes the size of the window in which it gets the focus.
  fit() {
    const row = this.place.querySelector(".xterm-screen");
    if (!row) return;
    const width = row.clientWidth / this.screen.cols;
    const cols = Math.max(40, Math.min(160, Math.floor((this.place.clientWidth - 30) / width)));
    if (width && Math.abs(cols - this.screen.cols) > 1) this.wanted = { rows: this.screen.rows, cols };
    this.type("");
  }

  // One request after the other, so that keys arrive in order.
  async type(data) {
    this.typed += data;
    if (this.busy) return;
    this.busy = true;
    do {
      const now = this.typed.slice(0, MOST);
      this.typed = this.typed.slice(MOST);
      const wanted = this.wanted ?? {};
      this.wanted = null;
      try {
        await this.send({ data: now, ...wanted });
      } catch (error) {
        this.typed = "";
        this.tell(error.message);
      }
    } while (this.typed || this.wanted);
    this.busy = false;
  }
}
