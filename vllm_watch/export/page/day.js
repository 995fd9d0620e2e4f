// The last 24 hours of a target as a row of cells: the worst state of each span, and the incidents in it.

import { h, s, setAttribute, setText } from "./dom.js";
import { age, ratio } from "./format.js";
import { severityOf } from "./words.js";

const STATES = ["unknown", "healthy", "warning", "critical", "down"]; // the worst last
const CELLS = 96;
const HEIGHT = 10; // of the picture; what is worse stands higher, so that it is told without colour
const HEIGHTS = { unknown: 0, healthy: 3, warning: 6, critical: HEIGHT, down: HEIGHT };
const WIDTH = 0.82; // of a cell: the rest is the gap to the next
const HOUR_CELLS = 4; // healthy since less than that, a watcher has nothing to tell of a day
const NEWS_SECONDS = 30; // so long after a span has begun the watcher knows of it

const minute = (t) => new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** The state of a target while an incident is active. */
function stateOf(incident) {
  const { rank } = severityOf(incident);
  if (rank > 1) return "unknown"; // it says nothing of the engine's health
  return rank === 1 ? "warning" : incident.kind === "engine_down" ? "down" : "critical";
}

const worse = (a, b) => (STATES.indexOf(b) > STATES.indexOf(a) ? b : a);

/** The cells that the watcher told, with the incidents of each, the worst first: {from, to, state, parts: [{incident, seconds}]}. */
export function cells({ t, seconds, states }, incidents, now) {
  const spans = incidents.map((incident) => {
    const { began_timestamp_seconds: began, opened_timestamp_seconds: opened, ended_timestamp_seconds: over, resolved_timestamp_seconds: closed } = incident;
    return { incident, from: began ?? opened ?? 0, to: over ?? closed ?? now };
  });
  return states.map((told, i) => {
    const [from, to] = [t + i * seconds, t + (i + 1) * seconds];
    const parts = spans.filter((span) => span.from < to && span.to > from)
      .map((span) => ({ incident: span.incident, seconds: Math.min(span.to, to) - Math.max(span.from, from) }))
      .sort((a, b) => severityOf(a.incident).rank - severityOf(b.incident).rank || b.seconds - a.seconds);
    return { from, to, state: parts.map(({ incident }) => stateOf(incident)).reduce(worse, told), parts };
  });
}

