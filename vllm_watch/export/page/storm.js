// Many open incidents of one kind and cause: one card that counts them, since five hundred say no more than one.

import { labelled } from "./card.js";
import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { isRecovering, runbookLink, runbookOf, standingOf, STORM_FROM } from "./words.js";

const NAMED = 5;

function opened(first, last, now) {
  const [from, to] = [first, last].map((t) => format.moment(t, now));
  return `${from === to ? `since ${from}` : `the first at ${from}, the last at ${to}`} ${format.zone(last)}`;
}

/** Part what is told together from what is told one by one: [groups, single incidents], both in the given order. */
export function parted(open) {
  const groups = new Map();
  for (const incident of open) {
    const key = `${isRecovering(incident) ? "recovering" : incident.severity} ${incident.kind} ${incident.cause}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(incident);
  }
  const storms = [...groups].filter(([, members]) => members.length >= STORM_FROM).map(([key, members]) => ({ key, members }));
  const inStorm = new Set(storms.flatMap(({ members }) => members));
  return [storms, open.filter((incident) => !inStorm.has(incident))];
}

export class Storm {
  constructor({ key, members: [first] }, page) {
    this.page = page;
    const id = `storm-${key.replace(/\W/g, "-")}`;
    const { tone, word, sign, meaning } = standingOf(first);
    this.title = h("h3", { id });
    this.count = h("span", { class: "incident-engine" });
    this.age = h("span", { class: "age", "aria-hidden": "true" });
    this.since = h("span", { class: "since" });
    this.summary = h("p", { class: "incident-summary" });
    this.names = h("ul", { class: "storm-names" });
    this.runbook = runbookLink();
    setAttribute(this.runbook, "href", runbookOf(first));
    const [cost, step, restart] = [labelled("Cost", "incident-cost"), labelled("Do", "first-step"), labelled("Restart", "restart")];
    setText(cost.text, first.cost);
    setText(step.text, first.first_step);
    setText(restart.text, first.restart_outcome);
    const list = h("button", { type: "button", class: "act" }, "Filter the list");
    list.addEventListener("click", () => page.list.find(first.title));
    this.element = h("article", { class: "incident storm", "aria-labelledby": id, tabindex: "-1", "data-tone": tone, "data-severity": first.severity },
      h("header", {}, h("span", { class: "severity", title: meaning }, icon(sign), word), this.title, h("p", { class: "incident-where" }, this.count), h("p", { class: "incident-time" }, this.age, this.since)),
      h("div", { class: "incident-body" }, this.summary, cost.element, step.element, restart.element, this.names,
        h("footer", {}, list, h("p", { class: "runbook" }, this.runbook))));
  }

  /** `members` come with the newest first. */
  draw({ members }, now) {
    this.members = members;
    const targets = new Set(members.map(({ target }) => target));
    const groups = new Set([...targets].map((name) => this.page.targets.get(name)?.data.group).filter(Boolean));
    setText(this.title, members[0].title);
    setText(this.count, `${targets.size} targets${groups.size === 1 ? ` of ${[...groups][0]}` : groups.size > 1 ? ` of ${groups.size} groups` : ""} at once`);
    const times = members.map(({ opened_timestamp_seconds: t }) => t).filter((t) => t !== null);
    this.first = times.length ? Math.min(...times) : null;
    setText(this.since, this.first === null ? "since before the watcher started" : opened(this.first, Math.max(...times), now));
    setText(this.summary, `Latest: ${members[0].summary}`);
    const named = [...targets].slice(0, NAMED);
    keyed(this.names, named, (name) => name, (name) => h("li", {}, this.page.linkTo(name, "incident-target")), () => undefined);
    setAttribute(this.names, "data-more", targets.size > NAMED ? `and ${targets.size - NAMED} more` : "");
    this.tick(now);
  }

  tick(now) {
    setText(this.age, this.first === null ? "" : format.age(now - this.first));
  }
}
