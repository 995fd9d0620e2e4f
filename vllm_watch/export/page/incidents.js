// What is wrong: a card for each open incident or storm of them, and a short history of those that ended.

import { lasted } from "./before.js";
import { Card } from "./card.js";
import { arrange, h, icon, keyed, setText } from "./dom.js";
import * as format from "./format.js";
import { Past } from "./past.js";
import { parted, Storm } from "./storm.js";
import { isRecovering, OF_THE_WATCHER, rankOf, resolutionOf, severityOf, standingOf, stateOf } from "./words.js";

const CARDS_AT_FIRST = 8; // more are for who asks
const UNFOLDED_AT_MOST = 3; // cards whose evidence is shown without asking
const HISTORY_AT_FIRST = 6;
const KEPT = 200; // as many as the watcher keeps

const $ = (id) => document.getElementById(id);
const openedAt = ({ opened_timestamp_seconds: t, updated_timestamp_seconds: told }) => t ?? told;

/** As the headline: what wakes people first, of that the worst state, of that the newest; what recovers comes last. */
const byUrgency = (a, b) => standingOf(a).rank - standingOf(b).rank || rankOf(stateOf(a)) - rankOf(stateOf(b)) || openedAt(b) - openedAt(a) || (a.id < b.id ? -1 : 1);

export class Incidents {
  constructor(page) {
    this.page = page;
    this.known = new Map(); // by id
    this.index();
    this.cards = new Map();
    this.storms = new Map();
    for (const [button, flag] of [["incidents-more", "all"], ["history-more", "allEnded"]]) {
      $(button).addEventListener("click", () => {
        this[flag] = true;
        this.draw(page.now());
      });
    }
  }

  /** Take in all of them, in place of what was known. */
  take(all) {
    this.known = new Map(all.map((incident) => [incident.id, incident]));
    this.index();
  }

  /** Take in one that was opened, changed or ended. */
  one(incident) {
    this.known.delete(incident.id);
    this.known.set(incident.id, incident);
    this.index();
  }

  index() {
    const all = [...this.known.values()];
    this.open = all.filter(({ state }) => state === "open").sort(byUrgency);
    this.ended = all.filter(({ state }) => state !== "open").sort((a, b) => b.resolved_timestamp_seconds - a.resolved_timestamp_seconds);
    for (const old of this.ended.splice(KEPT)) this.known.delete(old.id);
    this.byTarget = new Map();
    for (const incident of [...this.open, ...this.ended]) {
      if (!this.byTarget.has(incident.target)) this.byTarget.set(incident.target, []);
      this.byTarget.get(incident.target).push(incident);
    }
  }

  /** Those of a target that are so now, the most urgent first. */
  activeOf(target) {
    return this.openOf(target).filter((incident) => !isRecovering(incident));
  }

  /** Those of a target that someone should see to, the most urgent first. */
  urgentOf(target) {
    return this.activeOf(target).filter(({ severity }) => severity !== "info");
  }

  /** The open ones of a target, the most urgent first. */
  openOf(target) {
    return this.of(target).filter(({ state }) => state === "open");
  }

  /** Those of a target, open ones first. */
  of(target) {
    return this.byTarget.get(target) ?? [];
  }

  draw(now) {
    const [storms, single] = parted(this.open);
    const shown = this.all ? single : single.slice(0, CARDS_AT_FIRST);
    this.keep(new Set(shown.map(({ id }) => id)), new Set(storms.map(({ key }) => key)));
    let unfolded = [...this.cards.values()].filter((card) => card.evidence.open).length;
    for (const incident of shown) {
      if (!this.cards.has(incident.id)) {
        const card = new Card(incident, this.page);
        card.evidence.open = (incident.severity === "page" || this.open.length === 1) && !isRecovering(incident) && unfolded < UNFOLDED_AT_MOST;
        unfolded += card.evidence.open ? 1 : 0;
        this.cards.set(incident.id, card);
      }
      this.cards.get(incident.id).draw(incident, now, this);
    }
    for (const storm of storms) {
      if (!this.storms.has(storm.key)) this.storms.set(storm.key, new Storm(storm, this.page));
      this.storms.get(storm.key).draw(storm, now);
    }
    $("incidents").hidden = this.open.length === 0;
    $("incidents-link").hidden = this.open.length === 0;
    const recovering = this.open.filter(isRecovering).length;
    const counted = this.open.length === 1 ? "Open incident" : `${this.open.length} open incidents`;
    setText($("incidents-title"), recovering === 0 ? counted : recovering === this.open.length ? `${counted}, recovering` : `${counted}, ${recovering} recovering`);
    const placed = [...storms.map(({ key, members }) => [members[0], this.storms.get(key)]), ...shown.map((incident) => [incident, this.cards.get(incident.id)])];
    placed.sort(([a], [b]) => byUrgency(a, b));
    arrange($("incident-list"), placed.map(([, { element }]) => element));
    $("incidents-more").hidden = shown.length === single.length;
    setText($("incidents-more"), `Show ${single.length - shown.length} more open incidents`);
    this.drawHistory(now);
  }

