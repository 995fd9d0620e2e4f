// One target: a row that can be opened.

import { Line, Spark } from "./chart.js";
import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import { Engine, facts } from "./engine.js";
import * as format from "./format.js";
import { history } from "./live.js";
import { Plan, planFacts } from "./restart.js";
import { summary } from "./signals.js";
import { incidentTitle, OUTCOMES, severityOf, shownState, toneOf } from "./words.js";

export class Target {
  constructor(data, page) {
    this.page = page;
    this.name = data.name;
    this.engines = new Map();
    this.generation = new Line();
    this.loaded = false;
    this.build();
    this.update(data);
  }

  build() {
    this.badge = h("span", { class: "badge" });
    this.title = h("h3", {}, this.name);
    this.model = h("span", { class: "model" });
    this.flags = h("span", { class: "flags" });
    this.sentence = h("span", { class: "sentence" });
    this.spark = new Spark();
    this.numbers = {};
    const cell = (name, title) => {
      this.numbers[name] = h("span", { class: "cell-value" }, format.UNKNOWN);
      return h("span", { class: `cell cell-${name}` }, h("span", { class: "cell-title" }, title), " ", this.numbers[name]);
    };
    const kv = cell("kv", "KV cache");
    this.kvBar = h("span", { class: "kv-bar", "aria-hidden": "true" }, h("span"));
    kv.append(this.kvBar);
    this.summary = h("summary", {}, this.badge,
      h("span", { class: "who" }, h("span", { class: "name" }, this.title, this.model, this.flags), this.sentence),
      this.spark.element, cell("generation", "generation"), cell("running", "running"), cell("waiting", "waiting"),
      kv, cell("ttft", "TTFT p95"));
    this.callout = h("p", { class: "callout", hidden: "" });
    this.identity = h("dl", { class: "facts identity" });
    this.engineList = h("div", { class: "engines" });
    this.sources = h("tbody");
    this.blind = h("ul", { class: "blind", hidden: "" });
    this.plan = new Plan(this.page, this.name);
    this.planTitle = h("h4", {}, "Restarts");
    this.planFacts = h("dl", { class: "facts" });
    this.advice = h("ul", { class: "blind advice", hidden: "" });
    this.body = h("div", { class: "target-body" }, this.callout, this.blind, this.engineList, this.advice,
      this.planTitle, this.plan.element, this.planFacts,
      h("h4", {}, "Identity"), this.identity, h("h4", {}, "What the watcher asks"),
      h("div", { class: "scroll" }, h("table", { class: "sources" },
        h("thead", {}, h("tr", {}, ...["asked for", "last answer", "last good", "took", "asked", "failed"].map((t) => h("th", { scope: "col" }, t)))),
        this.sources)));
    this.element = h("details", { class: "target", id: `target-${this.name}` }, this.summary, this.body);
    this.element.addEventListener("toggle", () => this.toggled());
  }

  /** Take in what is newest; drawing is separate, as most rows are out of sight. */
  update(data) {
    this.data = data;
    const { signals } = data;
    if (!signals) return;
    this.generation.push(signals.t, summary(data).generation, this.page.span);
    for (const [label, engine] of Object.entries(signals.engines)) {
      if (!this.engines.has(label)) this.engines.set(label, new Engine(label, this.page.announce));
      this.engines.get(label).push(signals.t, engine, this.page.span);
    }
    if (Object.keys(signals.engines).length) {
      for (const label of [...this.engines.keys()]) if (!(label in signals.engines)) this.engines.delete(label);
    }
  }

  /** Fetch the charts of the minutes before this page was opened; called when the row comes into sight. */
  async load() {
    if (this.loaded) return;
    this.loaded = true;
    const found = await history(this.name);
    if (found === null) {
      this.loaded = false;
      return;
    }
    for (const [label, one] of Object.entries(found)) {
      // Of a target that is down this is what it did before.
      if (!this.engines.has(label)) this.engines.set(label, new Engine(label, this.page.announce));
      this.engines.get(label).load(one);
    }
    this.generation = totalled(Object.values(found), this.generation);
    this.draw(this.page.now());
  }

