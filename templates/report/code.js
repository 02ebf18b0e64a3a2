// Source, ttgir, PTX and SASS, with the lines linked that come from each other.

const PANES = { source: "Source", ttgir: "ttgir", ptx: "PTX", sass: "SASS" };

/** The lines of each pane, and what they come from: `line` of the source, `exact` place of it, `ptx` number. */
function codeOf(detail) {
  if (detail.linked) return detail.linked;
  const { code, files, places } = detail;
  const at = (place) => (place < 0 ? null : places[place]);
  const lineOf = (chain) => chain && `${chain[0][0]}:${chain[0][1]}`;
  const exactOf = (chain) => chain && chain[0].join(":");
  const title = (chain) => chain && chain.map(([file, line, column]) => `${files[file]}:${line}:${column}`).join("\n called at ");
  const row = (text, number, chain) => ({ text, number, line: lineOf(chain), exact: exactOf(chain), title: title(chain) });
  const source = code.source.flatMap((part) => [
    { head: `${files[part.file]}${part.name ? `, ${part.name}` : ""}` },
    ...pythonLines(part.text).map(([text, isString], place) => ({ text, isString, tokens: files[part.file].endsWith(".py") ? PYTHON_TOKENS : CPP_TOKENS, number: part.line + place, line: `${part.file}:${part.line + place}`, exact: null })),
  ]);
  const ttgir = code.ttgir.lines.map((text, place) => row(text, place + 1, at(code.ttgir.places[place])));
  const ptx = code.ptx.lines.map((text, place) => ({ ...row(text, place + 1, at(code.ptx.places[place])), ptx: code.ptx.ptx[place] }));
  const sass = code.sass.lines.map((text, place) => {
    const from = code.sass.ptx[place];
    const origin = from < 0 ? null : ptx[from];
    return { text, number: code.sass.addresses[place], ptx: from, line: origin?.line ?? null, exact: origin?.exact ?? null, title: origin?.title };
  });
  const weights = new Map();
  for (const { line, number } of sass) if (line && number) weights.set(line, (weights.get(line) ?? 0) + 1);
  // A line with no instruction of its own is not linked to anything but what the compiler made of it in between.
  for (const each of source) each.weight = weights.get(each.line);
  detail.linked = { source, ttgir, ptx, sass };
  return detail.linked;
}

function codeTab(_variant, detail) {
  const code = codeOf(detail);
  const shown = Object.keys(PANES).filter((name) => code[name].length);
  const panes = new Map(shown.map((name) => [name, codePane(name, code[name], detail)]));
  const linker = new Linker(code, panes);
  const grid = h("div", { class: "panes", vars: { "--panes": shown.length } }, ...[...panes.values()].map((pane) => pane.box));
  const toggles = shown.map((name) => {
    const button = h("button", { type: "button", "aria-pressed": "true" }, PANES[name]);
    button.addEventListener("click", () => {
      const box = panes.get(name).box;
      box.hidden = !box.hidden;
      button.setAttribute("aria-pressed", String(!box.hidden));
      grid.style.setProperty("--panes", Math.max(1, [...panes.values()].filter((pane) => !pane.box.hidden).length));
    });
    return button;
  });
  const notes = [
    detail.is_built === false ? badge("Not the machine code of the build: line numbers changed what ptxas made", "warn") : null,
    code.sass.length ? null : badge("No SASS: nvdisasm is not installed", ""),
  ];
  return h("div", {}, h("div", { class: "toolbar" }, h("span", { class: "muted" }, "Point at a line to see what it became; a click keeps it and scrolls the others there.  Numbers before source lines count instructions."),
    h("span", { class: "push" }, ...notes), ...toggles, h("button", { type: "button", on: { click: () => linker.pin(null) } }, "Clear")), grid);
}

function codePane(name, rows, detail) {
  const lines = h("div", { class: "lines", tabindex: 0, role: "region", "aria-label": PANES[name] });
  const marks = name === "ttgir" ? new Highlighter(detail, rows.map((row) => row.text)) : null;
  const elements = rows.map((row, place) => {
    if (row.head) return h("div", { class: "file" }, row.head);
    const text = marks ? marks.line(row.text) : name === "source" ? sourceTokens(row) : row.text;
    const weight = name === "source" ? h("span", { class: "weight", title: row.weight ? plural(row.weight, "instruction") : "" }, row.weight ?? "") : null;
    return h("div", { class: row.line ? "linked" : "", "data-row": place, title: row.title ?? null }, weight, h("span", { class: "gutter" }, row.number), h("span", {}, text));
  });
  lines.append(...elements);
  const count = rows.filter((row) => !row.head).length;
  const box = h("section", { class: "pane" }, h("h3", {}, PANES[name], h("small", {}, plural(count, name === "sass" ? "instruction" : "line"))), lines);
  return { name, box, lines, elements };
}

