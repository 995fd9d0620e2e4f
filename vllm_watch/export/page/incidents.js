// What is wrong: a card for each open incident, and a short history of those that ended.

import { arrange, h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { Plan } from "./restart.js";
import { evidenceName, incidentTitle, restartWords, RESOLUTIONS, severityOf } from "./words.js";

const CARDS_AT_FIRST = 8; // more are a storm: the list of targets tells it better
const UNFOLDED_AT_MOST = 3; // cards whose evidence is shown without asking
const HISTORY_AT_FIRST = 6;
const KEPT = 200; // as many as the watcher keeps

const $ = (id) => document.getElementById(id);
const openedAt = ({ opened_timestamp_seconds: t, updated_timestamp_seconds: told }) => t ?? told;

/** What wakes people first, and of that the newest. */
const byUrgency = (a, b) => severityOf(a).rank - severityOf(b).rank || openedAt(b) - openedAt(a) || (a.id < b.id ? -1 : 1);

export class Incidents {
  constructor(page) {
    this.page = page;
    this.known = new Map(); // by id
    this.index();
    this.cards = new Map();
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

  /** The open ones of a target, the most urgent first. */
  openOf(target) {
    return this.of(target).filter(({ state }) => state === "open");
  }

  /** Those of a target, open ones first. */
  of(target) {
    return this.byTarget.get(target) ?? [];
  }

  draw(now) {
    const shown = this.all ? this.open : this.open.slice(0, CARDS_AT_FIRST);
    for (const id of this.cards.keys()) if (this.known.get(id)?.state !== "open") this.cards.delete(id);
    let unfolded = [...this.cards.values()].filter((card) => card.evidence.open).length;
    for (const incident of shown) {
      if (this.cards.has(incident.id)) continue;
      const card = new Card(incident, this.page);
      card.evidence.open = incident.severity === "page" && unfolded < UNFOLDED_AT_MOST;
      unfolded += card.evidence.open ? 1 : 0;
      this.cards.set(incident.id, card);
    }
    for (const incident of shown) this.cards.get(incident.id).draw(incident, now, this);
    $("incidents").hidden = this.open.length === 0;
    $("incidents-link").hidden = this.open.length === 0;
    setText($("incidents-title"), this.open.length === 1 ? "Open incident" : `${this.open.length} open incidents`);
    arrange($("incident-list"), shown.map(({ id }) => this.cards.get(id).element));
    $("incidents-more").hidden = shown.length === this.open.length;
    setText($("incidents-more"), `Show ${this.open.length - shown.length} more open incidents`);
    this.drawHistory(now);
  }

  drawHistory(now) {
    const shown = this.allEnded ? this.ended : this.ended.slice(0, HISTORY_AT_FIRST);
    $("history").hidden = this.ended.length === 0;
    keyed($("history-list"), shown, ({ id, resolved_timestamp_seconds: t }) => `${id} ${t}`, (incident) => new Ended(incident), (row) => row.tick(now));
    $("history-more").hidden = shown.length === this.ended.length;
    setText($("history-more"), `Show ${this.ended.length - shown.length} older`);
  }

  tick(now) {
    for (const card of this.cards.values()) card.tick(now);
    for (const row of $("history-list").known?.values() ?? []) row.tick(now);
  }
}

class Card {
  constructor({ id, target }, page) {
    this.page = page;
    this.plan = new Plan(page, target);
    this.badge = h("span", { class: "severity" });
    this.title = h("h3", { id: `title-${id}` });
    this.who = h("a", { class: "incident-target", href: `#${encodeURIComponent(`target-${target}`)}` }, target);
    this.who.addEventListener("click", (event) => {
      event.preventDefault();
      page.show(target);
    });
    this.engine = h("span", { class: "incident-engine" });
    this.since = h("span", { class: "since" });
    this.age = h("span", { class: "age", "aria-hidden": "true" });
    this.summary = h("p", { class: "incident-summary" });
    this.count = h("span");
    this.for = new Evidence("What speaks for it", "Nothing was noted.");
    this.against = new Evidence("What speaks against it", "Nothing was found that does.");
    this.evidence = h("details", { class: "evidence" }, h("summary", {}, this.count),
      h("div", { class: "evidence-lists" }, this.for.element, this.against.element));
    this.restart = h("p", { class: "restart" });
    this.related = h("p", { class: "related" });
    this.runbook = h("code");
    this.element = h("article", { class: "incident", id: `incident-${id}`, "aria-labelledby": `title-${id}`, tabindex: "-1" },
      h("header", {}, this.badge, this.title, h("p", { class: "incident-where" }, this.who, this.engine), h("p", { class: "incident-time" }, this.age, this.since)),
      h("div", { class: "incident-body" }, this.summary, this.plan.element, this.evidence, this.related,
        h("footer", {}, this.restart, h("p", { class: "runbook" }, "Runbook ", this.runbook))));
  }

  draw(incident, now, all) {
    if (this.incident !== incident) {
      this.incident = incident;
      const { tone, word, sign, meaning } = severityOf(incident);
      setAttribute(this.badge, "title", meaning);
      setAttribute(this.element, "data-tone", tone);
      setAttribute(this.element, "data-severity", incident.severity);
      this.badge.replaceChildren(icon(sign), word);
      setText(this.title, incidentTitle(incident));
      setText(this.engine, incident.engine === null ? "" : `engine ${incident.engine}`);
      setText(this.summary, incident.summary);
      const { for: pro, against: contra } = incident.evidence;
      this.evidence.hidden = pro.length + contra.length === 0;
      setText(this.count, `Evidence as of ${format.moment(incident.updated_timestamp_seconds, now)}: ${pro.length} for, ${contra.length} against`);
      this.for.draw(pro);
      this.against.draw(contra);
      const { text, sign: hint } = restartWords(incident);
      this.restart.replaceChildren(icon(hint), text);
      setAttribute(this.restart, "data-tone", incident.restart_advised ? "info" : "quiet");
      setText(this.runbook, `docs/detectors/${incident.kind}.md`);
      setText(this.since, incident.opened_timestamp_seconds === null ? "since before the watcher started" : `since ${format.moment(incident.opened_timestamp_seconds, now)}`);
    }
    this.drawRelated(incident, all);
    this.plan.draw(this.page.planOf(incident.target), incident.id, now);
    this.tick(now);
  }

  drawRelated({ related }, all) {
    const others = related.map((id) => all.known.get(id)).filter(Boolean);
    this.related.hidden = others.length === 0;
    keyed(this.related, others, ({ id }) => id, () => h("span"),
      (element, other) => setText(element, `Belongs together with: ${incidentTitle(other)}${other.state === "open" ? "" : " (ended)"}`));
  }

  tick(now) {
    const { opened_timestamp_seconds: t } = this.incident;
    setText(this.age, t === null ? "" : format.age(now - t));
  }
}

/** One side of the evidence: each number in words, and beside it what it would be if all were well. */
class Evidence {
  constructor(title, nothing) {
    this.list = h("ul");
    this.nothing = h("p", { class: "evidence-none" }, nothing);
    this.element = h("section", {}, h("h4", {}, title), this.list, this.nothing);
  }

  draw(items) {
    this.nothing.hidden = items.length > 0;
    this.list.hidden = items.length === 0;
    keyed(this.list, items.map((item, i) => [i, item]), ([i]) => i,
      () => {
        const [text, value, expected] = ["text", "value", "expected"].map((name) => h("span", { class: `evidence-${name}` }));
        return { element: h("li", {}, text, " ", h("span", { class: "evidence-numbers" }, value, " ", expected)), text, value, expected };
      },
      ({ text, value, expected }, [, item]) => {
        setText(text, item.text || evidenceName(item.name));
        setText(value, item.value === item.text ? "" : format.unit(item.value, item.unit));
        setText(expected, item.expected === null ? "" : `expected ${format.unit(item.expected, item.unit)}`);
      });
  }
}

/** One that ended. */
class Ended {
  constructor(incident) {
    const { opened_timestamp_seconds: from, resolved_timestamp_seconds: to, target, engine, summary, resolution } = incident;
    const { tone, word, sign } = severityOf(incident);
    this.to = to;
    this.ago = h("span", { class: "ended-ago" });
    this.element = h("li", { class: "ended", id: `incident-${incident.id}` },
      h("span", { class: "ended-severity", "data-tone": tone, title: word }, icon(sign), h("span", { class: "sr" }, word)),
      h("div", { class: "ended-what" },
        h("p", { class: "ended-title" }, h("strong", {}, incidentTitle(incident)), h("span", {}, `${target}${engine === null ? "" : `, engine ${engine}`}`)),
        h("p", { class: "ended-summary" }, summary)),
      h("span", { class: "ended-resolution" }, RESOLUTIONS[resolution] ?? format.text(resolution)),
      h("span", { class: "ended-lasted" }, from === null ? "" : `lasted ${format.age(to - from)}`), this.ago);
  }

  tick(now) {
    setText(this.ago, `ended ${format.ago(now - this.to)}`);
  }
}
