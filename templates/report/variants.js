// The table of variants: filtered, sorted, and drawn as far as it is scrolled.

const CHUNK = 150;

const COLUMNS = [
  { name: "name", label: "Variant", of: (v) => v.place, draw: nameCell },
  { name: "arch", label: "Arch", of: (v) => v.arch, draw: (v) => v.arch },
  { name: "dtype", label: "Types", of: (v) => v.dtype, draw: (v) => v.dtype },
  { name: "warps", label: "Warps", number: true, of: (v) => v.facts?.warps ?? v.num_warps, draw: (v) => v.facts?.warps ?? v.num_warps },
  { name: "stages", label: "Stages", number: true, of: (v) => v.num_stages, draw: (v) => v.num_stages },
  { name: "registers", label: "Registers", number: true, of: METRICS.registers.of, draw: registersCell },
  { name: "spills", label: "Spills", number: true, of: spillsOf, draw: spillsCell },
  { name: "shared", label: "Shared", number: true, of: METRICS.shared.of, draw: (v) => bytesText(v.facts?.shared) },
  { name: "occupancy", label: "Occupancy", number: true, of: METRICS.occupancy.of, draw: occupancyCell },
  { name: "size", label: "Code", number: true, of: METRICS.size.of, draw: (v) => bytesText(METRICS.size.of(v)) },
  { name: "seconds", label: "Compiled in", number: true, of: (v) => v.seconds, draw: (v) => secondsText(v.seconds) },
  { name: "state", label: "State", of: METRICS.state.of, draw: stateBadge },
];

function nameCell(variant) {
  const has = library.details.has(variant.name);
  return [h("a", { href: variantLink(variant.name), title: variant.name }, variant.kernel, has ? " " : null, has ? badge("passes", "note") : null),
    h("small", { title: variant.short }, variant.short)];
}

function registersCell(variant) {
  if (!variant.facts) return "–";
  const share = variant.facts.registers / 255;
  return [variant.facts.registers, meter(share, share >= 1 ? "bad" : share > 0.8 ? "warn" : "")];
}

function spillsCell(variant) {
  const spills = spillsOf(variant);
  return spills ? h("span", { class: "spill" }, bytesText(spills)) : spills === 0 ? "0" : "–";
}

function occupancyCell(variant) {
  if (!variant.facts) return "–";
  const { share, programs, warps, max_warps: most } = variant.facts.occupancy;
  const text = `${plural(programs, "program")} of ${plural(variant.facts.warps, "warp")}: ${warps} of ${most} warps; ${limitText(variant.facts.occupancy)}`;
  return h("span", { title: text }, shareText(share), meter(share, share < 0.1 ? "warn" : ""));
}

function variantsView(_words, query) {
  document.title = `Variants · ${library.summary.package}`;
  const state = { text: "", kernel: "", arch: "", dtype: "", show: "", sort: "", down: "", ...query };
  const body = h("tbody");
  const count = h("span", { class: "muted push", role: "status", "aria-live": "polite" });
  const head = h("tr");
  const table = h("table", { class: "variants" }, h("thead", {}, head), body);
  const scroller = h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Variants" }, table);
  const refresh = () => {
    setQuery(state);
    const rows = sorted(filtered(state), state);
    table.setAttribute("aria-rowcount", rows.length + 1);
    count.textContent = `${rows.length.toLocaleString("en")} of ${plural(library.summary.variants.length, "variant")}`;
    head.replaceChildren(...COLUMNS.map((column) => headCell(column, state, refresh)));
    drawRows(body, rows, scroller);
  };
  const set = (name) => (value) => { state[name] = value; refresh(); };
  const facet = (name, label) => choice(label, [["", `All ${label}`], ...values(name).map((value) => [value, value])], state[name], set(name));
  const text = h("input", { type: "search", placeholder: "Filter: words of the name, such as 128 fp16", "aria-label": "Filter by words of the name", value: state.text, spellcheck: "false", on: { input: () => set("text")(text.value) } });
  const groups = [["", "All states"], ...Object.entries(GROUPS).map(([name, group]) => [name, `that ${group.text}`])];
  const tools = h("div", { class: "toolbar" }, text, facet("kernel", "kernels"), facet("arch", "architectures"), facet("dtype", "types"),
    choice("Which variants", groups, state.show, set("show")), h("button", { type: "button", on: { click: () => { location.hash = link("variants"); } } }, "Reset"), count);
  refresh();
  return [h("h1", { class: "title" }, "Variants"), h("section", { class: "card" }, tools, scroller)];
}

function values(name) {
  return [...new Set(library.summary.variants.map((variant) => variant[name]))].sort();
}

function filtered(state) {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  return library.summary.variants.filter((variant) =>
    (!state.kernel || variant.kernel === state.kernel) && (!state.arch || variant.arch === state.arch) && (!state.dtype || variant.dtype === state.dtype)
    && (!GROUPS[state.show] || GROUPS[state.show].holds(variant)) && words.every((word) => variant.name.toLowerCase().includes(word)));
}

function sorted(rows, state) {
  const column = COLUMNS.find((each) => each.name === state.sort);
  if (!column) return rows;
  const sign = state.down ? -1 : 1;
  // What is not known comes last, whichever way.
  return [...rows].sort((left, right) => {
    const [a, b] = [column.of(left), column.of(right)];
    if (a === null || b === null) return (a === null) - (b === null) || left.place - right.place;
    return (a < b ? -sign : a > b ? sign : 0) || left.place - right.place;
  });
}

function headCell(column, state, refresh) {
  const isSorted = state.sort === column.name;
  const click = () => {
    // Numbers are wanted the largest first.
    if (!isSorted) Object.assign(state, { sort: column.name, down: column.number ? "1" : "" });
    else state.down = state.down ? "" : "1";
    refresh();
    document.querySelector(`[data-column="${column.name}"]`)?.focus();
  };
  const arrow = isSorted ? (state.down ? " ↓" : " ↑") : "";
  return h("th", { scope: "col", class: column.number ? "number" : "", "aria-sort": isSorted ? (state.down ? "descending" : "ascending") : null },
    h("button", { type: "button", "data-column": column.name, on: { click } }, column.label + arrow));
}

/** Draws the first rows, and more whenever the end of those comes near. */
function drawRows(body, rows, scroller) {
  let drawn = 0;
  const more = () => {
    const next = rows.slice(drawn, drawn + CHUNK);
    body.append(...next.map((variant, place) => h("tr", { "aria-rowindex": drawn + place + 2 },
      ...COLUMNS.map((column) => h("td", { class: column.number ? "number" : "" }, column.draw(variant))))));
    drawn += next.length;
  };
  body.replaceChildren();
  scroller.scrollTop = 0;
  more();
  if (!rows.length) body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "empty" }, "No variant is like that.")));
  scroller.onscroll = () => {
    while (drawn < rows.length && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 800) more();
  };
}