/** Marks the lines of all panes that come from the one that is pointed at. */
class Linker {
  constructor(code, panes) {
    this.code = code;
    this.panes = panes;
    this.index = {};
    this.marked = [];
    this.pinned = null;
    for (const [name, rows] of Object.entries(code)) {
      this.index[name] = { line: new Map(), exact: new Map(), ptx: new Map() };
      rows.forEach((row, place) => {
        for (const key of ["line", "exact", "ptx"]) {
          const value = row[key];
          if (value === null || value === undefined || value === -1) continue;
          if (!this.index[name][key].has(value)) this.index[name][key].set(value, []);
          this.index[name][key].get(value).push(place);
        }
      });
    }
    for (const pane of panes.values()) {
      const rowOf = (event) => event.target.closest?.("[data-row]");
      pane.lines.addEventListener("mouseover", (event) => { const row = rowOf(event); if (row && !this.pinned) this.mark(pane.name, Number(row.dataset.row)); });
      pane.lines.addEventListener("mouseleave", () => { if (!this.pinned) this.clear(); });
      pane.lines.addEventListener("click", (event) => { const row = rowOf(event); if (row && !event.target.closest("button")) this.pin(pane.name, Number(row.dataset.row)); });
      pane.lines.addEventListener("keydown", (event) => this.key(pane, event));
    }
  }

  /** The rows of each pane that belong to a row: those of the same line, and of these the ones of the very same place. */
  linked(name, place) {
    const row = this.code[name][place];
    const found = {};
    for (const other of Object.keys(this.code)) {
      const index = this.index[other];
      const near = row.line ? index.line.get(row.line) ?? [] : [];
      let exact = row.exact ? index.exact.get(row.exact) ?? [] : [];
      // PTX and SASS know each other instruction by instruction.
      if (row.ptx >= 0 && (other === "ptx" || other === "sass")) exact = index.ptx.get(row.ptx) ?? [];
      if (name === "source" || other === "source") exact = near;
      found[other] = { near, exact };
    }
    return found;
  }

  mark(name, place) {
    this.clear();
    const found = this.linked(name, place);
    for (const [other, pane] of this.panes) {
      for (const row of found[other].near) this.tag(pane.elements[row], "near");
      for (const row of found[other].exact) this.tag(pane.elements[row], "exact");
    }
    this.tag(this.panes.get(name).elements[place], "exact");
    return found;
  }

  tag(element, kind) {
    element.classList.add(kind);
    this.marked.push([element, kind]);
  }

  clear() {
    for (const [element, kind] of this.marked) element.classList.remove(kind);
    this.marked = [];
  }

  pin(name, place) {
    const again = this.pinned && this.pinned.name === name && this.pinned.place === place;
    this.pinned = null;
    this.clear();
    if (name === null || again) return;
    const found = this.mark(name, place);
    this.pinned = { name, place };
    this.tag(this.panes.get(name).elements[place], "pinned");
    for (const [other, pane] of this.panes) {
      const first = found[other].exact[0] ?? found[other].near[0];
      if (other === name || first === undefined) continue;
      const element = pane.elements[first];
      pane.lines.scrollTop = element.offsetTop - pane.lines.clientHeight / 3;
    }
  }

  /** Arrows move along the lines that are linked; Escape lets go. */
  key(pane, event) {
    if (event.key === "Escape") { this.pin(null); return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.closest("button")) return;
    event.preventDefault();
    const rows = this.code[pane.name];
    let place = this.pinned?.name === pane.name ? this.pinned.place : step > 0 ? -1 : rows.length;
    do place += step; while (rows[place] && !rows[place].line);
    if (!rows[place]) return;
    this.pin(pane.name, place);
    pane.elements[place].scrollIntoView({ block: "nearest" });
  }
}

const PYTHON_TOKENS = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|return|for|in|if|else|elif|while|and|or|not|is|None|True|False|import|from|as|assert|pass|with|lambda)\b|\b(tl(?:\.\w+)+)|\b(\d[\w.]*)\b/g;

/** The lines of a text, and of each whether it belongs to a string of several lines. */
function pythonLines(text) {
  let quote = "";
  return text.split("\n").map((line) => {
    const wasOpen = quote;
    for (const [mark] of line.matchAll(/"""|'''/g)) quote = quote === mark ? "" : quote || mark;
    return [line, Boolean(wasOpen || quote)];
  });
}

const CPP_TOKENS = /(\/\/.*$)|("(?:[^"\\]|\\.)*")|\b(__\w+__|template|typename|class|struct|const|constexpr|static|auto|void|bool|int|unsigned|float|double|if|else|for|while|do|return|switch|case|break|continue|using|namespace)\b|(^\s*#\s*\w+)|\b(\d[\w.]*)\b/g;

function sourceTokens({ text, isString, tokens }) {
  if (isString) return h("span", { class: "tok-string" }, text);
  const found = [];
  let place = 0;
  for (const match of text.matchAll(tokens)) {
    if (match.index > place) found.push(text.slice(place, match.index));
    place = match.index + match[0].length;
    const [whole, comment, string, word, call] = match;
    found.push(h("span", { class: comment ? "tok-comment" : string ? "tok-string" : word ? "tok-name" : call ? "tok-op" : "tok-number" }, whole));
  }
  if (place < text.length) found.push(text.slice(place));
  return found;
}
