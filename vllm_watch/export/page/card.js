// One open incident as a card: what it is, since when, why, what speaks against it, and what can be done.

import { ChartSet } from "./engine.js";
import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import { Evidence, withoutNextRule } from "./evidence.js";
import * as format from "./format.js";
import { anchorOf, copyButton, Links, permalink, whereOf } from "./links.js";
import { earlier, lasted, often, worst } from "./before.js";
import { Recording } from "./recording.js";
import { outlook, Plan } from "./restart.js";
import { Witnesses } from "./witnesses.js";
import { isRecovering, OF_THE_WATCHER, runbookLink, runbookOf, standingOf, storyOf } from "./words.js";

export class Card {
  constructor(incident, page, { where = "" } = {}) {
    const { id, target } = incident;
    const { charts, of_gpus: ofGpus } = storyOf(incident);
    this.page = page;
    this.own = target === OF_THE_WATCHER;
    this.plan = new Plan(page, target);
    this.badge = h("span", { class: "severity" });
    this.title = h("h3", { id: `title-${where}${id}` });
    this.who = this.own ? h("span", { class: "incident-target" }, "the watcher itself") : page.linkTo(target, "incident-target");
    this.engine = h("span", { class: "incident-engine" });
    this.since = h("span", { class: "since" });
    this.age = h("span", { class: "age", "aria-hidden": "true" });
    this.summary = h("p", { class: "incident-summary" });
    this.recovery = h("p", { class: "incident-recovery" });
    this.meanwhile = h("p", { class: "incident-meanwhile" });
    this.stacks = h("p", { class: "incident-stacks" });
    this.worst = h("p", { class: "incident-worst" });
    this.cost = labelled("Cost", "incident-cost");
    this.step = labelled("Do", "first-step");
    this.count = h("span");
    this.for = new Evidence("Evidence", "No evidence recorded.");
    this.against = new Evidence("Contradicting evidence", "No contradicting evidence.");
    this.witnesses = new Witnesses();
    this.sources = h("section", { class: "said" }, h("h4", {}, "Each source now"), this.witnesses.element);
    this.charts = charts.length && !this.own ? new ChartSet(charts) : null;
    this.evidence = h("details", { class: "evidence" }, h("summary", {}, this.count),
      h("div", { class: "evidence-lists" }, this.for.element, this.against.element),
      this.sources, this.charts?.element);
    this.evidence.addEventListener("toggle", () => this.page.schedule());
    this.restart = labelled("Restart", "restart");
    this.reason = h("p", { class: "severity-reason" });
    this.related = h("p", { class: "related" });
    this.earlier = h("p", { class: "related" });
    this.runbook = runbookLink();
    this.links = new Links();
    this.element = h("article", { class: "incident", id: `incident-${where}${id}`, "aria-labelledby": `title-${where}${id}`, tabindex: "-1" },
      h("header", {}, this.badge, this.title, h("p", { class: "incident-where" }, this.who, this.engine), h("p", { class: "incident-time" }, this.age, this.since)),
      h("div", { class: "incident-body" }, this.recovery, this.summary, this.worst, this.cost.element, this.step.element, this.restart.element, this.plan.element, this.reason, this.meanwhile, this.stacks, this.evidence, this.earlier, this.related,
        h("footer", {}, ofGpus ? h("p", {}, h("a", { href: "#gpus" }, "GPU memory holders")) : null,
          this.own ? null : new Recording(target).element, h("p", { class: "runbook" }, this.runbook, " · ", permalink(id)), this.links.element, copyButton(() => this.incident, () => ({ where: whereOf(page, target), restart: [this.outlook, ...this.plan.told], earlier: earlier(this.incident, page.incidents) })))));
  }

  /** Does it need the lines of its target's charts? */
  charted() {
    return this.charts !== null && this.evidence.open;
  }

  draw(incident, now, all) {
    if (this.incident !== incident) {
      this.incident = incident;
      this.drawWords(incident, now);
    }
    this.drawRelated(incident, all, now);
    const plan = this.page.planOf(incident.target);
    this.outlook = outlook(plan, incident, this.page.targets.has(incident.target));
    setText(this.restart.text, this.outlook);
    this.plan.draw(plan, incident.id, now);
    if (this.evidence.open) this.drawNow(incident, now);
    if (!this.own) this.links.draw(this.page, incident.target, incident, now);
    this.tick(now);
  }

