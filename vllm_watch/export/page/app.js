// The page: takes in what the watcher tells and decides what the reader sees first.

import { Clock } from "./clock.js";
import { drawKey } from "./day.js";
import { h, icon, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import * as gpus from "./gpus.js";
import { Incidents } from "./incidents.js";
import { List, WELL } from "./list.js";
import { Live } from "./live.js";
import { ask, follow, isOpen } from "./people.js";
import { Restarts } from "./restarts.js";
import { Heard, say } from "./say.js";
import { Spans } from "./spans.js";
import { Target } from "./target.js";
import { cutOff, verdict } from "./verdict.js";
import { troubles, Watcher } from "./watcher.js";
import { learn, OF_THE_WATCHER, resolutionOf, severityOf, shownState } from "./words.js";

const OPEN_UP_TO = 2; // so few targets are shown opened: there is room, and nothing to choose from
const HIDDEN_MS = 1000; // a tab in the background still says on its title what is wrong
const HELD_MS = 2000; // a button that is held for longer is no click
const RELOAD_MS = 60000; // a page that has just loaded itself anew does not do so again: behind a balancer two versions may take turns

const PAUSE = { path: "api/v1/pause", title: "Pause all restarts?", text: "No target of this watcher is restarted, not even by hand, until the time is up or someone resumes.", reason: true, minutes: null, act: "Pause" };
const RESUME = { path: "api/v1/resume", title: "Resume restarts?", text: "The pause ends, and a restart that did not help may be retried.", reason: "optional", act: "Resume" };

const $ = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.incidents = new Incidents(this);
    this.list = new List(this);
    this.targets = this.list.rows;
    this.heard = new Heard();
    this.health = new Watcher($("watcher"), this);
    this.restarts = new Restarts($("done"), this);
    this.gpus = null;
    this.watcher = null;
    this.version = null; // the digest of the files that this page was made of
    this.spans = new Spans(this);
    this.clock = new Clock();
    this.connection = "connecting";
    this.heldSince = null; // when a pointer's button went down, by our own steady clock
    this.updated = null; // when news came last, by our own steady clock
    this.before = { text: "Loading …", count: 0 }; // the last verdict
    this.changed = new Set(); // targets with new results
    this.told = new Set(); // targets with news of incidents
    this.sight = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "200px" });
    this.listen();
    this.live = new Live({
      status: (whole, incidents) => this.status(whole, incidents),
      target: (target) => this.target(target),
      gone: (name) => this.gone(name),
      incident: (incident) => this.incident(incident),
      gpus: (reading) => this.news(() => { this.gpus = reading; }),
      watcher: (itself) => this.itself(itself),
      connection: (state) => this.connected(state),
    });
    setInterval(() => this.tick(), 1000);
  }

  listen() {
    $("restarts-pause").addEventListener("click", () => ask(this, PAUSE));
    $("restarts-resume").addEventListener("click", () => ask(this, RESUME));
    $("zoom-out").addEventListener("click", () => this.spans.zoom(this.spans.zoomed.name, null));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", () => { this.heldSince = performance.now(); }, true);
    for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { this.heldSince = null; }, true);
    document.addEventListener("visibilitychange", () => this.schedule());
    window.addEventListener("hashchange", () => this.follow());
    drawKey($("day-key"));
    window.addEventListener("beforeprint", () => {
      for (const row of this.targets.values()) row.draw(this.now()); // also those out of sight
    });
  }

  now() {
    return this.clock.now();
  }

  /** How many seconds charts show. */
  get span() {
    return this.spans.seconds;
  }

  /** Is a click under way? What is drawn anew or moves beneath it then would lose it. */
  held() {
    return this.heldSince !== null && performance.now() - this.heldSince < HELD_MS;
  }

  news(apply) {
    this.updated = performance.now();
    apply();
    this.schedule();
  }

  /** The watcher itself: its clock, its health, and whether it is another version than this page. */
  itself(watcher) {
    this.clock.set(watcher.t);
    this.watcher = this.watcher && { ...this.watcher, ...watcher };
    this.version ??= watcher.page;
    if (watcher.page !== this.version) this.renew();
    this.news(() => undefined);
  }

  /** Load itself anew: the watcher was upgraded. Not while somebody writes, and not again and again. */
  renew() {
    const writing = this.held() || isOpen() || document.activeElement === $("search");
    const again = performance.getEntriesByType("navigation")[0]?.type === "reload" && performance.now() < RELOAD_MS;
    if (!writing && !again) location.reload();
  }

  status(whole, incidents) {
    this.news(() => {
      const first = this.watcher === null;
      this.incidents.take(incidents);
      if (first) this.heard.begin(this.incidents.open);
      this.watcher = whole;
      learn(whole);
      this.spans.offer(whole.history_spans);
      this.clock.set(whole.t);
      this.gpus = whole.gpus;
      const names = new Set(whole.targets.map(({ name }) => name));
      for (const name of [...this.targets.keys()]) if (!names.has(name)) this.gone(name);
      for (const target of whole.targets) {
        this.target(target);
        this.told.add(target.name);
      }
      for (const row of this.targets.values()) row.reload();
      if (first && this.targets.size <= OPEN_UP_TO) for (const row of this.targets.values()) row.unasked = row.element.open = true;
      this.following = first; // once, when all is drawn
    });
  }

  target(data) {
    this.news(() => {
      const row = this.targets.get(data.name);
      if (row) row.update(data);
      else this.add(data);
      this.changed.add(data.name);
    });
  }

  add(data) {
    this.list.add(new Target(data, this));
  }

  /** Learn when a row comes into sight. */
  watch(row) {
    this.sight.observe(row.shown);
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
    const focused = row.shown?.contains(document.activeElement) ?? false;
    if (row.shown !== null) {
      this.sight.unobserve(row.shown);
      row.shown.remove();
    }
    this.list.remove(name);
    if (focused) $("targets").focus({ preventScroll: true });
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
    const named = this.list.sorted().map(({ name, data }) => ({ name, plan: data.restart })).filter(({ plan }) => plan && plan.mode !== "off");
    const plans = named.map(({ plan }) => plan);
    this.restarts.draw(named, now);
    $("done-link").hidden = named.length === 0;
    const paused = plans.find((plan) => plan.paused)?.paused;
    const trouble = plans.find((plan) => plan.journal_trouble)?.journal_trouble;
    const ends = paused?.until_timestamp_seconds ?? null;
    const said = [
      paused && `Restarts are paused by ${paused.actor} ${ends === null ? "until someone resumes them" : `until ${format.moment(ends, now)}`}: ${paused.reason}`,
      trouble && `Nothing is restarted: ${trouble}`,
    ].filter(Boolean).join(" · ");
    $("restarts").hidden = !said;
    setAttribute($("restarts"), "data-tone", trouble ? "bad" : "warn");
    setText($("restarts-text"), said);
    $("restarts-resume").hidden = !this.mayAsk();
    $("restarts-pause").hidden = !this.mayAsk() || plans.length === 0 || Boolean(paused);
  }

  /** A row that comes into sight gets its line; one out of sight is not drawn, and what it needs nobody for is let go. */
  seen(entries) {
    for (const { target: { row }, isIntersecting } of entries) {
      row.visible = isIntersecting;
      if (isIntersecting) {
        row.load();
        this.redraw(row.name);
      } else if (!row.wanted()) row.forget();
    }
  }

  schedule() {
    if (document.hidden) this.later ??= setTimeout(() => this.drawNow(), HIDDEN_MS);
    else this.frame ??= requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    clearTimeout(this.later);
    cancelAnimationFrame(this.frame);
    this.later = null;
    this.frame = null;
    if (this.held()) this.schedule();
    else this.draw();
  }

  redraw(name) {
    this.changed.add(name);
    this.schedule();
  }

  draw() {
    const now = this.now();
    this.incidents.draw(now); // first: a row does not tell again what a card tells
    for (const name of this.changed) {
      const row = this.targets.get(name);
      if (row && (row.visible || row.isOpen || row.state !== shownState(row.data, now))) row.draw(now);
    }
    for (const name of this.told) this.targets.get(name)?.drawFlags();
    this.changed.clear();
    this.told.clear();
    this.list.arrange();
    $("day-key").hidden = ![...this.targets.values()].some(({ strip }) => strip?.told);
    this.verdict();
    this.drawRestarts(now);
    gpus.draw($("gpu-list"), this.gpus, now);
    follow(this);
    this.tick();
    if (this.watcher) performance.mark("vllm-watch-drawn");
    if (!this.following) return;
    this.following = false;
    this.follow();
  }

  /** Is anything wrong? In one sentence, and a second that names it. */
  verdict() {
    const rows = this.list.sorted();
    const bad = rows.map((row) => ({ row, place: this.list.order(row), incident: this.list.urgent(row) })).filter(({ place }) => place < WELL).sort((a, b) => a.place - b.place);
    const host = this.incidents.urgentOf(this.watcher?.host.name);
    const known = verdict({ rows, bad, own: this.own(), gpus: gpus.troubles(this.gpus, host), host, watcher: this.watcher });
    const lost = this.connection === "lost";
    const shown = lost ? cutOff(this.before, this.silence()) : known;
    if (!lost && this.watcher) this.before = known;
    const { tone, text, more, count } = shown;
    if ($("verdict").dataset.tone !== tone || !$("verdict-icon").firstChild) $("verdict-icon").replaceChildren(icon(tone));
    setAttribute($("verdict"), "data-tone", tone);
    setText($("verdict-text"), text);
    setText($("verdict-more"), more || "\u00a0");
    const title = count || lost ? `${count ? `(${count}) ` : ""}${text} · vllm-watch` : "vllm-watch";
    if (document.title !== title) document.title = title;
    this.tell(known, lost);
  }

  /** What is wrong with the watcher itself: what it told as an incident, and what it cannot do. */
  own() {
    return [...this.incidents.activeOf(OF_THE_WATCHER).map(({ summary }) => summary), ...troubles(this.watcher)];
  }

  /** To a screen reader: the verdict once, then what is new. */
  tell({ text, more }, lost) {
    if (this.watcher === null) return;
    if (!this.greeted) say(`${text}${/[.!?]$/.test(text) ? "" : "."} ${more}`);
    this.greeted = true;
    if (lost !== Boolean(this.toldLost)) say(lost ? "Disconnected from the watcher." : "Connected to the watcher again.");
    this.toldLost = lost;
    this.heard.follow(this.incidents.open, (incident) => `${severityOf(incident).word}: ${nameOf(incident)} ${incident.says}.`, (id) => {
      const ended = this.incidents.known.get(id);
      return ended && `${nameOf(ended)}: ended, ${resolutionOf(ended)}.`;
    });
  }

  connected(state) {
    if (this.connection === state) return;
    this.connection = state;
    document.body.classList.toggle("lost", state === "lost");
    this.schedule();
  }

  silence() {
    return this.updated === null ? null : (performance.now() - this.updated) / 1000;
  }

  /** Everything that ages by itself. */
  tick() {
    if (document.hidden || this.held()) return;
    const now = this.now();
    const silence = this.silence();
    setAttribute($("live"), "data-state", this.connection);
    const told = silence === null ? "" : ` · updated ${format.ago(silence)}`;
    setText($("live-text"), { live: `live${told}`, polled: `asked every 10\u202fs${told}`, lost: `disconnected${told}`, connecting: "connecting" }[this.connection]);
    if (this.connection === "lost") setText($("verdict-more"), cutOff(this.before, silence).more);
    setText($("gpus-note"), gpus.note(this.gpus, now));
    if (this.watcher) setText($("about"), `vllm-watch ${this.watcher.version}. Latencies and rates of requests are over the last ${format.age(this.watcher.window_seconds)}. Times are ${format.zone(this.now())}.`);
    this.health.draw({ watcher: this.watcher, rows: this.list.sorted(), lost: this.connection === "lost", silence, skew: this.clock.ahead(), own: this.incidents.activeOf(OF_THE_WATCHER).map(({ summary }) => summary), now });
    this.incidents.tick(now);
    for (const row of this.targets.values()) {
      if (row.state !== shownState(row.data, now) || row.state === "stale" || (row.isOpen && row.visible)) {
        const before = row.state;
        row.draw(now);
        if (row.state !== before) this.schedule();
      }
    }
  }

  /** A target that somebody opened can be linked to. */
  opened(row) {
    const { unasked } = row; // opened by the page, which holds few
    row.unasked = false;
    if (row.element.open && !unasked) history.replaceState(null, "", this.spans.place(row.name));
  }

  /** Go to what the address names: a target, a moment of it, an incident. */
  follow() {
    const place = decoded(location.hash.slice(1));
    if (place.startsWith("incident-")) this.incidents.show(place.slice("incident-".length), this.now());
    else if (place.startsWith("target-host:")) $("gpus").scrollIntoView();
    else if (place === `target-${OF_THE_WATCHER}`) $("incidents").scrollIntoView();
    else if (place.startsWith("target-")) {
      const [, name, t, to] = /^target-(.+?)(?:@(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?)?$/.exec(place) ?? [];
      if (to !== undefined && Number(to) > Number(t)) this.spans.pointSpan(name, Number(t), Number(to), this.now());
      else if (t !== undefined) this.spans.point(name, Number(t), this.now());
      this.show(name);
    }
  }

  /** A link to a target's row. */
  linkTo(name, className) {
    const link = h("a", { class: className, href: `#${encodeURIComponent(`target-${name}`)}` }, name);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      this.show(name);
    });
    return link;
  }

  /** Bring a target into view, opened. */
  show(name) {
    const row = this.targets.get(name);
    if (!row) return;
    this.list.widen();
    row.element.open = true;
    this.list.arrange();
    row.summary.focus({ preventScroll: true });
    row.element.scrollIntoView({ block: "start" });
  }

  key(event) {
    const typing = event.target.matches("input, textarea");
    if (event.key === "/" && !typing && !$("search-label").hidden) {
      event.preventDefault();
      $("search").focus();
    }
    if (event.key === "Escape" && event.target === $("search")) {
      $("search").value = "";
      this.list.arrange();
    }
  }
}

/** What an address says; what nobody can decode says nothing. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

const nameOf = ({ target }) => (target === OF_THE_WATCHER ? "The watcher" : target);

export const page = new Page();
