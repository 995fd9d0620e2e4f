// One target: a row that can be opened.

import { Card } from "./card.js";
import { Line, Spark } from "./chart.js";
import { cells, Day, outdated, Strip, uptimeOf } from "./day.js";
import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import { Engine, facts, Lines } from "./engine.js";
import * as format from "./format.js";
import { Links } from "./links.js";
import { history } from "./live.js";
import { Recording } from "./recording.js";
import { Plan, planFacts } from "./restart.js";
import { isOld, isStill, modelOf, summary } from "./signals.js";
import { Witnesses } from "./witnesses.js";
import { isRecovering, markOf, OUTCOMES, shownState, standingOf, stateOf, toneOf } from "./words.js";

const RENEW_SECONDS = 60;
const RETRY_SECONDS = 5;

export class Target {
  constructor(data, page) {
    this.page = page;
    this.name = data.name;
    this.shown = null; // the element, once it was needed
    this.visible = false;
    this.uptime = []; // over the last 24 hours, 7 and 30 days
    this.day = null; // the last 24 hours, as the watcher told them
    this.renewed = 0; // when that was asked for anew
    this.forget();
    this.update(data);
    this.state = shownState(data, page.now());
  }

  /** The row: made when it is shown first, as most of a large fleet never is. */
  get element() {
    if (this.shown === null) {
      this.build();
      this.page.watch(this);
      this.draw(this.page.now());
    }
    return this.shown;
  }

  get isOpen() {
    return this.shown !== null && this.shown.open;
  }

