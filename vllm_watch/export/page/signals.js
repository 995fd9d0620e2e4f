// Which signals are charted, and which are listed beside the charts, in the words of the reader.

import * as format from "./format.js";

/** name: field of /api/v1/history; windowed: taken over the signal window; rate: between two scrapes; read: the same from an engine's signals, for live updates. */
export const CHARTED = [
  { name: "current_generation_tokens_per_second", rate: true, title: "Generation", note: "tokens per second", format: format.rate("tok/s"), tick: format.number, least: 10, read: (e) => e.current_generation_tokens_per_second },
  { name: "requests_running", title: "Running", note: "requests in the batch", format: format.count, least: 4, read: (e) => e.requests_running },
  { name: "requests_waiting", title: "Waiting", note: "requests in the queue", format: format.count, least: 4, read: (e) => e.requests_waiting },
  { name: "kv_cache_usage_ratio", title: "KV cache", note: "share of blocks in use", format: format.ratio, top: 1, read: (e) => e.kv_cache_usage_ratio },
  { name: "time_to_first_token_p95_seconds", windowed: true, title: "Time to first token", note: "95th percentile", format: format.seconds, tick: format.tick, least: 0.01, read: (e) => e.time_to_first_token_seconds.p95 },
  { name: "inter_token_latency_p95_seconds", windowed: true, title: "Between tokens", note: "95th percentile", format: format.seconds, tick: format.tick, least: 0.001, read: (e) => e.inter_token_latency_seconds.p95 },
  { name: "step_time_seconds", windowed: true, title: "Step time", note: "mean per scheduler step", format: format.seconds, tick: format.tick, least: 0.001, read: (e) => e.step_time_seconds },
];

const tokensPerSecond = format.rate("tok/s");
const perSecond = format.rate("/s");
const tokens = (value) => (value === null ? format.UNKNOWN : `${format.number(value)} tokens`);
const split = (mapping, each) => (Object.keys(mapping ?? {}).length ? Object.entries(mapping).map(([name, value]) => `${name} ${each(value)}`).join(" · ") : format.UNKNOWN);
const parts = (mapping, each) => {
  const some = Object.entries(mapping ?? {}).filter(([, value]) => value !== 0);
  return some.length || !Object.keys(mapping ?? {}).length ? split(Object.fromEntries(some), each) : "none";
};

/** [title, quantiles of an engine's signals]. */
export const LATENCIES = [
  ["first token", (e) => e.time_to_first_token_seconds],
  ["between tokens", (e) => e.inter_token_latency_seconds],
  ["in the queue", (e) => e.queue_time_seconds],
  ["whole request", (e) => e.e2e_latency_seconds],
];

/** [title, text of an engine's signals, when to show it]; `now` is the watcher's clock. */
export const LISTED = [
  ["Prompt tokens", (e) => tokensPerSecond(e.prompt_tokens_per_second)],
  ["Requests finished", (e) => perSecond(e.requests_finished_per_second)],
  ["… by reason", (e) => parts(e.requests_finished_by_reason_per_second, perSecond)],
  ["Preemptions", (e) => perSecond(e.preemptions_per_second)],
  ["Steps", (e) => perSecond(e.steps_per_second)],
  ["Tokens per step", (e) => format.number(e.tokens_per_step)],
  ["KV cache size", (e) => tokens(e.kv_cache_capacity_tokens)],
  ["KV cache free", (e) => tokens(e.kv_cache_free_tokens)],
  ["KV cache full in", (e) => (e.kv_cache_time_to_full_seconds === null ? "not filling" : format.seconds(e.kv_cache_time_to_full_seconds)), (e) => e.kv_cache_usage_ratio !== null],
  ["Prefix cache hits", (e) => format.ratio(e.prefix_cache_hit_ratio)],
  ["Drafts accepted", (e) => format.ratio(e.spec_acceptance_ratio), (e) => e.spec_acceptance_ratio !== null],
  ["Waiting, by reason", (e) => parts(e.requests_waiting_by_reason, format.count)],
  ["Objectives met", (e) => split(e.slo_attainment_ratio, format.ratio), (e) => Object.keys(e.slo_attainment_ratio).length > 0],
  ["Goodput, at most", (e) => perSecond(e.goodput_requests_per_second), (e) => e.goodput_requests_per_second !== null],
  ["Last progress", (e, now) => (e.last_progress_timestamp_seconds === null ? "none seen" : format.ago(now - e.last_progress_timestamp_seconds))],
  ["Restarts seen", (e) => format.count(e.restarts)],
  ["Sleeping", (e) => (e.sleeping ? "yes" : "no"), (e) => e.sleeping !== null],
];

/** Those of the last minute's work: of an engine that does none now they would look like work. */
const RATES = ["Prompt tokens", "Requests finished", "… by reason", "Preemptions", "Steps", "Tokens per step"];
export const OF_WORK = new Set([...RATES, "KV cache full in"]);

/** Means over the signal window, named as such. */
export const OF_WINDOW = new Set([...RATES, "Prefix cache hits", "Drafts accepted", "Objectives met", "Goodput, at most"]);

/** Does an engine do nothing now? Its rates of the last minute would look like work. */
export const isStill = (target, engine) => engine?.state === "stalled" || target.state === "down";

/** Is a chart's newest value that of an engine that worked? A dead one goes on exporting what it had. */
export const isOld = (target, engine) => ({ windowed, rate }) => (windowed ? isStill(target, engine) : target.state === "down" && !(rate && target.signals?.up));

/** A target's row: totals of its engines, the fullest cache, the worst latency; null where no engine says. */
export function summary(target) {
  const engines = Object.values(target.signals?.engines ?? {});
  const known = (read) => engines.map(read).filter((value) => value !== null && value !== undefined);
  const total = (read) => (known(read).length ? known(read).reduce((a, b) => a + b, 0) : null);
  const now = (read) => (e) => (target.state === "down" ? null : read(e)); // a dead engine goes on showing what it had
  const most = (read) => (known(read).length ? Math.max(...known(read)) : null);
  return {
    generation: total((e) => e.current_generation_tokens_per_second),
    running: total(now((e) => e.requests_running)),
    waiting: total(now((e) => e.requests_waiting)),
    kv: most(now((e) => e.kv_cache_usage_ratio)),
    ttft: most((e) => (isStill(target, e) ? null : e.time_to_first_token_seconds.p95)), // of the last minute, when it still worked
  };
}

/** What a target serves: its models, else its group. */
export function modelOf({ signals, group }) {
  const engines = Object.values(signals?.engines ?? {});
  const names = new Set([...engines.map((e) => e.model_name), ...(signals?.models ?? [])].filter(Boolean));
  return [...names].join(", ") || group;
}
