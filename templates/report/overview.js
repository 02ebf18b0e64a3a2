// The overview: what there is, what deserves a look, and the matrix of kernels, architectures and types.

function overviewView(_words, query) {
  const { summary } = library;
  document.title = `${summary.package} · kbuild report`;
  return [
    h("h1", { class: "title" }, `${summary.package} ${summary.version}`),
    tiles(),
    alerts(),
    matrix(METRICS[query.metric] ? query.metric : "registers"),
  ];
}

function tile(title, value, text, tone, address) {
  const content = [h("h3", {}, title), h("b", {}, value), h("span", {}, text)];
  return h(address ? "a" : "div", { class: `tile ${tone}`, href: address || null }, ...content);
}

function tiles() {
  const { summary } = library;
  const { variants, wheel } = summary;
  const built = variants.filter((variant) => variant.facts);
  const current = variants.filter((variant) => variant.state === "same").length;
  const failed = variants.filter((variant) => variant.state === "failed").length;
  const spilling = variants.filter(GROUPS.spilling.holds);
  const shares = built.map((variant) => variant.facts.occupancy.share).sort((a, b) => a - b);
  const build = summary.builds[summary.builds.length - 1];
  const found = [
    tile("Variants", variants.length.toLocaleString("en"), `${plural(summary.kernels.length, "kernel")} for ${summary.archs.join(", ")}`, "note", link("variants")),
    tile("State", failed ? `${failed} failed` : current === variants.length ? "Up to date" : `${variants.length - current} to make`,
      `${current} of ${variants.length} are as the sources say`, failed ? "bad" : current === variants.length ? "good" : "warn", link("variants", [], { sort: "state", down: 1 })),
    tile("Spills", spilling.length ? plural(spilling.length, "variant") : "None", spilling.length ? `at most ${bytesText(Math.max(...spilling.map(spillsOf)))} a thread` : "no variant keeps registers in memory",
      spilling.length ? "bad" : "good", link("variants", [], { show: "spilling" })),
    tile("Occupancy", shares.length ? shareText(shares[shares.length >> 1]) : "–", shares.length ? `median; the lowest is ${shareText(shares[0])}` : "nothing is built", "note", link("variants", [], { sort: "occupancy" })),
    wheel ? tile("Wheel", bytesText(wheel.bytes), `${plural(wheel.distinct, "different cubin")}, ${bytesText(wheel.saved)} saved by sharing`, "note", link("size"))
      : tile("Code", bytesText(built.reduce((sum, variant) => sum + variant.facts.size, 0)), "cubins; no wheel was made", ""),
    build ? tile("Last build", secondsText(build.seconds), `${plural(build.steps.length, "step")}, ${build.hits} from the cache`, build.failed ? "bad" : "good", link("timeline"))
      : tile("Last build", "–", "none is recorded", ""),
  ];
  return h("div", { class: "tiles" }, ...found);
}

function alerts() {
  const { variants } = library.summary;
  const rows = Object.entries(GROUPS)
    .filter(([name]) => name !== "details")
    .map(([name, group]) => [name, group, variants.filter(group.holds).length])
    .filter(([, , count]) => count);
  if (!rows.length) return card("Needs attention", h("p", { class: "muted" }, "Nothing: no spills, no warnings, everything is built and up to date."));
  return card("Needs attention", h("ul", { class: "alerts" }, ...rows.map(([name, group, count]) =>
    h("li", {}, h("a", { class: group.tone, href: link("variants", [], { show: name }) }, h("b", {}, count), h("span", {}, `variant${count === 1 ? "" : "s"} ${group.text}`))))));
}

/** Kernels by architecture and type; each cell the worst of its variants. */
function matrix(metricName) {
  const { summary } = library;
  const metric = METRICS[metricName];
  const cells = new Map();
  const columns = new Map(summary.archs.map((arch) => [arch, new Set()]));
  for (const variant of summary.variants) {
    columns.get(variant.arch)?.add(variant.dtype);
    const key = `${variant.kernel}|${variant.arch}|${variant.dtype}`;
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(variant);
  }
  const values = [...cells.values()].map((variants) => worst(metric, variants)).filter((value) => value !== null);
  const full = metric.full ? metric.full() : Math.max(...values, 0);
  const heads = [...columns].flatMap(([arch, types]) => [...types].sort().map((type) => [arch, type]));
  const table = h("table", { class: "heat" },
    h("thead", {},
      h("tr", {}, h("th", {}), ...[...columns].filter(([, types]) => types.size).map(([arch, types]) => h("th", { colspan: types.size, scope: "colgroup" }, arch))),
      h("tr", {}, h("th", { scope: "col" }, "Kernel"), ...heads.map(([, type]) => h("th", { scope: "col" }, type)))),
    h("tbody", {}, ...summary.kernels.map((kernel) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: link("variants", [], { kernel: kernel.name }) }, kernel.name)),
      ...heads.map(([arch, type]) => h("td", {}, heatCell(metricName, cells.get(`${kernel.name}|${arch}|${type}`), full, { kernel: kernel.name, arch, dtype: type })))))));
  const names = Object.entries(METRICS).map(([name, each]) => [name, each.label]);
  const select = choice("What the matrix shows", names, metricName, (value) => {
    setQuery({ metric: value });
    section.replaceWith(matrix(value));
  });
  const section = h("section", { class: "card", id: "matrix" },
    h("header", {}, h("h2", {}, "Matrix"), h("label", { class: "muted push" }, "Show ", select)),
    h("div", { class: "scroll" }, table),
    h("p", { class: "legend" }, `Each cell has the number of variants and the ${metric.worst === Math.min ? "lowest" : "highest"} value among them.`));
  return section;
}

function worst(metric, variants) {
  const values = variants.map(metric.of).filter((value) => value !== null && value !== undefined);
  return values.length ? metric.worst(...values) : null;
}

const STATE_TONES = ["var(--good)", "var(--idle)", "var(--warn)", "var(--warn)", "var(--bad)"];

function heatCell(metricName, variants, full, query) {
  if (!variants) return null;
  const metric = METRICS[metricName];
  const value = worst(metric, variants);
  const share = value === null || !full ? 0 : Math.min(1, value / full);
  const tone = metricName === "state" ? STATE_TONES[value] : metric.tone ?? "var(--accent)";
  const strength = metricName === "state" ? 40 : Math.round(share * 55);
  const text = value === null ? "–" : metric.text(value);
  return h("a", { href: link("variants", [], query), vars: { "--share": `${strength}%`, "--tone": tone }, "aria-label": `${plural(variants.length, "variant")}, ${metric.label} ${text}` },
    text, h("small", {}, plural(variants.length, "variant")));
}
