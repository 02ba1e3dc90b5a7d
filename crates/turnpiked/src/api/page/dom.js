// Elements from data. Text is text: nothing here reads markup.

// Characters that turn the direction of text around, hide, or are none: shown by number, as a name made of them could pass for
// another one.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

export function clean(text) {
  return String(text).replace(UNSEEN, (c) => `\u27e8U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

// Attributes that take text of ours or addresses within the page; no other one can be set.
const ATTRIBUTES = new Set(["class", "id", "href", "role", "scope", "type", "name", "value", "title", "for", "datetime", "tabindex",
  "colspan", "placeholder", "autocomplete", "spellcheck", "selected", "width", "height", "viewBox", "preserveAspectRatio", "d", "x", "y",
  "x1", "x2", "y1", "y2", "points", "text-anchor", "dir", "open"]);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (!ATTRIBUTES.has(name) && !name.startsWith("aria-") && !name.startsWith("data-")) throw new Error(`attribute ${name}`);
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("a link leads out of the page");
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return node;
}

export const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// Text that a peer chose: its direction stays its own.
export const theirs = (text) => el("bdi", { class: "mono" }, text ?? "");

// rows: lists of cells; a number is right-aligned, an { n } too.
export function table(caption, heads, rows, none) {
  if (!rows.length) return el("p", { class: "quiet" }, none);
  const numeric = (cell) => typeof cell === "number" || (cell && cell.n !== undefined);
  const shown = (cell) => (typeof cell === "number" ? count(cell) : cell && cell.n !== undefined ? cell.n : cell);
  const right = heads.map((_, at) => numeric(rows[0][at]));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: right[at] && "n" }, head)))),
      el("tbody", {}, rows.map((row) =>
        el("tr", {}, row.map((cell) => el("td", { class: numeric(cell) && "n" }, shown(cell))))))));
}

export const count = (value) => (value === undefined || value === null ? "\u2013" : Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f"));

export const many = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

function scaled(value, unit) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "\u2013";
  const steps = ["", "k", "M", "G", "T"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < steps.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = value === 0 || (step === 0 && Number.isInteger(value)) ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${steps[step]}${unit}`.trim();
}

export const bits = (value) => scaled(value, "bit/s");
export const packets = (value) => scaled(value, "/s");
export const octets = (value) => scaled(value, "B");
export const plain = (value) => scaled(value, "");

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

export function clock(unix) {
  const at = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

const SIGNS = { good: ["\u25cf", "good"], warn: ["\u25b2", "warn"], bad: ["\u25a0", "bad"], quiet: ["\u25cb", "quiet"] };

// A shape beside a word: the colour says nothing that they do not.
export function sign(kind, ...words) {
  const [shape, name] = SIGNS[kind];
  return el("span", { class: name }, el("span", { class: "sign", "aria-hidden": "true" }, shape), words);
}

export function bar(used, whole) {
  const part = whole > 0 ? Math.min(1, used / whole) : 0;
  return svg("svg", { class: part >= 0.9 ? "bar high" : "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { x: 0, y: 0, width: 100 * part, height: 8 }));
}

export const percent = (used, whole) => (whole > 0 ? `${((100 * used) / whole).toFixed(used && used / whole < 0.1 ? 1 : 0)} %` : "\u2013");
