// Where the bytes of the wheel are.

function sizeView() {
  const { wheel, variants } = library.summary;
  document.title = `Size · ${library.summary.package}`;
  if (!wheel) return [h("h1", { class: "title" }, "Size"), h("p", { class: "empty" }, "The last build made no wheel.")];
  const largest = variants.filter((variant) => variant.stored).sort((a, b) => b.stored - a.stored).slice(0, 20);
  const parts = [["By kernel", wheel.by.kernel, "kernel"], ["By type", wheel.by.dtype, "dtype"], ["By architecture", wheel.by.arch, "arch"], ["Besides code", wheel.other, ""]];
  return [
    h("h1", { class: "title" }, "Size"),
    h("div", { class: "tiles" },
      tile("Wheel", bytesText(wheel.bytes), wheel.name, "note"),
      tile("Code", bytesText(Object.values(wheel.by.arch).reduce((sum, size) => sum + size, 0)), `${plural(wheel.entries, "cubin or PTX text", "")}`, "note"),
      tile("Stored once", wheel.entries - wheel.distinct, `equal to another one; that saves ${bytesText(wheel.saved)}`, wheel.saved ? "good" : "")),
    h("div", { class: "bars" }, ...parts.map(([title, sizes, facet]) => sizeTable(title, sizes, wheel.bytes, facet))),
    card("Largest variants", h("div", { class: "scroll" }, h("table", { class: "steps" }, h("tbody", {}, ...largest.map((variant) => h("tr", {},
      h("td", {}, h("a", { href: variantLink(variant.name), class: "mono", title: variant.name }, variant.name)), h("td", { class: "number" }, bytesText(variant.stored)))))))),
  ];
}

function sizeTable(title, sizes, total, facet) {
  const rows = Object.entries(sizes).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...rows.map(([, size]) => size));
  return card(title, h("table", {}, h("tbody", {}, ...rows.map(([name, size]) => {
    const fill = h("div", { class: `fill${facet ? "" : " other"}` });
    fill.style.width = `${(size / most) * 100}%`;
    const label = facet ? h("a", { href: link("variants", [], { [facet]: name, sort: "size", down: 1 }) }, name) : name;
    return h("tr", {}, h("td", {}, label), h("td", { class: "number" }, bytesText(size)), h("td", { class: "number" }, shareText(size / total)), h("td", { "aria-hidden": "true" }, fill));
  }))));
}
