// What each state means for the reader: how it looks, whether it needs someone, and what comes first.

import { h } from "./dom.js";
import { clock, UNKNOWN } from "./format.js";

/** So many of one kind and cause are told together; fewer are read one by one. */
export const STORM_FROM = 5;

/** A table to look up words from outside in: it has no entries but its own. */
export const table = (entries) => Object.assign(Object.create(null), entries);

const STATES = table({
  down: ["bad", 0], stalled: ["bad", 1], failing: ["bad", 2], collapsed: ["bad", 3],
  overloaded: ["warn", 4], stale: ["warn", 5], unknown: ["warn", 6], starting: ["info", 7], sleeping: ["quiet", 8],
  prefilling: ["good", 9], serving: ["good", 10], idle: ["good", 11], waiting: ["quiet", 12],
});
const STATE_OF = table({ engine_down: "down", engine_stalled: "stalled", engine_failing: "failing", throughput_collapse: "collapsed", overload: "overloaded" });
const ATTENTION_UP_TO = 6; // down … unknown

export const toneOf = (state) => (STATES[state] ?? STATES.unknown)[0];
export const rankOf = (state) => (STATES[state] ?? STATES.unknown)[1];
/** The state of which an incident tells. */
export const stateOf = ({ kind }) => STATE_OF[kind];
export const needsAttention = (state) => rankOf(state) <= ATTENTION_UP_TO;

/** After three missed looks (15 s at least) what we show is no longer now. */
const STALE_INTERVALS = 3;
const STALE_SECONDS = 15;

/** The state to show: the target's own, unless nothing new has come of it for too long. */
export function shownState(target, now) {
  if (!target.signals) return "waiting";
  const silence = now - target.signals.t;
  return silence > Math.max(STALE_SECONDS, STALE_INTERVALS * target.interval_seconds) ? "stale" : target.state;
}

export const PROCESS_STATES = table({
  R: "running", S: "sleeping", D: "stuck in the kernel", Z: "zombie", T: "stopped", t: "traced", X: "dead", I: "idle",
});

export const OUTCOMES = table({
  ok: "ok", refused: "refused", connect_timeout: "no connection in time", read_timeout: "no answer in time",
  http: "HTTP error", garbled: "unreadable", too_large: "too large", disconnected: "cut off", dns: "name not found",
  tls: "TLS failed", watcher: "vllm-watch could not ask", no_driver: "no driver", hung: "no answer in time", error: "error",
});

/** Reasons for a clock below its maximum that someone should know of. */
export const HOT = new Set(["hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"]);

/** The target under whose name the watcher tells of itself, or of what all targets share. */
export const OF_THE_WATCHER = "vllm-watch";

const SEVERITIES = table({
  page: { rank: 0, tone: "bad", sign: "bad", word: "critical", meaning: "Users are affected now: act at once." },
  ticket: { rank: 1, tone: "warn", sign: "warn", word: "warning", meaning: "Fix it in working hours." },
  info: { rank: 2, tone: "info", sign: "note", word: "info", meaning: "No action needed." },
});

/** How an incident's severity looks: rank (0 is the worst), tone, sign, word, what that means. */
export const severityOf = ({ severity }) => SEVERITIES[severity] ?? { ...SEVERITIES.ticket, word: severity };

const RECOVERING = { rank: 3, tone: "good", sign: "good", word: "recovering", meaning: "Not seen any more; closes if that lasts." };

/** Is it open only until it is seen that its trouble stays away? */
export const isRecovering = ({ state, phase }) => state === "open" && phase === "recovering";

/** As severityOf, of an incident as it is now. */
export const standingOf = (incident) => (isRecovering(incident) ? RECOVERING : severityOf(incident));

let kinds = table({});
let steps = table({});

/** Take the watcher's words: of kinds of incidents, and of the steps of restarts. */
export function learn({ story, restart_steps: ofRestarts }) {
  kinds = table(story);
  steps = table(ofRestarts);
}

/** In which signals a kind shows, and is it about GPUs? */
export const storyOf = ({ kind }) => kinds[kind] ?? { charts: [], of_gpus: false };

/** How a restart ended: "helped". */
export const endedWords = (state) => steps[state]?.ended || state;

/** Where its runbook is, from the page: as it was reached, whatever other people call it. */
export const runbookOf = ({ runbook_url: url }) => url.slice(url.indexOf("/runbooks/") + 1);

/** A link to it, in a tab of its own: the page stays. */
export const runbookLink = () => h("a", { target: "_blank", rel: "noopener" }, "Runbook");

export const evidenceName = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

const RESOLUTIONS = table({
  healthy: "recovered", restarted: "process restarted", target_gone: "target removed", superseded: "superseded by another incident",
});

/** How it ended. What took its place may have come after it was over. */
export function resolutionOf({ resolution, ended_timestamp_seconds: over, resolved_timestamp_seconds: closed }) {
  if (resolution === "superseded" && over !== null && over < closed) return "recovered, then another incident";
  return RESOLUTIONS[resolution] ?? resolution ?? UNKNOWN;
}

/** The span of an incident on a chart's time axis. */
export function markOf(incident) {
  const { id, engine, began_timestamp_seconds: from, ended_timestamp_seconds: over, resolved_timestamp_seconds: closed } = incident;
  const to = over ?? closed;
  const when = from === null ? "" : ` since ${clock(from)}`;
  const title = to === null ? `${incident.title}${when}` : `${incident.title}${when}, until ${clock(to)}`;
  return { key: id, engine, from: from ?? 0, to, tone: to === null ? severityOf(incident).tone : "quiet", title };
}
