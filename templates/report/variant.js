// One variant: its facts, why it was compiled, its passes, its code, its layouts.

const TABS = { facts: "Facts", passes: "Passes", code: "Code", layouts: "Layouts" };

function variantView(words) {
  const [name, tab = "facts", ...more] = words;
  const variant = library.byName.get(name);
  if (!variant) return [h("h1", { class: "title" }, "No such variant"), h("p", { class: "empty" }, `The library has no ${name}.`)];
  document.title = `${variant.kernel} · ${library.summary.package}`;
  const chosen = TABS[tab] ? tab : "facts";
  const body = h("div");
  const tabs = Object.entries(TABS).map(([key, text]) => h("a", { href: variantLink(name, key), "aria-current": key === chosen ? "page" : null }, text));
  showTab(body, variant, chosen, more);
  return [
    h("p", { class: "crumbs" }, h("a", { href: link("variants") }, "Variants"), " / ", h("a", { href: link("variants", [], { kernel: variant.kernel }) }, variant.kernel), " / ", variant.arch),
    h("div", { class: "title" }, h("h1", {}, variant.kernel), badge(variant.arch), badge(variant.dtype), stateBadge(variant), ...neighbours(variant)),
    h("p", { class: "name mono" }, variant.short),
    h("nav", { class: "tabs", "aria-label": "Parts of the variant" }, ...tabs),
    body,
  ];
}

/** Links to the variants before and after. */
function neighbours(variant) {
  const { variants } = library.summary;
  const row = (place, text) => (variants[place] ? h("a", { href: variantLink(variants[place].name), title: variants[place].name }, text) : null);
  return [h("span", { class: "nowrap muted" }, row(variant.place - 1, "← previous"), " ", row(variant.place + 1, "next →"))];
}

async function showTab(body, variant, tab, more) {
  if (tab === "facts") {
    body.append(factsTab(variant));
    return;
  }
  const detail = await detailOf(variant.name);
  if (!detail) {
    body.append(h("div", { class: "card" }, h("p", {}, "This page does not have the passes and code of this variant."), h("p", { class: "muted" }, "It was made with as many as fit.  This makes one with those of this variant:"),
      commandLine(`kbuild report ${quoted(variant.name)}`)));
  } else if (detail.error) {
    body.append(h("div", { class: "card" }, h("h2", {}, "It cannot be compiled"), h("pre", {}, detail.error)));
  } else {
    body.append({ passes: pipelineTab, code: codeTab, layouts: layoutTab }[tab](variant, detail, more));
  }
}

function quoted(text) {
  return /^[\w.,=+-]+$/.test(text) ? text : `'${text}'`;
}

function commandLine(text) {
  const button = h("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => copyText(text, button));
  return h("div", { class: "command" }, h("code", {}, text), button);
}

function factsTab(variant) {
  const { facts } = variant;
  return h("div", {}, h("div", { class: "two" }, codeCard(variant), askedCard(variant)), whyCard(variant),
    facts && facts.warnings.length ? card("Warnings", h("ul", {}, ...facts.warnings.map((text) => h("li", {}, text)))) : null,
    facts && facts.tma.length ? card("Copies by TMA", h("ul", {}, ...facts.tma.map((text) => h("li", { class: "mono" }, text)))) : null,
    card("The same on the command line", commandLine(variant.command)));
}

function factList(rows) {
  return h("dl", { class: "facts" }, ...rows.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function codeCard(variant) {
  const { facts } = variant;
  if (!facts) return card("Machine code", h("p", { class: "muted" }, "It is not built."));
  const { occupancy } = facts;
  const spills = spillsOf(variant);
  return card("Machine code", factList([
    ["Architecture", facts.arch],
    ["Registers of a thread", [facts.registers, meter(facts.registers / 255, facts.registers >= 255 ? "bad" : "")]],
    ["Spills", spills ? h("span", { class: "badge bad" }, `${facts.spill_stores} bytes stored, ${facts.spill_loads} bytes loaded`) : "none"],
    ["Dynamic shared memory", bytesText(facts.shared)],
    ["Warps of a program", facts.warps],
    ["Occupancy", [shareText(occupancy.share), meter(occupancy.share, occupancy.share < 0.1 ? "warn" : "")]],
    ["", `${plural(occupancy.programs, "program")} of a multiprocessor at once, ${occupancy.warps} of ${occupancy.max_warps} warps; ${limitText(occupancy)}`],
    ["Layout conversions", `${facts.conversions} through shared memory`],
    ["Cubin", `${bytesText(facts.size)}${variant.stored ? `, ${bytesText(variant.stored)} of the wheel` : ""}`],
    ["Compiled in", secondsText(variant.seconds)],
  ]));
}

function askedCard(variant) {
  const values = (pairs) => pairs.map(([name, value]) => `${name}=${value}`).join(", ") || "–";
  const kernel = library.summary.kernels.find((each) => each.name === variant.kernel);
  return card("What was asked for", factList([
    ["Kernel", `${kernel.function} of ${kernel.source}`],
    ["Axes", h("span", { class: "mono" }, values(variant.axes))],
    ["Arguments", h("span", { class: "mono" }, values(variant.hints))],
    ["Meta-parameters", h("span", { class: "mono" }, values(variant.config))],
    ["Options", h("span", { class: "mono" }, variant.options.join(", "))],
    variant.guards.length ? ["Taken where", h("span", { class: "mono" }, variant.guards.join(" and "))] : null,
    variant.cost ? ["Cost of a call", h("span", { class: "mono" }, variant.cost)] : null,
    ["Identity", h("span", { class: "mono muted" }, variant.identity)],
  ]));
}

function whyCard(variant) {
  const { why, state } = variant;
  const heads = {
    same: why.build ? `Build ${why.build} ${{ cache: "took it from the cache", compiled: "compiled it" }[why.how] ?? "made it"}${why.reasons.length ? ", because:" : ", as the first."}` : "Which build made it is not known.",
    changed: "A build would compile it again, because:",
    damaged: "A build would make it again, because:",
    new: why.nearest ? `It was never built here.  It differs from ${why.nearest} in:` : "It was never built here.",
    failed: "It failed in the last build.",
  };
  const lines = (diff) => h("div", { class: "diff" }, ...diff.map(([sign, line, text]) => h("span", { class: sign === "+" ? "added" : "removed" }, `${sign} ${String(line).padStart(5)}  ${text}`)));
  return card("Why it was compiled", h("p", {}, heads[state] ?? state),
    ...why.reasons.map((reason) => h("div", {}, h("p", {}, badge(reason.kind, "note"), " ", reason.place ? h("code", {}, reason.place) : null, " ", reason.text), reason.diff.length ? lines(reason.diff) : null)));
}