/** The picture: one path for each state, however many cells. */
export class Strip {
  constructor() {
    this.paths = new Map(STATES.map((state) => [state, s("path", { class: `day-${state}` })]));
    this.element = s("svg", { class: "day-cells", viewBox: `0 0 ${CELLS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...this.paths.values());
  }

  draw(day) {
    this.told = (day ?? []).some(({ state }, i) => state !== "unknown" && (state !== "healthy" || i < CELLS - HOUR_CELLS));
    for (const [state, path] of this.paths) setAttribute(path, "d", (day ?? []).map((cell, i) => (cell.state === state ? shape(state, i) : "")).join(""));
  }
}

/** What the strips under rows mean. */
export const drawKey = (element) => element.replaceChildren("Last 24\u202fh, 15\u202fmin each: ", ...STATES.slice(0, -1).map((state) => h("span", { class: "day-key" }, sample(state), state === "critical" ? "critical, down" : state)));

/** What is unknown is a thin line, and what is down is cut in two. */
function shape(state, i) {
  if (state === "unknown") return `M${i + 0.2} ${HEIGHT}v-1h0.4v1z`;
  const bar = (top, bottom) => `M${i} ${bottom}V${top}h${WIDTH}V${bottom}z`;
  return state === "down" ? bar(0, 4) + bar(6, HEIGHT) : bar(HEIGHT - HEIGHTS[state], HEIGHT);
}

/** The picture with its words: each span is read under the pointer or by arrow keys, and leads to its incidents. */
export class Day {
  constructor(page, name) {
    this.page = page;
    this.at = null; // the cell that is read
    this.day = [];
    this.strip = new Strip();
    this.cursor = h("span", { class: "day-cursor", hidden: "" });
    this.plot = h("div", { class: "day-plot", tabindex: "0", role: "slider", "aria-label": `Last 24 hours of ${name}`, "aria-valuemin": "1", "aria-valuemax": String(CELLS) }, this.strip.element, this.cursor);
    this.said = h("p", { class: "day-said" });
    this.element = h("div", { class: "day" }, this.plot, h("div", { class: "day-times", "aria-hidden": "true" }, h("span", {}, "24\u202fh ago"), h("span", {}, "12\u202fh ago"), h("span", {}, "now")), this.said);
    const under = ({ clientX }) => {
      const box = this.plot.getBoundingClientRect();
      return Math.min(CELLS - 1, Math.max(0, Math.floor((CELLS * (clientX - box.left)) / box.width)));
    };
    this.plot.addEventListener("pointermove", (event) => this.read(under(event)));
    this.plot.addEventListener("click", (event) => {
      this.read(under(event));
      this.go();
    });
    this.plot.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const now = this.at ?? CELLS;
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: CELLS - 1, Escape: null }[event.key];
    if (event.key === "Enter") this.go();
    if (to === undefined) return;
    event.preventDefault();
    this.read(to === null ? null : Math.min(CELLS - 1, Math.max(0, to)));
  }

  /** Go to the worst incident of the span that is read. */
  go() {
    const [part] = this.day[this.at]?.parts ?? [];
    if (part) location.hash = placeOf(part.incident);
  }

  draw(day) {
    this.element.hidden = day === null;
    this.day = day ?? [];
    this.strip.draw(day);
    this.read(this.at);
  }

  read(at) {
    this.at = at;
    const cell = this.day[at] ?? null;
    this.cursor.hidden = cell === null;
    this.cursor.style.left = `${(100 * (at ?? 0)) / CELLS}%`;
    const text = cell === null ? summary(this.day) : words(cell);
    setAttribute(this.plot, "aria-valuenow", String((cell === null ? CELLS - 1 : at) + 1));
    setAttribute(this.plot, "aria-valuetext", text);
    if (this.said.dataset.text === text) return; // a link stays while it is pointed at
    this.said.dataset.text = text;
    this.said.replaceChildren(...(cell === null ? legend(this.day) : linked(cell)));
  }
}

const placeOf = ({ id }) => `#${encodeURIComponent(`incident-${id}`)}`;
const spanOf = ({ from, to, state }) => `${minute(from)}–${minute(to)}: ${state}`;
const partOf = ({ incident: { title, engine }, seconds }) => `${title}${engine === null ? "" : ` (engine ${engine})`} ${age(seconds)}`;

/** "14:15–14:30: critical, Stalled: hang (engine 0) 3 min". */
const words = (cell) => [spanOf(cell), ...cell.parts.map(partOf)].join(", ");
const linked = (cell) => [spanOf(cell), ...cell.parts.flatMap((part) => [", ", h("a", { href: placeOf(part.incident) }, partOf(part))])];

const counted = (day) => [...STATES].reverse().map((state) => [state, day.filter((cell) => cell.state === state).length]).filter(([, count]) => count > 0);
const summary = (day) => `Spans of 15 min: ${counted(day).map(([state, count]) => `${count} ${state}`).join(", ")}`;
const legend = (day) => ["Spans of 15\u202fmin: ", ...counted(day).map(([state, count]) => h("span", { class: "day-key" }, sample(state), `${count} ${state}`))];

function sample(state) {
  return s("svg", { viewBox: `0 0 1 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, s("path", { class: `day-${state}`, d: shape(state, 0) }));
}

/** Has a span begun that the watcher had not told of? */
export const outdated = (told, now) => told !== null && now > told.t + CELLS * told.seconds + NEWS_SECONDS;

/** "Uptime: 99.95 % over 24 h · 7 d: unknown (12 % unknown)": up is neither down nor critical, of the time that is known. */
export function uptimeOf(shares) {
  const one = ({ seconds, up_ratio: up, unknown_ratio: unknown }) => {
    const nothing = up === null || unknown >= 0.995; // as the public view
    const share = nothing ? "unknown" : `${(Math.floor(up * 1e5) / 1e3).toFixed(up > 0 && up < 1 ? 3 : 0)}\u202f%`;
    const lacks = nothing || unknown < 0.005 ? "" : ` (${ratio(unknown)} of the time unknown)`;
    return `${seconds > 86400 ? age(seconds) : "24\u202fh"}\u00a0${share}${lacks}`;
  };
  return shares.length ? `Uptime: ${shares.map(one).join(" · ")}` : "";
}