  toggled() {
    this.load();
    this.draw(this.page.now());
    this.page.opened(this);
  }

  draw(now) {
    const { data } = this;
    const state = shownState(data, now);
    if (this.state !== state) {
      this.state = state;
      setAttribute(this.badge, "data-tone", toneOf(state));
      this.badge.replaceChildren(icon(toneOf(state)), state);
    }
    this.drawFlags();
    this.marks = this.page.incidents.of(this.name).map(markOf);
    setText(this.sentence, state === "stale" ? `No news for ${format.age(now - data.signals.t)}; it was ${data.state}: ${data.state_text}` : data.state_text);
    setText(this.model, modelOf(data));
    const sums = summary(data);
    setText(this.numbers.generation, format.rate("tok/s")(sums.generation));
    setText(this.numbers.running, format.count(sums.running));
    setText(this.numbers.waiting, format.count(sums.waiting));
    setText(this.numbers.kv, format.ratio(sums.kv));
    setText(this.numbers.ttft, format.seconds(sums.ttft));
    this.kvBar.firstChild.style.transform = `scaleX(${Math.min(1, Math.max(0, sums.kv ?? 0))})`;
    const end = data.signals?.t ?? now;
    this.spark.draw(this.generation, end, this.page.span, this.interval(), this.marks);
    if (this.element.open) this.drawBody(now, end);
  }

  /** What is open of it; drawn out of sight too, as it decides the row's place and can be searched for. */
  drawFlags() {
    const open = this.page.incidents.openOf(this.name);
    setAttribute(this.element, "data-tone", worse(toneOf(this.state), open));
    keyed(this.flags, open, ({ id }) => id, () => h("span", { class: "flag" }), (flag, incident) => {
      const title = incidentTitle(incident) + (incident.engine === null || this.engines.size < 2 ? "" : `, engine ${incident.engine}`);
      if (flag.textContent === title && flag.dataset.tone === severityOf(incident).tone) return;
      setAttribute(flag, "data-tone", severityOf(incident).tone);
      flag.replaceChildren(icon(severityOf(incident).sign), title);
    });
  }

  /** How far apart two points of a chart lie: looks, or the steps of the watcher's history. */
  interval() {
    return Math.max(this.data.interval_seconds, this.page.span / 120);
  }

  drawBody(now, end) {
    const { data } = this;
    const { signals } = data;
    this.callout.hidden = !signals?.why_not;
    setText(this.callout, signals?.why_not ?? "");
    this.drawBlind();
    this.drawAdvice();
    const shown = [...this.engines.values()].sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true }));
    keyed(this.engineList, shown, (engine) => engine.label, (engine) => engine,
      (engine) => engine.draw(signals?.engines[engine.label] ?? null, { t: end, now, span: this.page.span, interval: this.interval(), alone: shown.length === 1,
        marks: this.marks.filter((mark) => mark.engine === null || mark.engine === engine.label) }));
    this.planTitle.hidden = !data.restart;
    this.plan.draw(data.restart, null, now);
    facts(this.planFacts, planFacts(data.restart, now));
    facts(this.identity, identityOf(data, now));
    this.drawSources(now);
  }

  /** What cannot be judged here, and what only in part: nobody should take silence for health. */
  drawBlind() {
    const lines = Object.entries(this.data.detectors ?? {}).filter(([, { state }]) => state === "blind" || state === "partly")
      .sort(([, a], [, b]) => a.state.localeCompare(b.state)); // blind first
    this.blind.hidden = !lines.length;
    keyed(this.blind, lines, ([slug]) => slug, () => ({ element: h("li") }), ({ element }, [slug, { state, text }]) => {
      setAttribute(element, "data-tone", state === "blind" ? "warn" : "quiet");
      setText(element, `${slug.replaceAll("_", " ")} ${state === "blind" ? "is blind" : "sees in part"}: ${text}`);
    });
  }

  /** What could be set better: no alarm, so it stands below the engines. */
  drawAdvice() {
    const lines = this.data.advice ?? [];
    this.advice.hidden = !lines.length;
    keyed(this.advice, lines, ({ rule, engine }) => `${rule} ${engine}`, () => ({ element: h("li") }), ({ element }, { engine, flag, value, text, why }) => {
      setAttribute(element, "data-tone", "quiet");
      setText(element, `advice${this.engines.size < 2 ? "" : ` for engine ${engine}`}: ${text} → ${[flag, value].filter(Boolean).join(" ")}: ${why}`);
    });
  }

  drawSources(now) {
    keyed(this.sources, Object.entries(this.data.sources), ([name]) => name,
      ([name]) => {
        const cells = Array.from({ length: 5 }, () => h("td"));
        return { element: h("tr", {}, h("th", { scope: "row" }, name), ...cells), cells };
      },
      ({ cells }, [, source]) => {
        setAttribute(cells[0], "data-tone", source.outcome === "ok" ? "good" : "bad");
        const failed = Object.entries(source.errors).map(([reason, times]) => `${OUTCOMES[reason] ?? reason} ${times}×`);
        const texts = [
          OUTCOMES[source.outcome] ?? source.outcome,
          source.last_success_timestamp_seconds === null ? "never" : format.ago(now - source.last_success_timestamp_seconds),
          format.seconds(source.duration_seconds), `${format.count(source.calls)}×`, failed.join(" · ") || "never",
        ];
        texts.forEach((text, i) => setText(cells[i], text));
      });
  }
}

