// Layouts drawn: who holds which element of a tensor.  A layout is linear over bits: the element that register r of lane
// l of warp w holds is the XOR of the bases of the bits that are set in r, l and w.

const COLOUR_BY = { register: "Register", lane: "Lane", warp: "Warp", block: "Block", offset: "Offset", bank: "Bank" };

/** A layout as a map from elements to the places that hold them. */
class Layout {
  constructor(key, { shape, bases, bytes, gaps, facts }) {
    this.key = key;
    this.bytes = bytes;
    this.gaps = gaps;
    this.facts = facts;
    this.shape = shape;
    this.dims = bases;
    this.names = bases.map(([name]) => name);
    this.isShared = this.names.includes("offset");
    const bits = bases.flatMap(([name, rows]) => rows.map((basis, bit) => ({ name, bit, flat: this.flat(basis) })));
    this.size = 2 ** bits.length;
    this.count = shape.reduce((product, size) => product * size, 1);
    // The places of each element, in the order in which hardware counts them.
    this.places = Array.from({ length: this.count }, () => []);
    for (let place = 0; place < this.size; place += 1) {
      let element = 0;
      for (let bit = 0; bit < bits.length; bit += 1) if ((place >> bit) & 1) element ^= bits[bit].flat;
      this.places[element].push(place);
    }
    this.widths = bases.map(([, rows]) => rows.length);
  }

  flat(coordinates) {
    return coordinates.reduce((sum, value, axis) => sum * this.shape[axis] + value, 0);
  }

  /** The numbers of a place by name: { register: 3, lane: 17, warp: 0 }. */
  split(place) {
    const found = {};
    this.names.forEach((name, index) => {
      found[name] = place & (2 ** this.widths[index] - 1);
      place >>>= this.widths[index];
    });
    // Gaps move an element up by all that lie below it.
    for (const [interval, padding] of this.gaps) if ("offset" in found) found.gap = (found.gap ?? 0) + Math.floor(found.offset / interval) * padding;
    if (found.gap) found.offset += found.gap;
    delete found.gap;
    return found;
  }

  /** Elements by rows and columns: axes before the last two stand above each other. */
  grid() {
    const rank = this.shape.length;
    if (rank === 0) return { rows: 1, columns: 1 };
    if (rank === 1) {
      const columns = Math.min(this.shape[0], 64);
      return { rows: this.shape[0] / columns, columns };
    }
    return { rows: this.count / this.shape[rank - 1], columns: this.shape[rank - 1] };
  }

  coordinates(element) {
    const found = [];
    for (let axis = this.shape.length - 1; axis >= 0; axis -= 1) {
      found.unshift(element % this.shape[axis]);
      element = Math.floor(element / this.shape[axis]);
    }
    return found;
  }

  says(element) {
    const where = this.places[element].map((place) => {
      const numbers = this.split(place);
      return this.names.filter((name, index) => this.widths[index] || name !== "block").map((name) => `${name} ${numbers[name]}`).join(", ");
    });
    const shown = where.slice(0, 4).join("; ");
    return `[${this.coordinates(element).join(", ")}]: ${shown || "nobody"}${where.length > 4 ? ` and ${where.length - 4} more` : ""}`;
  }
}

function layoutOf(detail, key) {
  detail.drawn ??= new Map();
  if (!detail.drawn.has(key)) detail.drawn.set(key, new Layout(key, detail.layouts[key]));
  return detail.drawn.get(key);
}

function layoutTab(variant, detail, words) {
  const keys = Object.keys(detail.layouts);
  if (!keys.length) return h("p", { class: "empty" }, "No tensor of this kernel has a layout that can be drawn.");
  const used = usesOf(detail);
  keys.sort((left, right) => (used.get(right) ?? 0) - (used.get(left) ?? 0));
  const current = keys[Number(words[0]) || 0] ?? keys[0];
  const list = h("ul", {}, ...keys.map((key, place) => {
    const [shape, ...text] = key.split(" ");
    const uses = used.get(key) ?? 0;
    const show = () => { location.hash = variantLink(variant.name, "layouts", [place]); };
    return h("li", {}, h("button", { type: "button", "aria-pressed": String(key === current), on: { click: show } },
      h("b", {}, shape), " ", h("span", { class: "muted" }, uses ? `${plural(uses, "value")} after the last pass` : "in earlier passes alone"), h("small", {}, text.join(" "))));
  }));
  return h("div", { class: "layout" }, list, h("section", {}, drawing(layoutOf(detail, current))));
}

