// A chart of one signal over the last minutes: line, axis, value under the pointer. Drawn as SVG, so that it is
// crisp on a wall and its colours are those of the style sheet.

import { h, keyed, s, setAttribute, setText } from "./dom.js";
import { age, ago, clock, UNKNOWN } from "./format.js";

const HEIGHT = 100;
const DRAG_PIXELS = 8; // less is a click
const GAP_INTERVALS = 2.6; // a single missed look is bridged, two are shown as a gap

const POINTS = 600; // of a line that grows while somebody looks: more than a chart has pixels
const SCRAPES_UP_TO_SECONDS = 600; // of a longer span the watcher keeps means
const SET_BACK_SECONDS = 30; // less is two events that came in the wrong order

/** Times and values of one signal; the newest `span` seconds are kept. */
export class Line {
  constructor(times = [], values = []) {
    this.times = times;
    this.values = values;
  }

  /** What the watcher remembers, and after it what `live` has seen since. */
  static joined(times, values, live) {
    const last = times.at(-1) ?? -Infinity;
    const from = live.times.findIndex((t) => t > last);
    return from < 0 ? new Line([...times], [...values]) : new Line([...times, ...live.times.slice(from)], [...values, ...live.values.slice(from)]);
  }

  /** Add the newest value; the same time again replaces it, and of a long span so does the same step. */
  push(t, value, span) {
    // Much older than the last: the watcher's clock was set back, and what lies ahead of it was never so.
    if (this.times.length && this.times.at(-1) - t > SET_BACK_SECONDS) while (this.times.length && this.times.at(-1) > t) this.drop();
    const last = this.times.length - 1;
    if (last >= 0 && t < this.times[last]) return;
    const step = span / POINTS;
    if (last >= 0 && Math.floor(t / step) === Math.floor(this.times[last] / step)) this.drop(); // of one step the newest stays
    this.times.push(t);
    this.values.push(value);
    const from = this.times.findIndex((time) => time >= t - span);
    if (from > 0) {
      this.times.splice(0, from);
      this.values.splice(0, from);
    }
  }

  drop() {
    this.times.pop();
    this.values.pop();
  }

  /** The part from one time to another. */
  between(from, to) {
    const inside = this.times.map((t, i) => i).filter((i) => this.times[i] >= from && this.times[i] <= to);
    return new Line(inside.map((i) => this.times[i]), inside.map((i) => this.values[i]));
  }

  /** The index of the known value nearest to `t`, or -1. */
  nearest(t) {
    let best = -1;
    for (let i = 0; i < this.times.length; i += 1) {
      if (this.values[i] === null) continue;
      if (best < 0 || Math.abs(this.times[i] - t) < Math.abs(this.times[best] - t)) best = i;
    }
    return best;
  }
}

/** The path of a line: `scale` places a value in HEIGHT; unknown values and long silences break it. */
export function path(line, end, span, top, gap) {
  let d = "";
  let previous = null;
  for (let i = 0; i < line.times.length; i += 1) {
    const value = line.values[i];
    const t = line.times[i];
    if (value === null || t < end - span) {
      if (value === null) previous = null;
      continue;
    }
    const x = (span - (end - t)).toFixed(1);
    const y = (HEIGHT - (Math.min(value, top) / top) * HEIGHT).toFixed(1);
    // A lone point is a line of no length, which its round cap makes a dot.
    d += previous !== null && t - previous <= gap ? `L${x} ${y}` : `M${x} ${y}h0`;
    previous = t;
  }
  return d;
}

/** The least round number at or above `value`: 1, 2, 2.5 or 5 times a power of ten. */
export function roundUp(value, least) {
  const size = Math.max(value, least);
  const power = 10 ** Math.floor(Math.log10(size));
  for (const step of [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]) if (step * power >= size * 0.9999) return step * power;
  return 10 * power;
}

/** Where the spans of `marks` ({key, from, to (null: until now), tone, title}) lie in the `span` seconds before `end`: shares of the width. */
function placed(marks, end, span) {
  return marks.flatMap((mark) => {
    const left = Math.max(0, 1 - (end - mark.from) / span);
    const right = Math.min(1, mark.to === null ? 1 : 1 - (end - mark.to) / span);
    return right > 0 && left < 1 ? [{ ...mark, left, right }] : [];
  });
}

/** A small line without axis, for a row of the list. */
export class Spark {
  constructor() {
    this.path = s("path", { class: "line" });
    this.marks = s("g");
    this.element = s("svg", { class: "spark", preserveAspectRatio: "none", "aria-hidden": "true" }, this.marks, this.path);
  }

