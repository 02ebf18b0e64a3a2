// A build as intervals: which step ran when, in which lane, and what the build waited for.

const LANE = 18;
const AXIS = 22;

function timelineView(words) {
  const { summary } = library;
  document.title = `Timeline · ${summary.package}`;
  const builds = summary.builds;
  if (!builds.length) {
    return [h("h1", { class: "title" }, "Timeline"), h("p", { class: "empty" }, "No build has been recorded here: kbuild build keeps a history beside what it makes.")];
  }
  const build = builds.find((each) => String(each.number) === words[0]) ?? builds[builds.length - 1];
  const options = builds.map((each) => [String(each.number), `Build ${each.number}, ${dateText(each.ended)}: ${plural(each.steps.length, "step")}`]).reverse();
  const select = choice("Build", options, String(build.number), (value) => { location.hash = link("timeline", [value]); });
  return [h("div", { class: "title" }, h("h1", {}, "Timeline"), select), buildTiles(build), gantt(build), h("div", { class: "two" }, longest(build), waited(build))];
}

function buildTiles(build) {
  const lanes = Math.max(1, ...build.steps.map((step) => step[5] + 1));
  const busy = build.seconds ? build.work / build.seconds : 0;
  const compiled = build.steps.filter((step) => step[4] === "compiled" && step[1] === "compile").length;
  const tries = build.hits + compiled;
  return h("div", { class: "tiles" },
    tile("Took", secondsText(build.seconds), `ended ${dateText(build.ended)}`, build.failed ? "bad" : "good"),
    tile("Work", secondsText(build.work), `${busy.toFixed(1)} steps at a time on average, in ${plural(lanes, "lane")}`, "note"),
    tile("From the cache", tries ? shareText(build.hits / tries) : "–", `${build.hits} of ${tries}; ${compiled} compiled`, build.hits ? "good" : ""),
    tile("Cannot be shorter than", secondsText(build.shortest), "the longest step and the package, with a lane for every step", "note"),
    build.failed ? tile("Failed", build.failed, "steps", "bad") : null);
}

function gantt(build) {
  const box = h("div", { class: "gantt", tabindex: 0, role: "region", "aria-label": "Steps of the build by time" });
  let zoom = 1;
  const draw = () => box.replaceChildren(ganttSvg(build, Math.max(320, box.clientWidth - 2) * zoom));
  const scale = (factor) => () => {
    const middle = (box.scrollLeft + box.clientWidth / 2) / (box.scrollWidth || 1);
    zoom = factor ? Math.min(64, Math.max(1, zoom * factor)) : 1;
    draw();
    box.scrollLeft = middle * box.scrollWidth - box.clientWidth / 2;
  };
  new ResizeObserver(() => { if (zoom === 1) draw(); }).observe(box);
  box.addEventListener("mousemove", (event) => {
    const step = build.steps[event.target.dataset?.step];
    tip(step ? stepText(step) : "", event);
  });
  box.addEventListener("mouseleave", () => tip(""));
  box.addEventListener("click", (event) => {
    const step = build.steps[event.target.dataset?.step];
    if (step && library.byName.has(step[0])) location.hash = variantLink(step[0]);
  });
  const kinds = [["compiled", "compiled"], ["cache", "from the cache"], ["package", "launcher, package"], ["path", "critical path"], ["failed", "failed"]];
  return h("section", { class: "card" },
    h("header", {}, h("h2", {}, "Who ran when"), h("span", { class: "legend" }, ...kinds.map(([kind, text]) => h("span", {}, h("i", { class: `swatch-${kind}` }), text))),
      h("span", { class: "push" }, h("button", { type: "button", "aria-label": "Zoom out", on: { click: scale(0.5) } }, "−"), " ",
        h("button", { type: "button", "aria-label": "Zoom in", on: { click: scale(2) } }, "+"), " ", h("button", { type: "button", on: { click: scale(0) } }, "Fit"))),
    box);
}

function stepText(step) {
  const [what, , start, end, how, , notes] = step;
  const time = start === null ? `failed at ${secondsText(end)}` : `${secondsText(end - start)}, from ${secondsText(start)} to ${secondsText(end)}`;
  return [what, `${how === "cache" ? "from the cache" : how}; ${time}`, ...notes].join("\n");
}

function ganttSvg(build, width) {
  const lanes = Math.max(1, ...build.steps.map((step) => step[5] + 1));
  const height = AXIS + lanes * LANE + 6;
  const total = build.seconds || 1;
  const x = (seconds) => (seconds / total) * (width - 2) + 1;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${build.steps.length} steps in ${lanes} lanes over ${secondsText(build.seconds)}` });
  const unit = tickUnit(total / (width / 90));
  for (let time = 0; time <= total; time += unit) {
    picture.append(svg("line", { class: "grid", x1: x(time), x2: x(time), y1: AXIS - 6, y2: height }), svg("text", { x: x(time) + 3, y: 13 }, `${Number(time.toFixed(3))} s`));
  }
  const path = new Set(build.path);
  const ends = new Map();
  build.steps.forEach((step, place) => {
    const [, kind, start, end, how, lane] = step;
    const from = start === null ? x(end) - 2 : x(start);
    const wide = Math.max(start === null ? 4 : 0.6, x(end) - from);
    const row = Math.max(0, lane);
    // Of steps that fall on one pixel, one is drawn.
    const key = `${row}|${kind}|${how}|${Math.round(from)}`;
    if (wide < 1 && !path.has(place) && ends.has(key)) return;
    ends.set(key, true);
    const shown = kind === "compile" || how === "failed" ? how : kind;
    const top = AXIS + row * LANE;
    picture.append(svg("rect", { class: `step ${shown}${path.has(place) ? " path" : ""}`, x: from, y: top, width: wide, height: LANE - 6, rx: Math.min(2, wide / 3), "data-step": place }));
    if (path.has(place)) picture.append(svg("rect", { class: "waited", x: from, y: top + LANE - 5, width: wide, height: 3 }));
  });
  return picture;
}

function tickUnit(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].map((factor) => factor * power).find((unit) => unit >= least) ?? 10 * power;
}

function stepTable(title, text, steps) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), h("p", { class: "muted" }, text),
    h("div", { class: "scroll" }, h("table", { class: "steps" }, h("tbody", {}, ...steps.map(([what, , start, end, how]) => h("tr", {},
      h("td", {}, library.byName.has(what) ? h("a", { href: variantLink(what), class: "mono", title: what }, what) : h("span", { class: "mono" }, what)),
      h("td", {}, how === "compiled" ? null : badge(how === "cache" ? "cache" : how, how === "failed" ? "bad" : "good")),
      h("td", { class: "number" }, start === null ? "–" : secondsText(end - start))))))));
}

function longest(build) {
  const known = build.steps.filter((step) => step[2] !== null);
  const steps = known.sort((a, b) => b[3] - b[2] - (a[3] - a[2])).slice(0, 12);
  return stepTable("Longest steps", "Where a faster compiler, or another configuration, would show.", steps);
}

function waited(build) {
  const steps = build.path.map((place) => build.steps[place]).slice(-12).reverse();
  const text = `What the end of the build waited for, the last step first: ${plural(build.path.length, "step")} that followed each other without a gap.`;
  return stepTable("Critical path", text, steps);
}
