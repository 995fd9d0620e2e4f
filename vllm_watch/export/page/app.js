// The page: takes in what the watcher tells and decides what the reader sees first.

import { arrange, h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import * as gpus from "./gpus.js";
import { Incidents } from "./incidents.js";
import { Live } from "./live.js";
import { ask } from "./people.js";
import { Target } from "./target.js";
import { incidentSays, needsAttention, rankOf, severityOf, shownState, toneOf } from "./words.js";

const OPEN_UP_TO = 2; // so few targets are shown opened: there is room, and nothing to choose from
const SEARCH_FROM = 7; // fewer are seen at a glance
const ROWS_AT_FIRST = 60; // of those that are well; the others are all shown
const WELL = 100; // the place of a row that needs nobody

const PAUSE = { path: "api/v1/pause", title: "Pause all restarts?", text: "Nothing that this watcher watches is restarted, a person's wish included, until the time is over or somebody resumes.", reason: true, minutes: null, act: "Pause" };
const RESUME = { path: "api/v1/resume", title: "Resume restarts?", text: "The pause ends, and what did not help may be tried again.", reason: "optional", act: "Resume" };

const $ = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.targets = new Map();
    this.incidents = new Incidents(this);
    this.gpus = null;
    this.watcher = null;
    this.span = 600;
    this.offset = 0; // the watcher's clock minus ours, seconds
    this.connection = "connecting";
    this.updated = null; // when news came last, by our own steady clock
    this.filter = null;
    this.all = false;
    this.changed = new Set(); // targets with new results
    this.told = new Set(); // targets with news of incidents
    this.sight = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "200px" });
    $("search").addEventListener("input", () => this.arrange());
    $("more").addEventListener("click", () => {
      this.all = true;
      this.arrange();
    });
    $("restarts-pause").addEventListener("click", () => ask(this, PAUSE));
    $("restarts-resume").addEventListener("click", () => ask(this, RESUME));
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("hashchange", () => this.follow());
    this.live = new Live({
      status: (whole, incidents) => this.status(whole, incidents),
      target: (target) => this.target(target),
      gone: (name) => this.gone(name),
      incident: (incident) => this.incident(incident),
      gpus: (reading) => this.news(() => { this.gpus = reading; }),
      clock: (t) => { this.offset = t - Date.now() / 1000; },
      connection: (state) => this.connected(state),
    });
    setInterval(() => this.tick(), 1000);
  }

  now() {
    return Date.now() / 1000 + this.offset;
  }

  announce(text) {
    $("announce").textContent = text;
  }

  news(apply) {
    this.updated = performance.now();
    apply();
    this.schedule();
  }

  status(whole, incidents) {
    this.news(() => {
      this.incidents.take(incidents);
      this.watcher = whole;
      this.span = whole.history_seconds;
      this.offset = whole.t - Date.now() / 1000;
      this.gpus = whole.gpus;
      const names = new Set(whole.targets.map(({ name }) => name));
      for (const name of [...this.targets.keys()]) if (!names.has(name)) this.gone(name);
      for (const target of whole.targets) {
        this.target(target);
        this.told.add(target.name);
      }
      // What was missed while we were away is in the watcher's history.
      for (const row of this.targets.values()) row.loaded = false;
      const first = this.first !== false;
      this.first = false;
      if (first && this.targets.size <= OPEN_UP_TO) for (const row of this.targets.values()) row.element.open = true;
      for (const row of this.targets.values()) if (row.visible || row.element.open) row.load();
      this.follow();
    });
  }

  target(data) {
    this.news(() => {
      const row = this.targets.get(data.name);
      if (row) row.update(data);
      else {
        const made = new Target(data, this);
        this.targets.set(data.name, made);
        made.element.row = made;
        this.sight.observe(made.element);
      }
      this.changed.add(data.name);
    });
  }

  incident(incident) {
    this.news(() => {
      this.incidents.one(incident);
      this.changed.add(incident.target);
      this.told.add(incident.target);
    });
  }

  gone(name) {
    const row = this.targets.get(name);
    if (!row) return;
    this.sight.unobserve(row.element);
    this.targets.delete(name);
    this.news(() => undefined);
  }

  /** What is planned for a target's restarts; null where they are off. */
  planOf(name) {
    return this.targets.get(name)?.data.restart ?? null;
  }

  /** Are there tokens, and so ways for people to change something? */
  mayAsk() {
    return this.watcher?.restarts?.people ?? false;
  }

  /** What holds for every restart: a pause, or a journal that cannot be written. */
  drawRestarts(now) {
    const plans = [...this.targets.values()].map(({ data }) => data.restart).filter((plan) => plan && plan.mode !== "off");
    const paused = plans.find((plan) => plan.paused)?.paused;
    const trouble = plans.find((plan) => plan.journal_trouble)?.journal_trouble;
    const ends = paused?.until_timestamp_seconds ?? null;
    const said = [
      paused && `Restarts are paused by ${paused.actor} ${ends === null ? "until somebody resumes" : `until ${format.moment(ends, now)}`}: ${paused.reason}`,
      trouble && `Nothing is restarted: ${trouble}`,
    ].filter(Boolean).join(" · ");
    $("restarts").hidden = !said;
    setAttribute($("restarts"), "data-tone", trouble ? "bad" : "warn");
    setText($("restarts-text"), said);
    $("restarts-resume").hidden = !this.mayAsk();
    $("restarts-pause").hidden = !this.mayAsk() || plans.length === 0 || Boolean(paused);
  }

  /** A row that comes into sight gets its line; one out of sight is not drawn. */
  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      target.row.visible = isIntersecting;
      if (!isIntersecting) continue;
      target.row.load();
      target.row.draw(this.now());
    }
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    const now = this.now();
    for (const name of this.changed) {
      const row = this.targets.get(name);
      if (row && (row.visible || row.element.open || row.state !== shownState(row.data, now))) row.draw(now);
    }
    for (const name of this.told) this.targets.get(name)?.drawFlags();
    this.changed.clear();
    this.told.clear();
    this.arrange();
    this.incidents.draw(now);
    this.verdict();
    this.drawRestarts(now);
    gpus.draw($("gpu-list"), this.gpus, now);
    this.tick();
  }

  /** Those that need someone first, the worst on top; the rest by name, so that rows do not jump about. */
  arrange() {
    const places = new Map([...this.targets.values()].map((row) => [row, this.order(row)]));
    const rows = [...places.keys()].sort((a, b) => places.get(a) - places.get(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => (this.filter === null || row.state === this.filter) && words.every((word) => textOf(row).includes(word)));
    const shown = this.all ? found : found.filter((row, i) => i < ROWS_AT_FIRST || places.get(row) < WELL || row.element.open);
    arrange($("list"), shown.map((row) => row.element));
    const hidden = found.length - shown.length;
    $("more").hidden = hidden === 0;
    setText($("more"), `Show ${hidden} more that are well`);
    $("empty").hidden = found.length > 0 || this.watcher === null;
    setText($("empty"), this.targets.size ? "No target matches." : "No target is watched. Start with --target http://HOST:8000, or name them in the configuration.");
    $("columns-head").hidden = shown.length === 0;
    $("search-label").hidden = this.targets.size < SEARCH_FROM;
    this.drawFilters(rows);
  }

  drawFilters(rows) {
    const counts = new Map();
    for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    if (this.filter !== null && !counts.has(this.filter)) counts.set(this.filter, 0);
    const states = [...counts].sort((a, b) => rankOf(a[0]) - rankOf(b[0]));
    const items = states.length > 1 || this.filter !== null ? [[null, rows.length], ...states] : [];
    keyed($("filters"), items, ([state]) => state ?? "all",
      ([state]) => {
        const number = h("span", { class: "filter-count" });
        const element = h("button", { type: "button", class: "filter", "data-tone": state === null ? "quiet" : toneOf(state) },
          ...(state === null ? [] : [icon(toneOf(state))]), state ?? "all", " ", number);
        element.addEventListener("click", () => {
          this.filter = this.filter === state ? null : state;
          this.arrange();
        });
        return { element, number };
      },
      ({ element, number }, [state, times]) => {
        setText(number, String(times));
        setAttribute(element, "aria-pressed", String(this.filter === state));
      });
  }

  /** Is anything wrong? In one sentence, and a second that names it. */
  verdict() {
    const rows = [...this.targets.values()];
    const bad = rows.map((row) => ({ row, place: this.order(row), incident: this.urgent(row) })).filter(({ place }) => place < WELL).sort((a, b) => a.place - b.place);
    const gpuTroubles = gpus.troubles(this.gpus);
    const [tone, text, more] = this.connection === "lost" ? ["warn", "Disconnected from the watcher", "What you see is what was last known. Trying to connect again."] : sentence(rows, bad, gpuTroubles, this.watcher);
    if ($("verdict").dataset.tone !== tone || !$("verdict-icon").firstChild) $("verdict-icon").replaceChildren(icon(tone));
    setAttribute($("verdict"), "data-tone", tone);
    const said = bad.length ? `${text}: ${more}` : text;
    if (this.said !== said && this.watcher) this.announce(said);
    this.said = said;
    setText($("verdict-text"), text);
    setText($("verdict-more"), more || "\u00a0");
    document.title = bad.length || gpuTroubles.length ? `(${bad.length + gpuTroubles.length}) ${text} · vllm-watch` : "vllm-watch";
  }

  connected(state) {
    if (this.connection === state) return;
    this.connection = state;
    document.body.classList.toggle("lost", state === "lost");
    this.schedule();
  }

  /** Everything that ages by itself. */
  tick() {
    const now = this.now();
    const silence = this.updated === null ? null : (performance.now() - this.updated) / 1000;
    setAttribute($("live"), "data-state", this.connection);
    const told = silence === null ? "" : ` · updated ${format.ago(silence)}`;
    setText($("live-text"), { live: `live${told}`, lost: `disconnected${told}`, connecting: "connecting" }[this.connection]);
    setText($("gpus-note"), gpus.note(this.gpus, now));
    if (this.watcher) {
      const up = this.watcher.uptime_seconds + now - this.watcher.t;
      setText($("about"), `vllm-watch ${this.watcher.version}, up ${format.age(up)}. Rates and percentiles are over the last ${format.age(this.watcher.window_seconds)}.`);
    }
    this.incidents.tick(now);
    for (const row of this.targets.values()) {
      if (row.state !== shownState(row.data, now) || row.state === "stale" || (row.element.open && row.visible)) {
        const before = row.state;
        row.draw(now);
        if (row.state !== before) this.schedule();
      }
    }
  }

  /** An opened target can be linked to. */
  opened(row) {
    if (row.element.open) history.replaceState(null, "", `#${encodeURIComponent(row.element.id)}`);
  }

  follow() {
    const element = $(decodeURIComponent(location.hash.slice(1)));
    if (element?.row) element.open = true;
  }

  /** Bring a target into view, opened. */
  show(name) {
    const row = this.targets.get(name);
    if (!row) return;
    this.filter = null;
    $("search").value = "";
    row.element.open = true;
    this.arrange();
    row.summary.focus({ preventScroll: true });
    row.element.scrollIntoView({ block: "start" });
  }

  /** The most urgent open incident of a row that someone should see to, or undefined. */
  urgent(row) {
    return this.incidents.openOf(row.name).find(({ severity }) => severity !== "info");
  }

  /** The place of a row: what pages, then states that need someone, then tickets; then the others. */
  order(row) {
    const incident = this.urgent(row);
    const state = needsAttention(row.state) ? rankOf(row.state) : WELL;
    if (incident) return severityOf(incident).rank === 0 ? state - 2 * WELL : Math.min(state, WELL - 1);
    return state;
  }

  key(event) {
    const typing = event.target.matches("input, textarea");
    if (event.key === "/" && !typing && !$("search-label").hidden) {
      event.preventDefault();
      $("search").focus();
    }
    if (event.key === "Escape" && event.target === $("search")) {
      $("search").value = "";
      this.arrange();
    }
  }
}

