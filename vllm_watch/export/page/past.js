// An incident that ended, opened: its evidence, and its charts as they stood then.

import { earlier } from "./before.js";
import { ChartSet, Lines } from "./engine.js";
import { h, setText } from "./dom.js";
import { Evidence, withoutNextRule } from "./evidence.js";
import { copyButton, Links, permalink, whereOf } from "./links.js";
import { history } from "./live.js";
import { markOf, runbookLink, runbookOf } from "./words.js";

const POINTS = 120; // of a chart that the watcher keeps

export class Past {
  constructor(incident, page) {
    this.incident = incident;
    this.page = page;
    const pro = new Evidence("Evidence", "No evidence recorded.");
    const contra = new Evidence("Contradicting evidence", "No contradicting evidence.");
    pro.draw(withoutNextRule(incident.evidence.for));
    contra.draw(incident.evidence.against);
    const runbook = runbookLink();
    runbook.setAttribute("href", runbookOf(incident));
    const links = new Links();
    links.draw(page, incident.target, incident, page.now());
    this.note = h("p", { class: "past-note" }, "Loading charts …");
    this.engines = h("div");
    this.element = h("div", { class: "past" }, incident.stacks ? h("p", { class: "incident-stacks" }, incident.stacks) : null, h("div", { class: "evidence-lists" }, pro.element, contra.element), this.note, this.engines,
      h("footer", {}, h("p", { class: "runbook" }, runbook, " · ", permalink(incident.id)), links.element, copyButton(() => incident, () => ({ where: whereOf(page, incident.target), earlier: earlier(incident, page.incidents) }))));
    this.load();
  }

  async load() {
    const found = await history({ incident: this.incident.id });
    const { t, seconds: span, engines } = found ?? { engines: {} };
    const labels = Object.keys(engines);
    this.note.hidden = labels.length > 0;
    setText(this.note, found === null ? "Charts cannot be had now." : "No charts: it ended before this run of the watcher, or its target has none.");
    const interval = Math.max(span / POINTS, this.page.targets.get(this.incident.target)?.data.interval_seconds ?? 0);
    this.engines.replaceChildren(...labels.flatMap((label) => {
      const [lines, charts] = [new Lines(), new ChartSet()];
      lines.load(engines[label]);
      charts.draw(lines, { t, span, interval, marks: [markOf(this.incident)], windowSeconds: this.page.watcher.window_seconds, frozen: true });
      return [...(labels.length > 1 ? [h("h4", {}, `Engine ${label}`)] : []), charts.element];
    }));
  }
}
