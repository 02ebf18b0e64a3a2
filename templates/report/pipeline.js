// The passes: the text of the IR after each, made of the differences that the page holds, side by side.

const CONTEXT = 3;

/** The lines after every pass, with `rows` that align them with those of the pass before. */
function textsOf(detail) {
  detail.texts ??= detail.passes.reduce((texts, pass) => {
    const before = texts.length ? texts[texts.length - 1].lines : [];
    texts.push(pass.lines ? { lines: pass.lines, rows: [], added: 0, removed: 0 } : applied(before, pass));
    return texts;
  }, []);
  return detail.texts;
}

/** What `pipeline.applied` does in Python, and the rows: [left, right] numbers of lines, -1 for none. */
function applied(before, pass) {
  const numbers = pass.numbers ?? {};
  const rename = (line) => line.replace(/%(\d+)\b/g, (whole, number) => (number in numbers ? `%${numbers[number]}` : whole));
  const lines = [];
  const rows = [];
  let place = 0;
  let added = 0;
  let removed = 0;
  const copy = (count) => {
    for (let end = place + count; place < end; place += 1) {
      rows.push([place, lines.length]);
      lines.push(pass.edits ? rename(before[place]) : before[place]);
    }
  };
  for (const [copied, dropped, fresh] of pass.edits ?? []) {
    copy(copied);
    const pairs = Math.min(dropped, fresh.length);
    for (let index = 0; index < Math.max(dropped, fresh.length); index += 1) {
      rows.push([index < dropped ? place + index : -1, index < fresh.length ? lines.length + index : -1, index < pairs]);
    }
    lines.push(...fresh);
    place += dropped;
    added += fresh.length;
    removed += dropped;
  }
  copy(before.length - place);
  return { lines, rows, added, removed };
}

function pipelineTab(variant, detail, words) {
  const texts = textsOf(detail);
  if (!texts.length) return h("p", { class: "empty" }, "A kernel in CUDA C++ has no passes of kbuild's: NVRTC compiles it.  Its PTX and machine code are under Code.");
  // At first the first pass that changed something.
  const first = texts.findIndex((text) => text.added + text.removed);
  const current = words.length ? Math.min(Math.max(0, Number(words[0]) || 0), texts.length - 1) : Math.max(0, first);
  const view = { whole: texts[current].rows.length < 60, unified: matchMedia("(max-width: 900px)").matches };
  const right = h("div");
  const draw = () => right.replaceChildren(passHead(detail, current, view, draw), passText(detail, current, view));
  draw();
  return h("div", { class: "pipeline" }, passList(variant, detail, current), right);
}

