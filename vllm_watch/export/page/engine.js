// One engine inside an opened target: its charts and the rest of its signals.

import { Chart, Charts, Line } from "./chart.js";
import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import { age, quantile } from "./format.js";
import { say } from "./say.js";
import { CHARTED, LATENCIES, LISTED, OF_WINDOW, OF_WORK } from "./signals.js";
import { toneOf } from "./words.js";

/** The lines of one engine, by signal: kept while somebody looks at them. */
export class Lines {
  constructor() {
    this.of = new Map(CHARTED.map(({ name }) => [name, new Line()]));
  }

  /** Take over the watcher's history, and keep what came while it was fetched. */
  load({ t, series }) {
    for (const [name, live] of this.of) this.of.set(name, Line.joined(t, series[name], live));
  }

  push(t, signals, span) {
    for (const { name, read } of CHARTED) this.of.get(name).push(t, read(signals), span);
  }
}

/** Charts of some signals that share one pointer. */
export class ChartSet {
  constructor(names = null, pick = undefined, zoom = undefined) {
    const charts = new Charts(pick, zoom);
    this.group = charts;
    this.parts = CHARTED.filter(({ name }) => names === null || names.includes(name))
      .map((signal) => ({ signal, chart: charts.add(new Chart(signal, say)) }));
    this.element = h("div", { class: "charts" }, ...this.parts.map(({ chart }) => chart.element));
  }

  draw(lines, { t, span, ring = span, interval, marks, windowSeconds, pinned = null, frozen = false, old = () => false }) {
    this.group.pinned = pinned;
    for (const { signal, chart } of this.parts) {
      chart.over(windowSeconds, ring);
      chart.draw(lines?.of.get(signal.name) ?? new Line(), t, span, interval, marks, frozen, old(signal));
    }
  }
}

export class Engine {
  constructor(label, pick, zoom) {
    this.label = label;
    this.charts = new ChartSet(null, pick, zoom);
    this.title = h("h4");
    this.badge = h("span", { class: "badge small" });
    this.sentence = h("p", { class: "engine-text" });
    this.head = h("div", { class: "engine-head" }, this.title, this.badge, this.sentence);
    this.list = h("dl", { class: "facts" });
    this.latencies = LATENCIES.map(([title, read]) => ({ title, read, cells: [h("td"), h("td"), h("td")] }));
    this.latencyTitle = h("th", { scope: "col" });
    this.more = h("div", { class: "engine-more" }, latencyTable(this.latencyTitle, this.latencies), this.list);
    this.element = h("section", { class: "engine" }, this.head, this.charts.element, this.more);
  }

  /** `signals` is null where the engine is seen no more; `alone`: the target's row already says its state. */
  draw(signals, lines, { now, alone, ...view }) {
    this.charts.draw(lines, view);
    this.head.hidden = signals === null || alone; // its row names the model already
    this.more.hidden = signals === null;
    if (signals === null) return;
    setText(this.title, `Engine ${this.label} · ${signals.model_name || "model unknown"}`);
    if (this.state !== signals.state) {
      this.state = signals.state;
      setAttribute(this.badge, "data-tone", toneOf(signals.state));
      this.badge.replaceChildren(icon(toneOf(signals.state)), signals.state);
    }
    setText(this.sentence, signals.state_text);
    const window = age(view.windowSeconds);
    setText(this.latencyTitle, `latency, last ${window}`);
    for (const { read, cells } of this.latencies) {
      const { p50, p95, p99, first_bound: first } = view.still ? {} : read(signals);
      [p50, p95, p99].forEach((value, i) => setText(cells[i], quantile(value, first)));
    }
    facts(this.list, LISTED.filter(([title, , when]) => (!when || when(signals)) && !(view.still && OF_WORK.has(title))).map(([title, say]) => [OF_WINDOW.has(title) ? `${title}, mean of ${window}` : title, say(signals, now)]));
  }
}

function latencyTable(title, rows) {
  return h("table", { class: "latencies" },
    h("thead", {}, h("tr", {}, title, ...["p50", "p95", "p99"].map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", {}, ...rows.map(({ title, cells }) => h("tr", {}, h("th", { scope: "row" }, title), ...cells))));
}

/** A list of titles and texts, in place. */
export function facts(list, rows) {
  keyed(list, rows, ([title]) => title,
    ([title]) => {
      const value = h("dd");
      return { element: h("div", {}, h("dt", {}, title), value), value };
    },
    ({ value }, [, text]) => setText(value, text));
}
