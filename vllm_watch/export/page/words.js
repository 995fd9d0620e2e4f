// What each state means for the reader: how it looks, whether it needs someone, and what comes first.

const STATES = {
  down: ["bad", 0], stalled: ["bad", 1], collapsed: ["bad", 2], overloaded: ["warn", 3],
  stale: ["warn", 4], unknown: ["warn", 5], starting: ["info", 6], sleeping: ["quiet", 7],
  prefilling: ["good", 8], serving: ["good", 9], idle: ["good", 10], waiting: ["quiet", 11],
};
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

export const PROCESS_STATES = {
  R: "running", S: "sleeping", D: "stuck in the kernel", Z: "zombie", T: "stopped", t: "traced", X: "dead", I: "idle",
};

export const OUTCOMES = {
  ok: "ok", refused: "refused", connect_timeout: "no connection in time", read_timeout: "no answer in time",
  http: "HTTP error", garbled: "unreadable", too_large: "too large", disconnected: "cut off", dns: "name not found",
  tls: "TLS failed", no_driver: "no driver", hung: "no answer in time", error: "error",
};

/** Reasons for a clock below its maximum that someone should know of. */
export const HOT = new Set(["hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"]);