function passList(variant, detail, current) {
  const texts = textsOf(detail);
  const list = h("ul", { class: "passes", "aria-label": "Passes" });
  let stage = "";
  detail.passes.forEach((pass, place) => {
    if (pass.stage !== stage) {
      stage = pass.stage;
      list.append(h("li", { class: "stage" }, stage));
    }
    const { added, removed } = texts[place];
    const count = added + removed ? [added ? h("span", { class: "plus" }, `+${added}`) : null, " ", removed ? h("span", { class: "minus" }, `−${removed}`) : null] : null;
    list.append(h("li", {}, h("a", { href: variantLink(variant.name, "passes", [place]), class: count || !place ? "" : "idle", "aria-current": place === current ? "true" : null, title: count || !place ? "" : "This pass changed nothing" },
      h("span", {}, place ? pass.name : "before the first pass"), h("span", { class: "count" }, count))));
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const links = [...list.querySelectorAll("a")];
    links[links.indexOf(document.activeElement) + step]?.focus();
  });
  requestAnimationFrame(() => list.querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" }));
  return list;
}

function passHead(detail, current, view, draw) {
  const pass = detail.passes[current];
  const { added, removed } = textsOf(detail)[current];
  const says = !current ? "what the first pass gets" : added + removed ? `${plural(added, "line")} added, ${plural(removed, "line")} removed` : "changed nothing";
  const toggle = (name, text) => h("button", { type: "button", "aria-pressed": String(view[name]), on: { click: () => { view[name] = !view[name]; draw(); } } }, text);
  return h("div", { class: "toolbar" }, h("h2", {}, current ? pass.name : "Before the first pass"), h("span", { class: "muted" }, says),
    h("span", { class: "push" }), current ? toggle("whole", "All lines") : null, " ", current ? toggle("unified", "One column") : null);
}

function passText(detail, current, view) {
  const texts = textsOf(detail);
  const { lines, rows } = texts[current];
  const before = current ? texts[current - 1].lines : [];
  const marks = new Highlighter(detail, lines);
  const old = new Highlighter(detail, before);
  const box = h("div", { class: `sides${view.unified || !current ? " unified" : ""}`, tabindex: 0, role: "region", "aria-label": "IR" });
  const body = h("tbody");
  if (!current) {
    body.append(...lines.map((line, place) => h("tr", {}, gutter(place), h("td", {}, marks.line(line)))));
    box.append(h("table", {}, body));
    return box;
  }
  const draw = (row) => (view.unified ? unifiedRows(row, before, lines, old, marks) : [sideRow(row, before, lines, old, marks)]);
  const wide = view.unified ? 3 : 4;
  for (const [start, end, isSame] of runs(rows)) {
    const keep = isSame && !view.whole && end - start > 2 * CONTEXT + 2;
    const first = start === 0 ? start : start + CONTEXT;
    const last = end === rows.length ? end : end - CONTEXT;
    const shown = keep ? [...rows.slice(start, first), null, ...rows.slice(last, end)] : rows.slice(start, end);
    for (const row of shown) {
      if (row) body.append(...draw(row));
      else body.append(fold(rows.slice(first, last), draw, wide));
    }
  }
  const names = [detail.passes[current - 1].name, detail.passes[current].name];
  const head = view.unified ? null : h("thead", {}, h("tr", {}, ...[`After ${names[0]}`, `After ${names[1]}`].map((text) => h("th", { colspan: 2, scope: "col" }, text))));
  const columns = view.unified ? null : h("colgroup", {}, ...["46px", "", "46px", ""].map((width) => { const column = h("col"); column.style.width = width; return column; }));
  box.append(h("table", {}, columns, head, body));
  return box;
}

/** Runs of rows that are the same on both sides, and of those that are not: [start, end, same]. */
function runs(rows) {
  const found = [];
  rows.forEach((row, place) => {
    const isSame = row.length === 2;
    const last = found[found.length - 1];
    if (last && last[2] === isSame) last[1] = place + 1;
    else found.push([place, place + 1, isSame]);
  });
  return found;
}

function fold(rows, draw, wide) {
  const row = h("tr", { class: "fold" });
  const open = () => row.replaceWith(...rows.flatMap(draw));
  row.append(h("td", { colspan: wide }, h("button", { type: "button", on: { click: open } }, `⋯ ${plural(rows.length, "line")} without a change`)));
  return row;
}

function gutter(place) {
  return h("td", { class: "gutter" }, place < 0 ? "" : place + 1);
}

function sideRow([left, right, isPair], before, lines, old, marks) {
  const isSame = isPair === undefined;
  const tones = isSame ? ["", ""] : [left < 0 ? "none" : "removed", right < 0 ? "none" : "added"];
  const words = isPair ? changedPart(before[left], lines[right]) : [null, null];
  return h("tr", {}, gutter(left), h("td", { class: tones[0] }, left < 0 ? "" : old.line(before[left], words[0])),
    gutter(right), h("td", { class: tones[1] }, right < 0 ? "" : marks.line(lines[right], words[1])));
}

function unifiedRows([left, right, isPair], before, lines, old, marks) {
  if (isPair === undefined) return [h("tr", {}, gutter(left), gutter(right), h("td", {}, marks.line(lines[right])))];
  const words = isPair ? changedPart(before[left], lines[right]) : [null, null];
  return [
    left < 0 ? null : h("tr", {}, gutter(left), gutter(-1), h("td", { class: "removed" }, old.line(before[left], words[0]))),
    right < 0 ? null : h("tr", {}, gutter(-1), gutter(right), h("td", { class: "added" }, marks.line(lines[right], words[1]))),
  ].filter(Boolean);
}

/** The parts of two lines that differ, as [start, end] each; nothing where they have little in common. */
function changedPart(left, right) {
  const [a, b] = [left, right].map((line) => line.match(/\s+|[\w.%#]+|./g) ?? []);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const common = [...a.slice(0, start), ...a.slice(a.length - end)].join("").trim().length;
  if (common < Math.min(left.length, right.length) / 3) return [null, null];
  const span = (words) => [words.slice(0, start).join("").length, words.slice(0, words.length - end).join("").length];
  return [span(a), span(b)];
}

const IR_TOKENS = /("(?:[^"\\]|\\.)*")|((?:tensor|!ttg\.memdesc)<[^<>]*(?:<[^<>]*>)?[^<>]*, #\w+>)|(#\w+)|(%[\w]+)|\b((?:tt|ttg|ttng|arith|scf|math|gpu|cf|nvvm)\.[\w.]+)|\b(\d[\w.+-]*)\b/g;

/** Colours lines of IR; types with a layout are buttons that draw it. */
class Highlighter {
  constructor(detail, lines) {
    this.detail = detail;
    this.aliases = new Map();
    for (const line of lines) {
      const match = /^(#\w+) = (.+)$/.exec(line);
      if (match) this.aliases.set(match[1], match[2]);
      else if (line) break;
    }
  }

  line(text, changed = null) {
    if (!changed) return this.tokens(text);
    const [start, end] = changed;
    const middle = end > start ? [h("mark", {}, this.tokens(text.slice(start, end)))] : [];
    return [...this.tokens(text.slice(0, start)), ...middle, ...this.tokens(text.slice(end))];
  }

  tokens(text) {
    const found = [];
    let place = 0;
    for (const match of text.matchAll(IR_TOKENS)) {
      if (match.index > place) found.push(text.slice(place, match.index));
      place = match.index + match[0].length;
      const [whole, string, type, alias, name, op] = match;
      if (type) found.push(this.type(type));
      else found.push(h("span", { class: string ? "tok-string" : alias ? "tok-type" : name ? "tok-name" : op ? "tok-op" : "tok-number" }, whole));
    }
    if (place < text.length) found.push(text.slice(place));
    return found;
  }

  type(text) {
    const match = /<(?:\d+ x )?((?:\d+x)+).*, (#\w+)>$/.exec(text);
    const key = match ? `${match[1].slice(0, -1)} ${this.aliases.get(match[2])}` : "";
    if (!this.detail.layouts[key]) return h("span", { class: "tok-type" }, text);
    return h("button", { type: "button", class: "tok-layout", title: "Draw who holds which element", on: { click: () => showLayout(this.detail, key, text) } }, text);
  }
}
