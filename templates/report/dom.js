// Making elements, tooltips, and links within the page.

/** An element: attributes, `on` for listeners, and children that are nodes, texts or nothing. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** The same in SVG. */
function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "vars") {
      for (const [variable, text] of Object.entries(value)) element.style.setProperty(variable, text);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
}

/** The address of a view: `link("variants", [], {kernel: "matmul"})`. */
function link(view, words = [], query = {}) {
  const path = [view, ...words].map(encodeURIComponent).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

function variantLink(name, tab = "", more = []) {
  return link("variant", [name, ...(tab ? [tab, ...more] : [])]);
}

function badge(text, tone = "") {
  return h("span", { class: `badge ${tone}` }, text);
}

function stateBadge(variant) {
  const state = STATES[variant.state];
  return badge(state.text, state.tone);
}

function meter(share, tone = "") {
  const bar = h("i");
  bar.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: `meter ${tone}`, "aria-hidden": "true" }, bar);
}

function card(title, ...children) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...children);
}

/** Shows a text beside the pointer, or hides it. */
function tip(text, event) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16}px`;
}

/** A select with options given as [value, text]. */
function choice(label, options, value, change) {
  const select = h("select", { "aria-label": label, on: { change: () => change(select.value) } });
  select.append(...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return select;
}

/** Replaces the part of the address behind `?` without another entry in the history of the browser. */
function setQuery(query) {
  const [path] = location.hash.split("?");
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  history.replaceState(null, "", `${path || "#/"}${text ? `?${text}` : ""}`);
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
