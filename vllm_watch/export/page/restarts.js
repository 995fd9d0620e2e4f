// What did the restarts do? What is under way, what waits and why, and how the last ones ended, over all targets.

import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { endOf, lines, toneOfSign, TRIGGERS } from "./restart.js";

const SHOWN = 10;

/** Who or what asked for a restart. */
function askedBy({ trigger, actor, incident_id: id }, known) {
  if (trigger === "manual") return `requested by ${actor}`;
  return trigger === "incident" ? `for ${known.get(id)?.title ?? "an incident"}` : TRIGGERS[trigger] ?? trigger;
}

const attempts = (plans) => plans
  .flatMap(({ name, plan }) => (plan.past ?? []).map((attempt) => ({ name, attempt })))
  .sort((a, b) => (b.attempt.ended_timestamp_seconds ?? 0) - (a.attempt.ended_timestamp_seconds ?? 0))
  .slice(0, SHOWN);

function summaryOf(plans) {
  const modes = new Map();
  for (const { plan } of plans) modes.set(plan.mode, (modes.get(plan.mode) ?? 0) + 1);
  const told = [...modes].map(([mode, times], i) => `${times}${i ? "" : times === 1 ? " target" : " targets"} in mode ${mode}`).join(", ");
  const next = plans.map(({ plan }) => plan.next_scheduled_timestamp_seconds).filter((t) => t !== null && t !== undefined);
  return { told, next: next.length ? Math.min(...next) : null };
}

export class Restarts {
  constructor(section, page) {
    this.section = section;
    this.page = page;
    this.note = section.querySelector(".section-note");
    this.now = h("ul", { class: "plan-lines" });
    this.list = h("ul", { class: "attempts" });
    this.none = h("p", { class: "nobody" }, "No restart within the last week.");
    section.append(h("div", { class: "restarts-card" }, this.now, this.list, this.none));
  }

  draw(plans, now) {
    this.section.hidden = plans.length === 0;
    if (plans.length === 0) return;
    const { told, next } = summaryOf(plans);
    setText(this.note, next === null ? told : `${told} · next on schedule ${format.moment(next, now)}`);
    const current = plans.filter(({ plan }) => plan.under_way || plan.waiting.length)
      .map(({ name, plan }) => ({ name, line: lines({ ...plan, last: null }, null, now)[0] })).filter(({ line }) => line).slice(0, SHOWN);
    keyed(this.now, current, ({ name }) => name, ({ name }) => {
      const sign = h("span", { class: "plan-sign" });
      const text = h("span");
      return { element: h("li", {}, sign, h("span", {}, this.page.linkTo(name), ": ", text)), sign, text };
    }, ({ element, sign, text }, { line }) => {
      setAttribute(element, "data-tone", line.tone);
      if (sign.dataset.sign !== line.sign) sign.replaceChildren(icon(line.sign));
      sign.dataset.sign = line.sign;
      setText(text, line.text);
    });
    this.drawPast(attempts(plans), now);
    this.none.hidden ||= plans.some(({ plan }) => plan.under_way);
  }

  drawPast(past, now) {
    this.none.hidden = past.length > 0;
    keyed(this.list, past, ({ attempt }) => attempt.id, ({ name, attempt }) => {
      const [tone, words] = endOf(attempt.state);
      const when = h("span", { class: "attempt-when" });
      const gave = attempt.payoff_ratio === null ? "" : `recovered ${format.ratio(attempt.payoff_ratio)} of baseline throughput`;
      const why = [attempt.state === "dry_run" ? attempt.reason : attempt.text, askedBy(attempt, this.page.incidents.known), gave].filter(Boolean).join(" · ");
      return { when, t: attempt.ended_timestamp_seconds, element: h("li", { class: "attempt" }, h("span", { class: "attempt-sign", "data-tone": toneOfSign(tone) }, icon(tone)),
        h("div", {}, h("p", {}, this.page.linkTo(name), ": ", h("strong", {}, `restart ${words}`)), h("p", { class: "attempt-why" }, format.brief(why))), when) };
    }, ({ when, t }) => setText(when, t === null ? "" : format.ago(now - t)));
  }
}
