// Lines over the last 15 minutes, in SVG. Each series has a dash of its own, and says its last value in words.

import { clock, el, svg } from "./dom.js";

const SPAN_S = 900;
const [LEFT, RIGHT, TOP, BOTTOM, HEIGHT] = [4, 4, 14, 16, 130];
const NAMES = ["up", "down", "loss"];

// The next 1, 2 or 5 times a power of ten.
function roof(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

// Lines of points that are there: a gap stays a gap.
function lines(points) {
  const all = [];
  let line = [];
  for (const point of points) {
    if (point) line.push(point);
    else if (line.length) all.push(line), (line = []);
  }
  if (line.length) all.push(line);
  return all;
}

const path = (line) => line.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") + (line.length === 1 ? "h1" : "");

// chart: { title, unit(value), series: [{ name, kind, values }] }; times: seconds since 1970, one for each value.
// marks: [{ at, text }]. The figure is drawn anew by `draw`, and keeps its place and the focus.
export function figure(title) {
  const box = el("div", { tabindex: "0", role: "img" });
  const caption = el("figcaption", {});
  const readout = el("div", { class: "readout", "aria-live": "polite" });
  const node = el("figure", {}, caption, box, readout);
  let shown = null;
  let cursor = null;

  const x = (at, width) => LEFT + ((at - shown.now + SPAN_S) / SPAN_S) * (width - LEFT - RIGHT);

  function paint() {
    if (!shown) return;
    const width = Math.max(200, box.clientWidth || 300);
    const { times, series, marks, unit } = shown;
    const top = roof(Math.max(0, ...series.flatMap((one) => one.values.filter((v) => v !== null))));
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * part), y2: y(top * part) }));
      if (part) parts.push(svg("text", { x: LEFT, y: y(top * part) - 2 }, unit(top * part)));
    }
    for (const [ago, anchor] of [[900, "start"], [600, "middle"], [300, "middle"], [0, "end"]]) {
      const words = ago ? `\u2212${ago / 60} min` : "now";
      parts.push(svg("text", { x: x(shown.now - ago, width), y: HEIGHT - 3, "text-anchor": anchor }, words));
    }
    for (const mark of marks) {
      const at = x(mark.at, width);
      if (at < LEFT) continue;
      parts.push(svg("line", { class: "mark", x1: at, x2: at, y1: TOP - 6, y2: HEIGHT - BOTTOM }));
      parts.push(svg("path", { class: "mark-head", d: `M${at - 4} ${TOP - 12}h8l-4 6z` }, svg("title", {}, mark.text)));
    }
    for (const one of series) {
      const points = one.values.map((value, at) => (value === null || times[at] < shown.now - SPAN_S ? null : [x(times[at], width), y(value)]));
      for (const line of lines(points)) {
        const floor = y(0).toFixed(1);
        if (one.kind !== "down") {
          const [first, last] = [line[0][0].toFixed(1), line.at(-1)[0].toFixed(1)];
          parts.push(svg("path", { class: `area f-${one.kind}`, d: `${path(line)}L${last} ${floor}L${first} ${floor}z` }));
        }
        parts.push(svg("path", { class: `series c-${one.kind}`, d: path(line) }));
      }
    }
    if (cursor !== null && times.length) {
      const at = x(times[cursor], width);
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, "aria-hidden": "true" }, parts));
  }

  function read() {
    if (cursor === null || !shown?.times.length) return readout.replaceChildren();
    cursor = Math.min(cursor, shown.times.length - 1);
    const at = shown.times[cursor];
    const values = shown.series.map((one) => `${one.name} ${one.values[cursor] === null ? "not known" : shown.unit(one.values[cursor])}`);
    const near = shown.marks.filter((mark) => Math.abs(mark.at - at) < 5).map((mark) => mark.text);
    readout.replaceChildren(document.createTextNode([clock(at), ...values, ...near].join(" \u00b7 ")));
  }

  function move(to) {
    const before = cursor;
    cursor = to;
    if (before !== cursor) read(), paint();
  }

  box.addEventListener("keydown", (event) => {
    const last = (shown?.times.length ?? 0) - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -last, End: last };
    if (!(event.key in steps) || last < 0) return;
    event.preventDefault();
    move(Math.max(0, Math.min(last, (cursor ?? last) + steps[event.key])));
  });
  box.addEventListener("blur", () => move(null));
  box.addEventListener("pointermove", (event) => {
    if (!shown?.times.length) return;
    const at = shown.now - SPAN_S * (1 - (event.offsetX - LEFT) / (box.clientWidth - LEFT - RIGHT));
    const distance = shown.times.map((time) => Math.abs(time - at));
    move(distance.indexOf(Math.min(...distance)));
  });
  box.addEventListener("pointerleave", () => move(null));
  new ResizeObserver(paint).observe(box);

  return {
    node,
    draw(data) {
      shown = data;
      const last = data.series.map((one) => [one, one.values.findLast((v) => v !== null)]);
      const most = Math.max(0, ...data.series.flatMap((one) => one.values.filter((v) => v !== null)));
      const words = last.map(([one, value]) => `${one.name} ${value === undefined ? "not known" : data.unit(value)}`);
      box.setAttribute("aria-label", `${title}: now ${words.join(", ")}; highest ${data.unit(most)}. Arrow keys read values.`);
      caption.replaceChildren(el("b", {}, title), ...last.map(([one, value]) =>
        el("span", { class: "legend" },
          svg("svg", { width: 22, height: 8, viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("path", { class: `series c-${one.kind}`, d: "M0 4h22" })),
          `${one.name} ${value === undefined ? "\u2013" : data.unit(value)}`)));
      read();
      paint();
    },
  };
}

// A small line without words, beside words that say the same.
export function spark(values) {
  const top = Math.max(1, ...values);
  const points = values.map((value, at) => [(at / Math.max(1, values.length - 1)) * 118 + 1, 20 - (value / top) * 18]);
  return svg("svg", { class: "spark", viewBox: "0 0 120 22", "aria-hidden": "true" },
    svg("path", { class: `series c-${NAMES[2]}`, d: points.length ? path(points) : "" }));
}