  /** Forget the cards of what is open no more, or is told together now. */
  keep(ids, keys) {
    for (const id of this.cards.keys()) if (!ids.has(id)) this.cards.delete(id);
    for (const key of this.storms.keys()) if (!keys.has(key)) this.storms.delete(key);
  }

  /** Does a card show charts of this target? */
  charts(target) {
    return [...this.cards.values()].some((card) => card.incident.target === target && card.charted());
  }

  /** Is it told on top, by a card of its own? */
  hasCard(id) {
    return this.cards.has(id);
  }

  /** Bring an incident into view, its evidence shown, wherever it stands. */
  show(id, now) {
    const incident = this.known.get(id);
    if (!incident) return;
    this[incident.state === "open" ? "all" : "allEnded"] = true;
    this.draw(now);
    const card = this.cards.get(id);
    if (card) card.evidence.open = true;
    const storm = [...this.storms.values()].find(({ members }) => members.includes(incident));
    const past = [...($("history-list").known?.values() ?? [])].find((row) => row.element.id === `incident-${id}`);
    if (past) past.details.open = true;
    const element = card?.element ?? storm?.element ?? $(`incident-${id}`);
    element?.scrollIntoView({ block: "start" });
    element?.focus({ preventScroll: true });
  }

  drawHistory(now) {
    const shown = this.allEnded ? this.ended : this.ended.slice(0, HISTORY_AT_FIRST);
    $("history").hidden = this.ended.length === 0;
    keyed($("history-list"), shown, ({ id, resolved_timestamp_seconds: t }) => `${id} ${t}`, (incident) => new Ended(incident, this.page), (row) => row.tick(now));
    $("history-more").hidden = shown.length === this.ended.length;
    setText($("history-more"), `Show ${this.ended.length - shown.length} older`);
  }

  tick(now) {
    for (const card of [...this.cards.values(), ...this.storms.values()]) card.tick(now);
    for (const row of $("history-list").known?.values() ?? []) row.tick(now);
  }
}

/** One that ended. */
class Ended {
  constructor(incident, page) {
    const { began_timestamp_seconds: from, resolved_timestamp_seconds: closed, ended_timestamp_seconds: over, target, engine } = incident;
    const { tone, word, sign } = severityOf(incident);
    const to = over ?? closed; // when it was over; it is closed later, once that has lasted
    const span = from === null ? "" : `lasted ${format.age(to - from)}`;
    const cost = incident.requests_lost ? incident.cost.replace(/\.$/, "") : "";
    this.to = to;
    this.ago = h("span", { class: "ended-ago" });
    this.details = h("details", { class: "evidence" }, h("summary", {}, "Charts and evidence"));
    this.details.addEventListener("toggle", () => {
      if (!this.details.open || this.past) return;
      this.past = new Past(incident, page);
      this.details.append(this.past.element);
    });
    this.element = h("li", { class: "ended", id: `incident-${incident.id}`, tabindex: "-1" },
      h("span", { class: "ended-severity", "data-tone": tone, title: word }, icon(sign), h("span", { class: "sr" }, word)),
      h("div", { class: "ended-what" },
        h("p", { class: "ended-title" }, h("strong", {}, incident.title), h("span", {}, `${target === OF_THE_WATCHER ? "the watcher itself" : target}${engine === null ? "" : `, engine ${engine}`}`)),
        h("p", { class: "ended-summary" }, lasted(incident))),
      h("span", { class: "ended-resolution" }, resolutionOf(incident)),
      h("span", { class: "ended-lasted" }, [span, cost].filter(Boolean).join(", ")), this.ago, this.details);
  }

  tick(now) {
    setText(this.ago, `ended ${format.ago(now - this.to)}`);
  }
}