/** How many values of the last text have each layout. */
function usesOf(detail) {
  const lines = detail.code.ttgir.lines;
  const marks = new Highlighter(detail, lines);
  const found = new Map();
  for (const line of lines) {
    const result = line.split(" = ")[0];
    for (const [, sizes, alias] of result.matchAll(/<(?:\d+ x )?((?:\d+x)+)[^<>]*, (#\w+)>/g)) {
      const key = `${sizes.slice(0, -1)} ${marks.aliases.get(alias)}`;
      found.set(key, (found.get(key) ?? 0) + 1);
    }
  }
  return found;
}

/** A layout with what it is coloured by, and what is said of the element that is pointed at. */
function drawing(layout) {
  const kinds = layout.isShared ? ["bank", "offset"] : layout.names.filter((name, index) => layout.widths[index]);
  const state = { by: layout.isShared ? "bank" : kinds.includes("lane") ? "lane" : kinds[0] ?? "register", holder: null, bytes: layout.bytes, large: false };
  const canvas = h("canvas", { role: "img", tabindex: 0, "aria-label": `Layout of ${layout.key}` });
  const says = h("p", { class: "says", role: "status" }, "Point at an element to see who holds it; a click marks all elements of that holder.");
  const draw = () => paint(canvas, layout, state);
  const buttons = (kinds.length ? kinds : ["register"]).map((kind) => h("button", { type: "button", "aria-pressed": String(kind === state.by), on: { click: (event) => {
    state.by = kind;
    state.holder = null;
    for (const button of event.target.parentElement.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button === event.target));
    draw();
  } } }, COLOUR_BY[kind]));
  const larger = h("button", { type: "button", "aria-pressed": "false", on: { click: () => {
    state.large = !state.large;
    larger.setAttribute("aria-pressed", String(state.large));
    draw();
  } } }, "Numbers");
  const elementAt = (event) => {
    const { rows, columns } = layout.grid();
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    return column >= 0 && column < columns && row >= 0 && row < rows ? row * columns + column : -1;
  };
  canvas.addEventListener("mousemove", (event) => {
    const element = elementAt(event);
    if (element < 0) return;
    says.textContent = layout.says(element);
    tip(layout.says(element), event);
  });
  canvas.addEventListener("mouseleave", () => tip(""));
  canvas.addEventListener("click", (event) => {
    const element = elementAt(event);
    if (element < 0) return;
    const holder = layout.places[element].map((place) => valueOf(layout, place, state));
    state.holder = state.holder && String(state.holder) === String(holder) ? null : holder;
    draw();
    const count = state.holder ? layout.places.filter((places) => places.some((place) => state.holder.includes(valueOf(layout, place, state)))).length : 0;
    says.textContent = state.holder ? `${COLOUR_BY[state.by]} ${[...new Set(state.holder)].slice(0, 8).join(", ")} holds ${plural(count, "element")} of ${layout.count}.` : "";
  });
  const copies = layout.size / layout.count;
  const facts = [`${layout.shape.join(" × ")} elements`, ...layout.names.map((name, index) => (layout.widths[index] ? plural(2 ** layout.widths[index], name) : null))];
  const text = facts.filter(Boolean).join(", ") + (copies > 1 ? `; each element ${copies} times` : "");
  requestAnimationFrame(draw);
  return h("div", {}, h("h3", { class: "mono" }, layout.key), h("p", { class: "muted" }, text),
    h("div", { class: "toolbar" }, h("span", { class: "muted" }, "Colour by"), ...buttons, h("span", { class: "push" }), larger), says, h("div", { class: "drawn" }, canvas),
    layout.facts.length ? h("dl", { class: "facts" }, ...layout.facts.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])) : null, bases(layout));
}

function bases(layout) {
  return h("details", {}, h("summary", { class: "muted" }, "Bases: the coordinates that each bit adds"),
    h("table", {}, h("tbody", {}, ...layout.dims.filter(([, rows]) => rows.length).map(([name, rows]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "mono" }, rows.map((basis) => `(${basis.join(", ")})`).join("  ")))))));
}

/** The number by which a place is coloured. */
function valueOf(layout, place, state) {
  const numbers = layout.split(place);
  if (state.by === "bank") return ((numbers.offset * state.bytes) >> 2) & 31;
  return numbers[state.by];
}

/** Paints the elements; where there is room for it, with their numbers. */
function paint(canvas, layout, state) {
  const { rows, columns } = layout.grid();
  const room = canvas.parentElement?.clientWidth || 640;
  const size = Math.max(state.large ? 22 : 5, Math.min(34, Math.floor((room - 4) / columns)));
  const scale = Math.min(window.devicePixelRatio || 1, 2, 8000 / Math.max(columns * size, rows * size));
  canvas.style.width = `${columns * size}px`;
  canvas.style.height = `${rows * size}px`;
  canvas.width = Math.max(1, Math.round(columns * size * scale));
  canvas.height = Math.max(1, Math.round(rows * size * scale));
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const isDark = document.documentElement.dataset.theme === "dark";
  const most = Math.max(1, ...layout.places.map((places) => (places.length ? valueOf(layout, places[0], state) : 0))) + 1;
  pen.font = `${Math.max(7, Math.floor(size / 2.8))}px monospace`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  layout.places.forEach((places, element) => {
    const [x, y] = [(element % columns) * size, Math.floor(element / columns) * size];
    const value = places.length ? valueOf(layout, places[0], state) : -1;
    const isHeld = !state.holder || places.some((place) => state.holder.includes(valueOf(layout, place, state)));
    pen.fillStyle = value < 0 ? "transparent" : colourOf(value, most, isDark, isHeld);
    pen.fillRect(x, y, size - (size > 7 ? 1 : 0), size - (size > 7 ? 1 : 0));
    if (size >= 17 && value >= 0) {
      pen.fillStyle = isHeld ? (isDark ? "#f2f6fa" : "#10151a") : isDark ? "#5a6672" : "#a9b2bb";
      pen.fillText(value, x + size / 2, y + size / 2 + 0.5);
    }
  });
}

/** Neighbours in number get neighbouring hues, and every fourth a lighter tone. */
function colourOf(value, most, isDark, isHeld) {
  const hue = (value / most) * 300 + 190;
  const light = (isDark ? 26 : 72) + (value % 4) * (isDark ? 4 : 5);
  return isHeld ? `hsl(${hue % 360} ${isDark ? 45 : 62}% ${light}%)` : `hsl(${hue % 360} 6% ${isDark ? 18 : 94}%)`;
}

/** A layout in a dialog, from a type in the IR. */
function showLayout(detail, key, title) {
  const dialog = h("dialog", { "aria-label": title });
  dialog.append(h("header", {}, h("h2", { class: "mono" }, title), h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")), drawing(layoutOf(detail, key)));
  dialog.addEventListener("close", () => { tip(""); dialog.remove(); });
  document.body.append(dialog);
  dialog.showModal();
}
