// What the page knows: the summary, the details of variants, and how values are written.

const library = { summary: null, byName: new Map(), details: new Map() };

/** A section of the page: deflated JSON in base64, unpacked when it is looked at. */
async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** Unpacks the summary. */
async function openLibrary() {
  library.summary = await unpack("summary");
  library.summary.variants.forEach((variant, place) => {
    variant.place = place;
    // What the name says besides kernel and architecture.
    variant.short = variant.name.slice(variant.kernel.length + variant.arch.length + 2);
    library.byName.set(variant.name, variant);
  });
  library.summary.details.forEach((name, place) => library.details.set(name, { id: `detail-${place}`, value: null }));
}

/** The passes and code of a variant; null where the page does not have them. */
async function detailOf(name) {
  const entry = library.details.get(name);
  if (!entry) return null;
  entry.value ??= await unpack(entry.id);
  return entry.value;
}

function bytesText(count) {
  if (count === null || count === undefined) return "–";
  if (count >= 1e6) return `${(count / 1e6).toFixed(1)} MB`;
  return count >= 1000 ? `${(count / 1000).toFixed(1)} kB` : `${count} B`;
}

function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 60) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

function shareText(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

function dateText(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

/** What keeps a multiprocessor from holding more programs of a variant. */
function limitText({ limits }) {
  return `${limits.join(" and ")} ${limits.length > 1 || limits[0] !== "shared memory" ? "allow" : "allows"} no more`;
}

function spillsOf(variant) {
  return variant.facts ? variant.facts.spill_stores + variant.facts.spill_loads : null;
}

/** What a variant's state is called, and how good that is. */
const STATES = {
  same: { text: "up to date", tone: "good", rank: 0 },
  changed: { text: "changed", tone: "warn", rank: 2 },
  damaged: { text: "files missing", tone: "warn", rank: 3 },
  new: { text: "not built", tone: "", rank: 1 },
  failed: { text: "failed", tone: "bad", rank: 4 },
};

/** What variants are compared by: the value, its text, and which end is worse. */
const METRICS = {
  state: { label: "State", of: (v) => STATES[v.state].rank, text: (value) => Object.values(STATES).find((s) => s.rank === value).text, worst: Math.max },
  registers: { label: "Registers", of: (v) => v.facts?.registers ?? null, text: String, worst: Math.max, full: () => 255 },
  spills: { label: "Spills", of: spillsOf, text: (value) => (value ? bytesText(value) : "none"), worst: Math.max, tone: "var(--bad)" },
  shared: { label: "Shared memory", of: (v) => v.facts?.shared ?? null, text: bytesText, worst: Math.max },
  occupancy: { label: "Occupancy", of: (v) => v.facts?.occupancy.share ?? null, text: shareText, worst: Math.min, full: () => 1, tone: "var(--good)" },
  size: { label: "Code", of: (v) => v.stored ?? v.facts?.size ?? null, text: bytesText, worst: Math.max },
  seconds: { label: "Compile time", of: (v) => v.seconds, text: secondsText, worst: Math.max },
};

/** Named groups of variants that deserve a look. */
const GROUPS = {
  failed: { text: "failed in the last build", tone: "bad", holds: (v) => v.state === "failed" },
  changed: { text: "would be compiled again", tone: "warn", holds: (v) => v.state === "changed" || v.state === "damaged" },
  new: { text: "were never built here", tone: "warn", holds: (v) => v.state === "new" },
  spilling: { text: "spill registers to memory", tone: "bad", holds: (v) => spillsOf(v) > 0 },
  warnings: { text: "have warnings of ptxas", tone: "warn", holds: (v) => v.facts?.warnings.length > 0 },
  full: { text: "use all 255 registers", tone: "warn", holds: (v) => v.facts?.registers >= 255 },
  low: { text: "have an occupancy below 10 %", tone: "warn", holds: (v) => v.facts && v.facts.occupancy.share < 0.1 },
  details: { text: "have their passes and code in this page", tone: "", holds: (v) => library.details.has(v.name) },
};