  drawWords(incident, now) {
    const { tone, word, sign, meaning } = standingOf(incident);
    const recovering = isRecovering(incident);
    setAttribute(this.badge, "title", meaning);
    setAttribute(this.element, "data-tone", tone);
    setAttribute(this.element, "data-severity", incident.severity);
    this.badge.replaceChildren(icon(sign), word);
    setText(this.title, incident.title);
    setText(this.engine, incident.engine === null ? "" : `engine ${incident.engine}`);
    setText(this.summary, recovering ? lasted(incident) : format.sentence(incident.summary));
    setText(this.meanwhile, incident.meanwhile ? `Meanwhile: ${incident.meanwhile}` : "");
    setText(this.stacks, incident.stacks);
    setText(this.worst, worst(incident, (t) => format.moment(t, now)));
    setText(this.cost.text, incident.cost);
    setText(this.step.text, incident.first_step);
    for (const [element, shown] of [[this.recovery, recovering], [this.stacks, incident.stacks], [this.meanwhile, incident.meanwhile], [this.step.element, !recovering], [this.restart.element, !recovering], [this.reason, incident.severity_reason], [this.worst, !recovering && this.worst.textContent], [this.cost.element, incident.cost]]) element.hidden = !shown;
    setText(this.reason, incident.severity_reason);
    const pro = withoutNextRule(incident.evidence.for), contra = incident.evidence.against;
    setText(this.count, pro.length + contra.length ? `Evidence as of ${format.moment(incident.updated_timestamp_seconds, now)}: ${pro.length} for, ${contra.length} against` : "Current state");
    this.for.draw(pro);
    this.against.draw(contra);
    this.for.element.parentElement.hidden = pro.length + contra.length === 0;
    this.sources.hidden = !this.page.targets.has(incident.target);
    this.evidence.hidden = this.sources.hidden && pro.length + contra.length === 0;
    setAttribute(this.runbook, "href", runbookOf(incident));
    setText(this.since, spanOf(incident, recovering, now));
  }

  /** What its target says now: the witnesses, and the charts with the incident's span. */
  drawNow(incident, now) {
    const row = this.page.targets.get(incident.target);
    if (!row) return;
    this.witnesses.draw(row.data, incident.engine, now);
    if (this.charts === null) return;
    row.load();
    const alone = row.lines === null || row.lines.size === 1 ? row.lines?.values().next().value : undefined;
    const lines = incident.engine === null ? alone : row.lines?.get(incident.engine) ?? null;
    this.charts.element.hidden = lines === undefined; // of several engines no chart shows all
    const marks = row.marksNow().filter(({ key }) => key === incident.id);
    if (lines !== undefined) this.charts.draw(lines, { ...row.view(now, incident.engine), marks });
  }

  drawRelated(incident, all, now) {
    const past = earlier(incident, all);
    const others = incident.related.map((id) => all.known.get(id)).filter((other) => other && !past.some(({ id }) => id === other.id));
    linked(this.earlier, "Earlier on this target: ", past.map(({ id, title, from, to }) => ({ id, text: `${title} (${format.moment(from, now)}, lasted ${format.age(to - from)})` })));
    linked(this.related, "Related: ", others.map(({ id, target, title, state }) => ({ id, text: `${target === incident.target ? "" : `${target}: `}${title}${state === "open" ? "" : " (ended)"}` })));
  }

  tick(now) {
    const { began_timestamp_seconds: from, ended_timestamp_seconds: to } = this.incident;
    setText(this.age, from === null ? "" : format.age((to ?? now) - from));
    if (isRecovering(this.incident)) setText(this.recovery, format.recovery(this.incident, now));
  }
}

/** Since when; of what is over, from when to when. */
function spanOf(incident, recovering, now) {
  const { opened_timestamp_seconds: opened, began_timestamp_seconds: began, ended_timestamp_seconds: ended } = incident;
  if (opened === null) return "since before the watcher started";
  const from = format.moment(began ?? opened, now);
  return `${recovering ? `from ${from} to ${format.moment(ended, now)}` : `since ${from}`} ${format.zone(now)}${often(incident)}`;
}

/** Other incidents, each as a link to where it stands. */
function linked(element, title, others) {
  element.hidden = others.length === 0;
  if (element.hidden) return;
  keyed(element, [{ id: "", text: title }, ...others], ({ id }) => id, ({ id }) => (id ? h("a", { href: anchorOf(id) }) : h("span")), (each, { text }) => setText(each, text));
}

/** A line of the card under a bold label. */
export function labelled(label, name) {
  const text = h("span");
  return { element: h("p", { class: name }, h("strong", {}, `${label}: `), text), text };
}
