// What is planned and was done about restarts, in sentences: why not now, what is under way, what it brought.

import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { ask } from "./people.js";
import { endedWords, table } from "./words.js";

export const TRIGGERS = table({ incident: "for this incident", schedule: "on schedule", manual: "by hand", alertmanager: "for an alert" });
const SIGNS = table({ helped: "good", did_not_help: "bad", failed: "bad", uncertain: "bad", cancelled: "quiet", dry_run: "again" });

/** How a restart ended: its sign, and in words. */
export const endOf = (state) => [SIGNS[state] ?? "warn", endedWords(state)];

/** The colour of such a sign. */
export const toneOfSign = (sign) => (sign === "again" ? "info" : sign);

/** When a gate will be asked again, unless it says so itself. */
const until = ({ text, until_timestamp_seconds: t }, now) => (t === null || /:\d\dZ/.test(text) ? "" : ` Next check ${format.moment(t, now)}.`);
const ended = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** One line for an attempt that ended. */
function past({ state, text, ended_timestamp_seconds: t, payoff_ratio: payoff }, now) {
  const [tone, words] = endOf(state);
  const gave = payoff === null ? "" : payoff > 0 ? ` It recovered ${format.ratio(payoff)} of baseline throughput.` : " It recovered no throughput.";
  const why = text ? ` (${text})` : "";
  const when = t === null ? "" : ` (${format.moment(t, now)})`;
  const said = state === "dry_run" ? `A restart was advised${when} and left to you (observe mode).` : `The last restart${when} ${words}${why}.${gave}`;
  return { sign: tone, tone: toneOfSign(tone), text: said };
}

/** One line for a wish, and one for each further gate that refuses. */
function wished(wish, incident, now) {
  const who = wish.trigger === "incident" && incident === null ? "for its incident" : TRIGGERS[wish.trigger] ?? wish.trigger;
  if (wish.verdict === "approve") return [{ sign: "warn", tone: "warn", text: `A restart ${who} waits for approval.` }];
  const more = wish.gates.slice(1).map((gate) => ({ sign: "quiet", tone: "quiet", text: `Also: ${ended(gate.text)}${until(gate, now)}` }));
  const approved = wish.approved_by === null ? "" : ` (approved by ${wish.approved_by})`;
  return [{ sign: "info", tone: "quiet", text: `No restart ${who} now${approved}: ${ended(wish.text)}${until(wish, now)}` }, ...more];
}

/** Will the watcher restart the incident's target, and does that help? `watched`: it is a target, not the host or the watcher. */
export function outlook(plan, incident, watched) {
  if (watched && (plan?.under_way || plan?.breaker)) return incident.restart_outcome;
  return `${willRestart(plan, incident, watched)} ${incident.restart_outcome}`;
}

function willRestart(plan, { id, target, restart_advised: advised }, watched) {
  const never = "vllm-watch will not restart it";
  if (!watched) return "vllm-watch restarts nothing because of this.";
  if (!plan || plan.mode === "off") return `${never} (restarts are off).`;
  if (plan.mode === "observe") return `${never} (observe mode).${advised ? ` To do it yourself: vllm-watch restart ${target} --reason TEXT.` : ""}`;
  if (plan.paused) return `${never} now (restarts are paused).`;
  const wish = plan.waiting.find((each) => each.incident_id === id);
  if (plan.mode === "approve" && !wish?.approved_by) return `vllm-watch restarts it only after your approval${advised ? "" : ", and asks for that once a restart is advised"}.`;
  return wish ? `${never} before every check passes.` : `vllm-watch restarts it${advised ? "" : " once that is advised and"} when every check passes.`;
}

/** What there is to say of a target's restarts; with an incident only what concerns it. */
export function lines(plan, incident, now) {
  if (!plan) return [];
  if (plan.under_way) {
    const { text, began_timestamp_seconds: t, trigger, actor } = plan.under_way;
    return [{ sign: "again", tone: "info", text: `A restart ${trigger === "manual" ? `by ${actor} ` : ""}has been under way since ${format.moment(t, now)}: ${ended(text)}` }];
  }
  const wishes = plan.waiting.filter(({ incident_id: id }) => incident === null || id === incident || id === null);
  const told = wishes.flatMap((wish) => wished(wish, incident, now));
  const said = wishes.some(({ gates }) => gates.some(({ gate }) => gate === "breaker")); // which tells of the last one, too
  const last = plan.last && !said && (incident === null || (plan.last.incident_id === incident && plan.last.state !== "dry_run")) ? [past(plan.last, now)] : [];
  return [...told, ...last];
}