  build() {
    this.badge = h("span", { class: "badge" });
    this.title = h("h3", {}, this.name);
    this.model = h("span", { class: "model" });
    this.flags = h("span", { class: "flags" });
    this.sentence = h("span", { class: "sentence" });
    this.spark = new Spark();
    this.strip = new Strip();
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
      kv, cell("ttft", "TTFT p95"), this.daySpan = h("span", { class: "day-span" }, "24\u202fh"), this.strip.element);
    this.body = null; // of a row that is closed there is none
    this.state = null; // so that it is drawn
    this.shown = h("details", { class: "target", id: `target-${this.name}` }, this.summary);
    this.shown.row = this;
    this.shown.addEventListener("toggle", () => this.toggled());
  }

  /** Take in what is newest; drawing is separate, as most rows are out of sight. */
  update(data) {
    this.data = data;
    const { signals } = data;
    if (!signals || this.lines === null) return;
    this.generation.push(signals.t, summary(data).generation, this.page.span);
    for (const [label, engine] of Object.entries(signals.engines)) {
      if (!this.lines.has(label)) this.lines.set(label, new Lines());
      this.lines.get(label).push(signals.t, engine, this.page.span);
    }
    if (Object.keys(signals.engines).length) {
      for (const label of [...this.lines.keys()]) if (!(label in signals.engines)) this.lines.delete(label);
    }
  }

  /** Fetch the charts of the minutes before somebody looked; what comes meanwhile is kept. */
  async load() {
    if (this.loaded) return;
    this.loaded = true;
    this.lines ??= new Map();
    const asked = this.lines;
    const answer = await history({ target: this.name, seconds: this.page.span });
    if (asked !== this.lines) return; // nobody looks any more
    if (answer === null) { // the watcher is busy
      setTimeout(() => this.reload(), 1000 * RETRY_SECONDS);
      this.loaded = false;
      return;
    }
    this.day = answer.day;
    this.uptime = answer.uptime;
    const found = answer.engines;
    for (const [label, one] of Object.entries(found)) {
      // Of a target that is down this is what it did before.
      if (!this.lines.has(label)) this.lines.set(label, new Lines());
      this.lines.get(label).load(one);
    }
    this.generation = totalled(Object.values(found), this.generation);
    this.page.redraw(this.name);
  }

  /** What was missed while the watcher was away is in its history. */
  reload() {
    this.loaded = false;
    if (this.wanted()) this.load();
  }

  /** Another span of time is shown: what lies in it is the watcher's to tell. */
  respan() {
    this.forget();
    if (this.wanted()) this.load();
    if (this.shown !== null) this.page.redraw(this.name);
  }

  /** Does somebody look at its charts? */
  wanted() {
    return this.visible || this.isOpen || this.page.incidents.charts(this.name);
  }

  /** Let go of the lines that nobody looks at. */
  forget() {
    this.lines = null; // engine's label → Lines; null: nobody looks
    this.generation = new Line();
    this.loaded = false;
  }

  /** The cells of the last 24 hours with their incidents; null while they are not known. */
  cells(now) {
    if (outdated(this.day, now) && now > this.renewed + RENEW_SECONDS) {
      this.renewed = now;
      this.reload();
    }
    return this.day && cells(this.day, this.page.incidents.of(this.name), now);
  }

  toggled() {
    if (this.element.open && this.body === null) {
      this.body = new Body(this);
      this.element.append(this.body.element);
    } else if (!this.element.open && this.body !== null) {
      this.body.element.remove();
      this.body = null;
    }
    if (this.element.open) this.load();
    this.draw(this.page.now());
    this.page.opened(this);
  }

  draw(now) {
    const { data } = this;
    const state = shownState(data, now);
    if (this.shown === null) {
      this.state = state;
      return;
    }
    this.state = state;
    const tone = this.tone();
    if (this.badge.dataset.tone !== tone || this.badge.textContent !== state) {
      setAttribute(this.badge, "data-tone", tone);
      this.badge.replaceChildren(icon(tone), state);
    }
    this.drawFlags();
    setText(this.sentence, state === "stale" ? `No news for ${format.age(now - data.signals.t)}; it was ${data.state}: ${data.state_text}` : format.brief(data.state_text));
    setText(this.model, modelOf(data) === this.name ? "" : modelOf(data));
    const sums = state === "stale" ? {} : summary(data); // what it had then does not hold now
    setText(this.numbers.generation, format.rate("tok/s")(sums.generation));
    setText(this.numbers.running, format.count(sums.running));
    setText(this.numbers.waiting, format.count(sums.waiting));
    setText(this.numbers.kv, format.ratio(sums.kv));
    setText(this.numbers.ttft, format.tick(sums.ttft));
    this.kvBar.firstChild.style.transform = `scaleX(${Math.min(1, Math.max(0, sums.kv ?? 0))})`;
    this.spark.draw(this.generation, this.end(now), this.page.span, this.interval(), this.marksNow());
    const day = this.cells(now);
    this.strip.draw(day);
    this.daySpan.hidden = !this.strip.told;
    setAttribute(this.strip.element, "hidden", this.strip.told ? null : "");
    this.body?.draw(now, day);
  }

  /** Where its charts end: at its last look. */
  end(now) {
    return this.data.signals?.t ?? now;
  }

  /** What its charts show: the time that they end at, their span, how far apart points lie, what values are taken over. */
  view(now, label) {
    const zoom = this.page.spans.zoomOf(this.name);
    const shown = zoom === null ? { t: this.end(now), span: this.page.span } : { t: zoom.to, span: zoom.to - zoom.from, frozen: true };
    return { ...shown, old: isOld(this.data, this.data.signals?.engines[label]), ring: this.page.span, interval: this.interval(), windowSeconds: this.page.watcher.window_seconds, pinned: this.page.spans.pinnedOf(this.name) };
  }

  marksNow() {
    return this.page.incidents.of(this.name).map(markOf);
  }

  /** The tone of its state; of one that incidents tell of, no worse than theirs. */
  tone() {
    const tone = toneOf(this.state);
    const told = this.page.incidents.urgentOf(this.name).filter((incident) => stateOf(incident) === this.state);
    return tone === "bad" && told.length > 0 && told.every(({ severity }) => severity !== "page") ? "warn" : tone;
  }

  /** What is open of it; drawn out of sight too, as it decides the row's place and can be searched for. */
  drawFlags() {
    if (this.shown === null) return;
    const open = this.page.incidents.openOf(this.name);
    setAttribute(this.shown, "data-tone", worse(this.tone(), open));
    keyed(this.flags, open, ({ id }) => id, () => h("span", { class: "flag" }), (flag, incident) => {
      const title = incident.title + (incident.engine === null || Object.keys(this.data.signals?.engines ?? {}).length < 2 ? "" : `, engine ${incident.engine}`);
      const { tone, sign } = standingOf(incident);
      const text = isRecovering(incident) ? `recovering: ${title}` : title;
      if (flag.textContent === text && flag.dataset.tone === tone) return;
      setAttribute(flag, "data-tone", tone);
      flag.replaceChildren(icon(sign), text);
    });
  }

  /** All that a search may be for. */
  words() {
    const { name, group, namespace, pod, node } = this.data;
    const open = this.page.incidents.openOf(this.name).map(({ title }) => title);
    return [name, group, namespace, pod, node, modelOf(this.data), ...open, this.state].join(" ").toLowerCase();
  }

  /** How far apart two points of a chart lie: looks, or the steps of the watcher's history. */
  interval() {
    return Math.max(this.data.interval_seconds, this.page.span / 120);
  }
}