/** The tone of a row: that of its state, or of its worst open incident. */
function worse(tone, [incident]) {
  const ranks = ["bad", "warn", "info", "good", "quiet"];
  const told = incident && incident.severity !== "info" ? severityOf(incident).tone : "quiet";
  return ranks.indexOf(told) < ranks.indexOf(tone) ? told : tone;
}

/** The span of an incident on a chart's time axis. */
function markOf(incident) {
  const { id, engine, opened_timestamp_seconds: from, resolved_timestamp_seconds: to } = incident;
  const when = from === null ? "" : ` since ${format.clock(from)}`;
  const title = to === null ? `${incidentTitle(incident)}${when}` : `${incidentTitle(incident)}${when}, until ${format.clock(to)}`;
  return { key: id, engine, from: from ?? 0, to, tone: to === null ? severityOf(incident).tone : "quiet", title };
}

function modelOf({ signals, group }) {
  const engines = Object.values(signals?.engines ?? {});
  const names = new Set([...engines.map((e) => e.model_name), ...(signals?.models ?? [])].filter(Boolean));
  return [...names].join(", ") || group;
}

function identityOf(data, now) {
  const { signals } = data;
  const rows = [
    ["Address", data.url], ["Group", data.group], ["Namespace", data.namespace], ["Pod", data.pod], ["Node", data.node],
    ["vLLM", [signals?.version, signals?.engine_kind].filter(Boolean).join(", engine ")],
    ["Looked at", `every ${format.seconds(data.interval_seconds)}${signals ? `, ${format.ago(now - signals.t)}` : ", not yet"}`],
  ].filter(([title, text]) => text || title === "vLLM").map(([title, text]) => [title, format.text(text)]);
  if (!signals) return rows;
  return [...rows,
    ["/health", signals.health_status === null ? format.UNKNOWN : `HTTP ${signals.health_status}`],
    ["Server process up", signals.process_start_time === null ? format.UNKNOWN : format.age(now - signals.process_start_time)],
    ["Open files", format.count(signals.process_open_fds)],
    ...(signals.unknown_families.length ? [["Metrics we do not know", signals.unknown_families.join(", ")]] : []),
  ];
}

/** The engines' generation added up at each moment, continued by what came live. */
function totalled(histories, live) {
  const sums = new Map();
  for (const { t, series } of histories) {
    t.forEach((time, i) => {
      const value = series.generation_tokens_per_second[i];
      const before = sums.get(time) ?? null;
      sums.set(time, value === null ? before : (before ?? 0) + value);
    });
  }
  const times = [...sums.keys()].sort((a, b) => a - b);
  const line = new Line(times, times.map((t) => sums.get(t)));
  live.times.forEach((t, i) => line.push(t, live.values[i], Infinity));
  return line;
}