  draw(line, end, span, interval, marks) {
    keyed(this.marks, placed(marks, end, span), ({ key }) => key, () => s("rect", { y: -4, height: HEIGHT + 8 }), (rect, { left, right, tone }) => {
      setAttribute(rect, "class", `mark-${tone}`);
      setAttribute(rect, "x", String(left * span));
      setAttribute(rect, "width", String((right - left) * span));
    });
    setAttribute(this.element, "viewBox", `0 -4 ${span} ${HEIGHT + 8}`);
    const top = roundUp(Math.max(0, ...line.values.filter((v) => v !== null)), 1e-9);
    setAttribute(this.path, "d", path(line, end, span, top, interval * GAP_INTERVALS));
  }
}

/** Charts whose pointer is one: what happened in the others at this moment. */
export class Charts {
  /** `pick` gets the moment that is chosen, null to let go of it; `zoom` a span, null for the whole; null: no zoom. */
  constructor(pick = () => undefined, zoom = null) {
    this.all = [];
    this.pick = pick;
    this.zoom = zoom;
    this.pinned = null; // the moment that is chosen
  }

  add(chart) {
    this.all.push(chart);
    chart.group = this;
    return chart;
  }

  point(t) {
    for (const chart of this.all) chart.point(t);
  }
}

export class Chart {
  /** `signal`: {title, note, format, tick (for the axis, if another), least (the smallest full scale), top (a fixed one)}. */
  constructor(signal, say) {
    this.signal = signal;
    this.say = say;
    this.line = new Line();
    this.said = signal.note;
    this.at = null;
    this.value = h("span", { class: "chart-value" }, UNKNOWN); // no <output>: it would be read out at every change
    this.note = h("span", { class: "chart-note" }, signal.note);
    this.max = h("span", { class: "tick tick-max" });
    this.mid = h("span", { class: "tick tick-mid" });
    this.area = s("path", { class: "area" });
    this.stroke = s("path", { class: "line" });
    this.svg = s("svg", { preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.stroke);
    this.cross = h("span", { class: "cross", hidden: "" });
    this.dot = h("span", { class: "dot", hidden: "" });
    this.missing = h("span", { class: "chart-missing" }, "no data");
    this.chosen = h("span", { class: "chosen", hidden: "" });
    this.from = null; // where a pointer began to choose a span: {x, t}
    [this.ago, this.half, this.until] = [h("span"), h("span"), h("span")];
    this.marks = h("div", { class: "marks" });
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img" }, this.marks,
      h("span", { class: "rule rule-max" }), h("span", { class: "rule rule-mid" }),
      this.svg, this.chosen, this.cross, this.dot, this.max, this.mid, this.missing);
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", { class: "chart-title" }, signal.title), this.value, this.note),
      this.plot, h("div", { class: "times", "aria-hidden": "true" }, this.ago, this.half, this.until));
    this.listen();
  }

  listen() {
    const at = ({ clientX }) => {
      const box = this.plot.getBoundingClientRect();
      return this.end - this.span * (1 - (clientX - box.left) / box.width);
    };
    this.plot.addEventListener("pointermove", (event) => {
      this.group.point(at(event));
      this.choosing(event);
    });
    this.plot.addEventListener("pointerdown", (event) => {
      if (this.group.zoom === null || event.button !== 0) return;
      this.from = { x: event.clientX, t: at(event) };
      this.plot.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointerup", (event) => {
      const chosen = this.from !== null && !this.chosen.hidden;
      if (chosen) this.group.zoom(...[this.from.t, at(event)].sort((a, b) => a - b));
      this.from = null;
      this.chosen.hidden = true;
      this.dragged = chosen;
    });
    this.plot.addEventListener("pointercancel", () => {
      this.from = null;
      this.chosen.hidden = true;
    });
    this.plot.addEventListener("click", (event) => {
      if (this.dragged) return;
      const i = this.line.nearest(at(event));
      if (i >= 0) this.group.pick(this.line.times[i]);
    });
    this.plot.addEventListener("pointerleave", () => this.group.point(null));
    this.plot.addEventListener("blur", () => this.group.point(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  /** Draw the span that is being chosen; a few pixels are a click. */
  choosing({ clientX }) {
    if (this.from === null) return;
    const { left, width } = this.plot.getBoundingClientRect();
    const [low, high] = [this.from.x, clientX].sort((a, b) => a - b).map((x) => Math.min(width, Math.max(0, x - left)));
    this.chosen.hidden = high - low < DRAG_PIXELS;
    this.chosen.style.left = `${low}px`;
    this.chosen.style.width = `${high - low}px`;
  }

  /** Half the span around the point that is read, or around the newest; twice the span shows all again. */
  zoomBy(factor) {
    if (factor > 1) return this.group.zoom(null);
    const size = this.span * factor;
    const from = Math.min(this.end - size, Math.max(this.end - this.span, (this.at ?? this.end) - size / 2));
    return this.group.zoom(from, from + size);
  }

  /** Left and right step through the points, Home and End jump, + and - zoom, Enter chooses one, Escape lets go. */
  key(event) {
    const { times } = this.line;
    if (this.group.zoom !== null && ["+", "-"].includes(event.key)) return this.zoomBy(event.key === "+" ? 0.5 : 2);
    if (event.key === "Enter" && this.at !== null) return this.group.pick(this.at);
    if (event.key === "Escape") {
      this.group.zoom?.(null);
      this.group.pick(null);
      return this.group.point(null);
    }
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || times.length === 0) return undefined;
    event.preventDefault();
    const now = this.at === null ? times.length - 1 : this.line.nearest(this.at);
    const step = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: times.length - 1 }[event.key];
    const i = Math.min(times.length - 1, Math.max(0, step));
    this.group.point(times[i]);
    this.say(`${clock(times[i])}: ${this.signal.format(this.line.values[i])}`);
    return undefined;
  }

  /** Name a mean as such: over the window of `seconds`, or over the steps of a long `span`. */
  over(seconds, span) {
    const { note, windowed, rate } = this.signal;
    const of = windowed ? `over the last ${age(seconds)}` : span > SCRAPES_UP_TO_SECONDS ? `means of ${age(span / 120)}` : rate && "at each scrape";
    this.said = [note, of].filter(Boolean).join(", ");
  }

  /** Draw what `all` held in the `span` seconds before `end`, and `marks`: when something was wrong. `frozen`: `end` is not now; `old`: its newest value holds no more. */
  draw(all, end, span, interval, marks, frozen, old) {
    const line = frozen ? all.between(end - span, end) : all;
    Object.assign(this, { line, end, span, old: old && !frozen, gap: interval * GAP_INTERVALS });
    const seen = line.values.filter((value) => value !== null);
    this.top = this.signal.top ?? roundUp(Math.max(0, ...seen), this.signal.least);
    const d = path(line, end, span, this.top, this.gap);
    setAttribute(this.svg, "viewBox", `0 0 ${span} ${HEIGHT}`);
    setAttribute(this.stroke, "d", d);
    setAttribute(this.area, "d", areaUnder(d));
    const tick = this.signal.tick ?? this.signal.format;
    setText(this.max, tick(this.top));
    setText(this.mid, tick(this.top / 2, this.top));
    setText(this.ago, frozen ? clock(end - span) : ago(span));
    setText(this.half, clock(end - span / 2));
    setText(this.until, frozen ? clock(end) : "now");
    this.missing.hidden = seen.length > 0;
    const shown = placed(marks, end, span);
    keyed(this.marks, shown, ({ key }) => key, () => h("span"), (element, { left, right, tone, title }) => {
      setAttribute(element, "class", `mark mark-${tone}`);
      setAttribute(element, "title", title);
      element.style.left = `${100 * left}%`;
      element.style.width = `${100 * (right - left)}%`;
    });
    this.show();
    const range = seen.length ? `, between ${this.signal.format(Math.min(...seen))} and ${this.signal.format(Math.max(...seen))} in ${frozen ? "these" : "the last"} ${ago(span).replace(" ago", "")}` : "";
    const wrong = shown.map(({ title }) => ` ${title}.`).join("");
    setAttribute(this.plot, "aria-label", `${this.signal.title}: ${frozen ? "at the end" : "now"} ${this.signal.format(this.now())}${range}.${wrong} Arrow keys step through the points, Enter links to one${this.group.zoom === null ? "" : ", + zooms in"}.`);
  }

  point(t) {
    this.at = t;
    this.show();
  }

  /** The index of what holds now, or -1: a line that ended is history. */
  newest() {
    const last = this.line.times.length - 1;
    return last >= 0 && this.end - this.line.times[last] <= this.gap ? last : -1;
  }

  /** What holds now; null: not known. */
  now() {
    return this.old ? null : this.line.values[this.newest()] ?? null;
  }

  /** The value at the pointer, else the newest. */
  show() {
    const at = this.at ?? this.group.pinned;
    const i = at === null ? -1 : this.line.nearest(at);
    const value = at === null ? this.now() : this.line.values[i];
    const pointed = at !== null && value !== null && value !== undefined;
    setText(this.value, this.signal.format(value ?? null));
    setText(this.note, pointed ? `at ${clock(this.line.times[i])}` : this.said);
    this.cross.hidden = !pointed;
    this.dot.hidden = !pointed;
    if (!pointed) return;
    const left = `${100 * (1 - (this.end - this.line.times[i]) / this.span)}%`;
    this.cross.style.left = left;
    this.dot.style.left = left;
    this.dot.style.top = `${100 * (1 - Math.min(value, this.top) / this.top)}%`;
  }
}

/** Close each piece of a line down to the axis. */
function areaUnder(d) {
  return d.split("M").filter(Boolean).map((piece) => {
    const points = piece.replace("h0", "").split("L");
    const [first, last] = [points[0].split(" ")[0], points.at(-1).split(" ")[0]];
    return points.length < 2 ? "" : `M${first} ${HEIGHT}L${points.join("L")}L${last} ${HEIGHT}Z`;
  }).join("");
}