const textOf = ({ data, model, flags, state }) => [data.name, data.group, data.namespace, data.pod, data.node, model.textContent, flags.textContent, state].join(" ").toLowerCase();

function sentence(rows, bad, gpuTroubles, watcher) {
  if (!watcher) return ["quiet", "Looking …", ""];
  const more = [...gpuTroubles, ...bad.slice(0, 3).map(({ row, incident }) => `${row.name} ${incident ? incidentSays(incident) : `is ${row.state}`}`)];
  if (bad.length > 3) more.push(`${bad.length - 3} more`);
  const tone = gpuTroubles.length || bad.some(({ row, incident }) => toneOf(row.state) === "bad" || incident?.severity === "page") ? "bad" : "warn";
  if (bad.length) {
    const who = rows.length === 1 ? `${bad[0].row.name} needs attention` : `${bad.length} of ${rows.length} targets ${bad.length === 1 ? "needs" : "need"} attention`;
    return [tone, who, `${more.join(" · ")}.`];
  }
  if (gpuTroubles.length) return [tone, "A GPU needs attention", `${gpuTroubles.join(" · ")}.`];
  if (rows.length === 0) return ["quiet", "Nothing is watched", ""];
  const pending = rows.filter((row) => row.state === "waiting" || row.state === "starting");
  if (pending.length) {
    const words = pending.length === 1 ? `${pending[0].name} is ${pending[0].state === "starting" ? "starting" : "not looked at yet"}.` : `${pending.length} of ${rows.length} are starting or not looked at yet.`;
    return [pending.length === rows.length ? "info" : "good", pending.length === rows.length ? "Waiting for the first results" : "No target needs attention", words];
  }
  return ["good", rows.length === 1 ? `${rows[0].name} is well` : `All ${rows.length} targets are well`, wellWords(rows)];
}

function wellWords(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  if (rows.length === 1) return rows[0].data.state_text;
  return `${[...counts].map(([state, times]) => `${times} ${state}`).join(", ")}.`;
}

export const page = new Page();