/** What an opened row shows. It is made when the row is opened, and goes when it is closed. */
class Body {
  constructor(row) {
    this.row = row;
    this.callout = h("p", { class: "callout", hidden: "" });
    this.cases = h("div", { class: "cases" });
    this.day = new Day(row.page, row.name);
    this.uptime = h("p", { class: "uptime" });
    this.witnesses = new Witnesses();
    this.links = new Links();
    this.identity = h("dl", { class: "facts identity" });
    this.engineList = h("div", { class: "engines" });
    this.sources = h("tbody");
    this.blind = h("ul", { class: "blind", hidden: "" });
    this.plan = new Plan(row.page, row.name);
    this.planTitle = h("h4", {}, "Restarts");
    this.planFacts = h("dl", { class: "facts" });
    this.advice = h("ul", { class: "blind advice", hidden: "" });
    this.element = h("div", { class: "target-body" }, this.callout, this.cases, this.day.element, this.uptime, this.blind,
      h("h4", {}, "Each source"), this.witnesses.element, this.engineList, this.advice,
      this.planTitle, this.plan.element, this.planFacts, h("h4", {}, "Recording"), new Recording(row.name).element,
      h("h4", {}, "Identity"), this.links.element, this.identity, h("h4", {}, "Scrape sources"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Scrape sources of ${row.name}` }, h("table", { class: "sources" },
        h("thead", {}, h("tr", {}, ...["source", "last result", "last success", "duration", "calls", "failures"].map((t) => h("th", { scope: "col" }, t)))),
        this.sources)));
  }

  draw(now, day) {
    const { data } = this.row;
    const { signals } = data;
    this.day.draw(day);
    setText(this.uptime, uptimeOf(this.row.uptime));
    this.callout.hidden = !signals?.why_not || data.state_text.startsWith(signals.why_not); // its row says it
    setText(this.callout, signals?.why_not ?? "");
    this.drawCases(now);
    this.drawBlind(data);
    this.drawAdvice(data);
    this.witnesses.draw(data, null, now);
    this.drawEngines(signals, now);
    const { restart } = data;
    this.planTitle.hidden = !restart || restart.mode === "off";
    this.planFacts.hidden = this.planTitle.hidden;
    this.plan.draw(this.planTitle.hidden ? null : restart, null, now);
    facts(this.planFacts, this.planTitle.hidden ? [] : planFacts(restart, now));
    this.links.draw(this.row.page, this.row.name, null, now);
    facts(this.identity, identityOf(data, now));
    this.drawSources(data, now);
  }

  /** Its open incidents, unless a card on top tells them already. */
  drawCases(now) {
    const { page, name } = this.row;
    const open = page.incidents.openOf(name).filter(({ id }) => !page.incidents.hasCard(id));
    keyed(this.cases, open, ({ id }) => id, (incident) => {
      const card = new Card(incident, page, { where: "in-row-" });
      card.evidence.open = true;
      return card;
    }, (card, incident) => card.draw(incident, now, page.incidents));
  }

  /** An engine that is seen no more keeps its charts while its target shows none: they show the fall. */
  drawEngines(signals, now) {
    const { row } = this;
    const { lines } = row;
    const labels = [...(lines?.keys() ?? Object.keys(signals?.engines ?? {}))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const marks = row.marksNow();
    keyed(this.engineList, labels, (label) => label, (label) => new Engine(label, (t) => row.page.spans.pin(row.name, t), (from, to) => row.page.spans.zoom(row.name, from, to)),
      (engine, label) => engine.draw(signals?.engines[label] ?? null, lines?.get(label) ?? null, {
        ...row.view(now, label), now, still: isStill(row.data, signals?.engines[label]), alone: labels.length === 1,
        marks: marks.filter((mark) => mark.engine === null || mark.engine === label) }));
  }

  /** What cannot be judged here, and what only in part: nobody should take silence for health. */
  drawBlind({ detectors }) {
    const lines = Object.entries(detectors ?? {}).filter(([, { state }]) => state === "blind" || state === "partly")
      .sort(([, a], [, b]) => a.state.localeCompare(b.state)); // blind first
    this.blind.hidden = !lines.length;
    keyed(this.blind, lines, ([slug]) => slug, () => ({ element: h("li") }), ({ element }, [slug, { state, text }]) => {
      setAttribute(element, "data-tone", state === "blind" ? "warn" : "quiet");
      setText(element, `${state === "blind" ? "No" : "Limited"} detection of ${slug}: ${text.replaceAll("`", "")}`);
    });
  }

  /** What could be set better: no alarm, so it stands below the engines. */
  drawAdvice({ advice, signals }) {
    const lines = advice ?? [];
    const alone = Object.keys(signals?.engines ?? {}).length < 2;
    this.advice.hidden = !lines.length;
    keyed(this.advice, lines, ({ rule, engine }) => `${rule} ${engine}`, () => ({ element: h("li") }), ({ element }, { engine, flag, value, text, why }) => {
      setAttribute(element, "data-tone", "quiet");
      setText(element, `advice${alone ? "" : ` for engine ${engine}`}: ${text} → ${[flag, value].filter(Boolean).join(" ")}: ${why}`);
    });
  }

  drawSources({ sources }, now) {
    keyed(this.sources, Object.entries(sources), ([name]) => name,
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
          format.seconds(source.duration_seconds), `${format.count(source.calls)}×`, failed.join(" · ") || "none",
        ];
        texts.forEach((text, i) => setText(cells[i], text));
      });
  }
}

/** The tone of a row: that of its state, or of its worst open incident. */
function worse(tone, [incident]) {
  const ranks = ["bad", "warn", "info", "good", "quiet"];
  const told = incident && incident.severity !== "info" ? standingOf(incident).tone : "quiet";
  return ranks.indexOf(told) < ranks.indexOf(tone) ? told : tone;
}

function identityOf(data, now) {
  const { signals } = data;
  const rows = [
    ["Address", data.url], ["Group", data.group], ["Namespace", data.namespace], ["Pod", data.pod], ["Node", data.node],
    ["vLLM", [signals?.version, signals?.engine_kind].filter(Boolean).join(", engine ")],
    ["Scraped", `every ${format.seconds(data.interval_seconds)}${signals ? `, ${format.ago(now - signals.t)}` : ", not yet"}`],
  ].filter(([title, text]) => text || title === "vLLM").map(([title, text]) => [title, format.text(text)]);
  if (!signals) return rows;
  return [...rows,
    ["/health", signals.health_status === null ? format.UNKNOWN : `HTTP ${signals.health_status}`],
    ["Process uptime", !signals.up || signals.process_start_time === null ? format.UNKNOWN : format.age(now - signals.process_start_time)],
    ["Open file descriptors", format.count(signals.process_open_fds)],
    ...(signals.unknown_families.length ? [["Unknown metrics", signals.unknown_families.join(", ")]] : []),
  ];
}

/** The engines' generation added up at each moment, continued by what came live. */
function totalled(histories, live) {
  const sums = new Map();
  for (const { t, series } of histories) {
    t.forEach((time, i) => {
      const value = series.current_generation_tokens_per_second[i];
      const before = sums.get(time) ?? null;
      sums.set(time, value === null ? before : (before ?? 0) + value);
    });
  }
  const times = [...sums.keys()].sort((a, b) => a - b);
  return Line.joined(times, times.map((t) => sums.get(t)), live);
}
