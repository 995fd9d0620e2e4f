// What each state means for the reader: how it looks, whether it needs someone, and what comes first.

/** So many of one kind and cause are told together; fewer are read one by one. */
export const STORM_FROM = 5;

/** A table to look up words from outside in: it has no entries but its own. */
export const table = (entries) => Object.assign(Object.create(null), entries);

const STATES = table({
  down: ["bad", 0], stalled: ["bad", 1], collapsed: ["bad", 2], overloaded: ["warn", 3],
  stale: ["warn", 4], unknown: ["warn", 5], starting: ["info", 6], sleeping: ["quiet", 7],
  prefilling: ["good", 8], serving: ["good", 9], idle: ["good", 10], waiting: ["quiet", 11],
});
const ATTENTION_UP_TO = 5; // down … unknown

export const toneOf = (state) => (STATES[state] ?? STATES.unknown)[0];
export const rankOf = (state) => (STATES[state] ?? STATES.unknown)[1];
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
  page: { rank: 0, tone: "bad", sign: "bad", word: "page", meaning: "Wakes a person: it costs users now." },
  ticket: { rank: 1, tone: "warn", sign: "warn", word: "ticket", meaning: "For the next working day." },
  info: { rank: 2, tone: "info", sign: "note", word: "info", meaning: "Good to know." },
});

/** How an incident's severity looks: rank (0 is the worst), tone, sign, word, what that means. */
export const severityOf = ({ severity }) => SEVERITIES[severity] ?? { ...SEVERITIES.ticket, word: severity };

const slugWords = (slug) => slug.replaceAll("_", " ");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** kind: [as a title, as what a target is said to be]. */
const KINDS = table({
  throughput_collapse: ["Collapsed", "has collapsed"], engine_stalled: ["Stalled", "is stalled"], engine_down: ["Down", "is down"],
  overload: ["Overloaded", "is overloaded"], stale_vram: ["Stale GPU memory", "has stale GPU memory"], gpu_fault: ["GPU fault", "has a GPU fault"],
  host_memory_growth: ["Host memory grows", "uses ever more host memory"],
});

const CAUSES = table({
  kv_pinning: "few requests hold the KV cache", preemption_thrash: "preemptions thrash", kv_leak: "the KV cache leaks", slow_engine: "each step is slower",
  thermal_throttle: "the GPU is slowed by heat or power", neighbour_contention: "a neighbour takes the GPU or the CPU", unknown: "cause unknown",
  hang: "hang", admission_deadlock: "admission deadlock", idle_wedged: "wedged while it looks idle",
  crash: "crash", unreachable: "unreachable", api_hang: "the API hangs", crash_loop: "crash loop", engine_dead: "the engine is dead, its API is up",
  demand: "more demand than it can serve", orphaned_worker: "an orphaned worker", idle_notebook: "an idle notebook", zombie_context: "a context whose process is gone",
  unaccounted: "held by no process", idle_process: "an idle process", xid: "Xid error", gpu_lost: "the GPU is lost", ecc: "memory errors", leak: "leak",
});

const kindOf = (kind) => KINDS[kind] ?? [capital(slugWords(kind)), `has an incident (${slugWords(kind)})`];

/** An incident's kind and cause in plain words: "Stalled: hang". */
export const incidentTitle = ({ target, kind, cause }) => `${target === OF_THE_WATCHER && kind === "engine_down" ? "Many targets at once" : kindOf(kind)[0]}: ${CAUSES[cause] ?? slugWords(cause)}`;

/** The same as what is said of its target: "is stalled: hang". */
export const incidentSays = ({ kind, cause }) => `${kindOf(kind)[1]}: ${CAUSES[cause] ?? slugWords(cause)}`;

export const evidenceName = (name) => capital(slugWords(name));

const NO_RESTART_OF_DOWN = table({
  crash: "No restart is advised: its supervisor starts it again.",
  unreachable: "No restart is advised: it may be the network between us.",
  crash_loop: "A restart does not help: it crashes each time. Its log says why (vllm-watch diagnose).",
});

/** Does a restart help? Never more than is known. */
export function restartWords({ restart_advised: advised, kind, cause }) {
  if (advised) return { sign: "again", text: "A restart is known to cure this." };
  if (cause === "unknown") return { sign: "quiet", text: "Whether a restart helps is not known." };
  if (kind === "engine_down" && NO_RESTART_OF_DOWN[cause]) return { sign: "quiet", text: NO_RESTART_OF_DOWN[cause] };
  if (kind === "engine_stalled") return { sign: "quiet", text: "No restart is advised yet: it may recover by itself." };
  return { sign: "quiet", text: "A restart does not help here." };
}

export const RESOLUTIONS = table({
  healthy: "healthy again", restarted: "after a restart", target_gone: "the target is gone", superseded: "became another incident",
});