/** The lines and, where people may ask for something, the buttons. */
export class Plan {
  constructor(page, target) {
    this.page = page;
    this.target = target;
    this.told = []; // as it is drawn
    this.list = h("ul", { class: "plan-lines" });
    this.buttons = h("div", { class: "plan-buttons" });
    this.element = h("div", { class: "plan", hidden: "" }, this.list, this.buttons);
  }

  draw(plan, incident, now) {
    const told = lines(plan, incident, now);
    this.told = told.map(({ text }) => text);
    keyed(this.list, told.map((line, i) => [i, line]), ([i]) => i, () => {
      const sign = h("span", { class: "plan-sign" });
      const text = h("span");
      return { element: h("li", {}, sign, text), sign, text };
    }, ({ element, sign, text }, [, line]) => {
      setAttribute(element, "data-tone", line.tone);
      if (sign.dataset.sign !== line.sign) {
        sign.dataset.sign = line.sign;
        sign.replaceChildren(icon(line.sign));
      }
      setText(text, line.text);
    });
    const asked = this.page.mayAsk() ? this.offers(plan, incident) : [];
    this.element.hidden = told.length + asked.length === 0;
    this.buttons.hidden = asked.length === 0;
    keyed(this.buttons, asked, ({ key }) => key, ({ text, wish }) => {
      const element = h("button", { type: "button", class: "act" }, text);
      element.addEventListener("click", () => ask(this.page, wish));
      return element;
    }, () => undefined);
  }

  offers(plan, incident) {
    if (!plan || plan.mode === "off") return [];
    const offers = [];
    const path = incident === null ? "" : `api/v1/incidents/${encodeURIComponent(incident)}`;
    const wish = incident === null ? null : plan.waiting.find(({ incident_id: id }) => id === incident);
    const unanswered = wish && wish.approved_by === null && !plan.under_way;
    if (unanswered && !plan.paused) {
      offers.push({ key: `approve ${incident}`, text: "Approve the restart", wish: {
        path: `${path}/approve`, incident, title: `Restart ${this.target}?`, text: `It is restarted with the hook ${plan.hook} if every other check passes.`, act: "Restart it" } });
    }
    if (unanswered) {
      offers.push({ key: `silence ${incident}`, text: "Silence", wish: {
        path: `${path}/silence`, incident, title: "Silence this incident?", text: "The incident stays open. Until the time is up, vllm-watch restarts nothing and sends no message because of it. Alerts from Prometheus continue.", reason: true, minutes: 60, act: "Silence" } });
    }
    if (incident === null && !plan.under_way) {
      offers.push({ key: "restart", text: "Restart …", wish: {
        path: `api/v1/targets/${encodeURIComponent(this.target)}/restart`, title: `Restart ${this.target}?`, text: `Every check runs first: it is refused with the reasons, or restarted with the hook ${plan.hook} now.`, reason: true, act: "Restart it" } });
    }
    if (plan.breaker) {
      offers.push({ key: "resume", text: "Allow a retry", wish: {
        path: "api/v1/resume", title: "Reset every breaker?", text: "Restarts that did not help may be retried, on every target of this watcher. A pause ends, too.", reason: "optional", act: "Resume" } });
    }
    return offers;
  }
}

/** Rows for an opened target. */
export function planFacts(plan, now) {
  if (!plan) return [];
  const left = plan.budget_remaining;
  return [
    ["Mode", plan.mode], ["Hook", format.text(plan.hook)],
    ...(plan.mode === "observe" ? [] : [["Restarts left", left === null ? format.UNKNOWN : String(left)]]),
    ["Next on schedule", plan.next_scheduled_timestamp_seconds === null ? "none" : format.moment(plan.next_scheduled_timestamp_seconds, now)],
    ["Last payoff", plan.payoff_ratio === null ? format.UNKNOWN : format.ratio(plan.payoff_ratio)],
    ["Readiness gate", plan.draining ? "closed: requests finish" : "open"],
    ...(plan.breaker ? [["Breaker", "open: needs an operator"]] : []),
  ];
}
