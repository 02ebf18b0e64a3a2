// The views by address, the search, and the theme.

const VIEWS = { "": overviewView, variants: variantsView, timeline: timelineView, size: sizeView, variant: variantView };
const NAVIGATION = [["", "Overview"], ["variants", "Variants"], ["timeline", "Timeline"], ["size", "Size"]];

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...words] = path.split("/").map(decodeURIComponent);
  return { view, words, query: Object.fromEntries(new URLSearchParams(query)) };
}

function show() {
  const { view, words, query } = address();
  const shown = VIEWS[view] ? view : "";
  tip("");
  document.getElementById("views").replaceChildren(...NAVIGATION.map(([name, text]) =>
    h("a", { href: link(name), "aria-current": name === shown || (name === "variants" && shown === "variant") ? "page" : null }, text)));
  const main = document.getElementById("main");
  main.replaceChildren(...VIEWS[shown](words, query).flat().filter(Boolean));
  main.dataset.view = shown || "overview";
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "☀" : "☾";
}

function initTheme() {
  const stored = () => { try { return localStorage.getItem("kbuild-theme"); } catch { return null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  setTheme(stored() ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!stored()) { setTheme(system.matches ? "dark" : "light"); show(); } });
  document.getElementById("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("kbuild-theme", theme); } catch { /* A page from a file may not keep anything. */ }
    setTheme(theme);
    window.dispatchEvent(new Event("resize"));
  });
}

/** The search: variants whose name has all words, chosen by arrows and Enter. */
function initSearch() {
  const input = document.getElementById("find");
  const list = document.getElementById("found");
  let names = [];
  let current = 0;
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const go = (name) => { close(); input.value = ""; location.hash = variantLink(name); };
  const draw = () => {
    list.replaceChildren(...names.map((name, place) => h("li", { role: "option", id: `found-${place}`, "aria-selected": String(place === current), on: { mousedown: (event) => { event.preventDefault(); go(name); } } }, name)));
    list.hidden = !names.length;
    input.setAttribute("aria-expanded", String(Boolean(names.length)));
    if (names.length) input.setAttribute("aria-activedescendant", `found-${current}`);
    list.children[current]?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = words.length ? library.summary.variants.filter((variant) => words.every((word) => variant.name.toLowerCase().includes(word))) : [];
    names = all.slice(0, 50).map((variant) => variant.name);
    current = 0;
    draw();
  });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && names.length) {
      event.preventDefault();
      current = (current + step + names.length) % names.length;
      draw();
    } else if (event.key === "Escape") close();
  });
  input.addEventListener("blur", close);
  document.getElementById("jump").addEventListener("submit", (event) => {
    event.preventDefault();
    if (names[current]) go(names[current]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, dialog")) { event.preventDefault(); input.focus(); }
  });
}

async function start() {
  initTheme();
  try {
    await openLibrary();
  } catch (error) {
    document.getElementById("loading").textContent = `The page cannot be unpacked: ${error.message}.  It takes a browser of 2023 or later.`;
    return;
  }
  initSearch();
  window.addEventListener("hashchange", () => { show(); document.getElementById("main").focus({ preventScroll: true }); window.scrollTo(0, 0); });
  show();
}

start();
