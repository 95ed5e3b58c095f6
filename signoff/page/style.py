"""How a page looks: in light, in dark, on a phone, on paper. In ASCII alone."""

from signoff.page.style_parts import OTHER, PICTURE, TIMELINE

_COLOURS = """
:root {
  --page: #f4f6f9; --card: #fff; --text: #1b2130; --quiet: #586174; --line: #dde2ea; --code: #f3f5f9;
  --blue: #0b5fd0; --blue-soft: #e9f2ff; --green: #14703a; --green-soft: #e5f7ea;
  --amber: #8a5800; --amber-soft: #fff5d9; --red: #c01f2e; --red-soft: #ffedec;
  --violet: #7440c9; --violet-soft: #f5efff; --grey: #586174; --grey-soft: #eef1f5; --pale: #cdd4de;
  --shadow: 0 1px 2px rgb(20 30 60 / 6%), 0 4px 16px rgb(20 30 60 / 5%);
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #0c1017; --card: #141a24; --text: #e8edf5; --quiet: #9aa5b8; --line: #273040; --code: #0f151e;
    --blue: #6db0ff; --blue-soft: #11243f; --green: #5ccf80; --green-soft: #10291b;
    --amber: #e3b04b; --amber-soft: #2b220f; --red: #ff8d86; --red-soft: #331a1c;
    --violet: #bd99ff; --violet-soft: #231b3b; --grey: #9aa5b8; --grey-soft: #1c2430; --pale: #38445a;
    --shadow: none;
  }
}
.blue { --tone: var(--blue); --soft: var(--blue-soft); }
.green { --tone: var(--green); --soft: var(--green-soft); }
.amber { --tone: var(--amber); --soft: var(--amber-soft); }
.red { --tone: var(--red); --soft: var(--red-soft); }
.violet { --tone: var(--violet); --soft: var(--violet-soft); }
.grey, .plain { --tone: var(--grey); --soft: var(--grey-soft); }
"""

_BASE = """
*, ::before, ::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body {
  margin: 0 auto; max-width: 1480px; padding: 1.5rem clamp(.75rem, 2.4vw, 2.25rem) 2rem;
  background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
}
p, dl, dd, ul, ol, pre, h1, h2, h3, blockquote { margin: 0; }
code, pre, .short, .glance {
  font-family: ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
code { font-size: .92em; }
h1, h2, h3 { line-height: 1.25; letter-spacing: -.01em; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; border-radius: 4px; }
main:focus { outline: none; }
.hear, .skip:not(:focus) {
  position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap;
}
.skip:focus {
  position: fixed; top: .5rem; left: .5rem; z-index: 9; padding: .5rem 1rem; border-radius: 8px;
  background: var(--card); color: var(--blue);
}
.quiet, .facts, .note { color: var(--quiet); font-size: .87rem; }
.facts > span + span::before { content: "\\00b7"; margin: 0 .45em; }
.label {
  color: var(--quiet); font-size: .72rem; font-weight: 650; letter-spacing: .06em; text-transform: uppercase;
}
.prose, .lead, blockquote { white-space: pre-wrap; unicode-bidi: isolate; }
/* Marks that pile up on a letter stay in the box of their text. */
h1, .prose, .lead, blockquote, dt, dd, td, .tool, .rule, .facts {
  overflow: clip; overflow-clip-margin: 4px;
}
.left-out { color: var(--amber); font-style: italic; font-size: .87rem; }
.mark { font-family: system-ui, "Segoe UI Symbol", "DejaVu Sans", sans-serif; font-weight: 700; }

.page-head {
  padding: 1.35rem 1.6rem 1.3rem; border: 1px solid var(--line); border-top: 4px solid var(--tone);
  border-radius: 14px; background: var(--card); box-shadow: var(--shadow);
}
.brand { font-weight: 700; letter-spacing: -.01em; font-size: .9rem; }
.brand span { color: var(--quiet); font-weight: 400; }
.top { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .9rem; margin: .3rem 0 .35rem; }
h1 { font-size: clamp(1.35rem, 3.4vw, 1.95rem); font-weight: 720; letter-spacing: -.02em;
  unicode-bidi: isolate; min-width: 0; }
.badge {
  padding: .2rem .75rem; border-radius: 99px; background: var(--soft); color: var(--tone);
  border: 1px solid color-mix(in srgb, var(--tone) 35%, transparent); font-weight: 650; font-size: .9rem;
}
.lead { font-size: 1.06rem; max-width: 62rem; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.4rem; margin: 1.1rem 0 .9rem; }
.figures > div { display: flex; flex-direction: column-reverse; }
.figures dt { color: var(--quiet); font-size: .8rem; }
.figures dd { font-size: 1.4rem; font-weight: 680; line-height: 1.2; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.about {
  display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); font-size: .87rem;
}
.about > div { display: flex; gap: .45rem; min-width: 0; }
.about dt { color: var(--quiet); flex: none; }
.about dd { min-width: 0; }

.columns { display: grid; grid-template-columns: minmax(0, 1fr); gap: 1.25rem 2rem; margin-top: 1.25rem; }
aside, .numbers { min-width: 0; }
aside {
  padding: 1.1rem 1.2rem; border: 1px solid var(--line); border-radius: 14px; background: var(--card);
  box-shadow: var(--shadow);
}
aside h2 { font-size: 1.05rem; }
footer { margin-top: 1.75rem; color: var(--quiet); font-size: .82rem; text-align: center; }
@media (min-width: 1080px) {
  .columns { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: start; }
  aside { position: sticky; top: 1rem; max-height: calc(100vh - 2rem); overflow: auto; }
}
@media (min-width: 1280px) { .columns { grid-template-columns: minmax(0, 11fr) minmax(0, 10fr); } }
"""

STYLE = _COLOURS + _BASE + TIMELINE + PICTURE + OTHER
