// Each source of a target, side by side: where they disagree, the trouble shows.

import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { OUTCOMES } from "./words.js";

const HEALTHY = 200;

/** [name, tone, words] of each; of `engine` only where it is named. */
export function testimony({ signals, sources }, engine, now) {
  const told = [answered("/metrics", sources.metrics, now), health(signals, sources.health, now), canary(sources.canary, now)];
  for (const each of Object.values(signals?.engines ?? {})) {
    if (engine !== null && each.engine !== engine) continue;
    const name = Object.keys(signals.engines).length > 1 ? `engine ${each.engine}` : "engine";
    told.push(progress(name, each, signals.state, now));
    if (each.throughput_ratio !== null) told.push([`${name}’s throughput`, pace(each), `${format.ratio(each.throughput_ratio)} of its baseline at this load, at the last scrape`]);
  }
  const started = signals?.process_start_time ?? null;
  told.push(lifetime(signals, started, now));
  const failed = signals?.start_failure;
  if (failed) told.push(["log", "bad", format.brief(failed.explanation || failed.class.replaceAll("_", " "))]);
  return told;
}

/** Below its baseline while it is told as collapsed; without that it is no news. */
const pace = ({ throughput_ratio: ratio, state }) => (ratio < 1 && state === "collapsed" ? "bad" : "quiet");

function lifetime(signals, started, now) {
  if (started === null) return ["process", "quiet", "age unknown"];
  if (signals.up) return ["process", "good", `up ${format.age(now - started)}`];
  const last = signals.last_success_timestamp_seconds;
  return ["process", "quiet", last === null ? "not seen recently" : `had been up ${format.age(last - started)} when it last answered`];
}

function answered(name, source, now) {
  if (!source || source.calls === 0) return [name, "quiet", "not asked yet"];
  if (source.outcome === "ok") return [name, "good", `answers in ${format.seconds(source.duration_seconds)}`];
  const last = source.last_success_timestamp_seconds;
  return [name, "bad", `${OUTCOMES[source.outcome] ?? source.outcome}; ${last === null ? "no success since the watcher started" : `last success ${format.ago(now - last)}`}`];
}

function health(signals, source, now) {
  const status = signals?.health_status ?? null;
  if (status === null || source?.outcome === "refused") return answered("/health", source, now);
  return ["/health", status === HEALTHY ? "good" : "bad", `HTTP ${status}`];
}

function canary(source, now) {
  if (!source || source.calls === 0) return ["canary", "quiet", "none sent so far"];
  const [, tone, words] = answered("canary", source, now);
  return ["canary", tone, tone === "good" ? `one token in ${format.seconds(source.duration_seconds)}, ${format.ago(now - source.last_success_timestamp_seconds)}` : words];
}

function progress(name, { last_progress_timestamp_seconds: last, requests_running: running, requests_waiting: waiting, state }, ofTarget, now) {
  const work = `${format.count(running)} running, ${format.count(waiting)} waiting`;
  if (running === null && waiting === null) return [name, "quiet", "no data"];
  if (running === 0 && waiting === 0) return [name, "quiet", "idle"];
  const when = last === null ? "no progress seen yet" : `last progress ${format.ago(now - last)}`;
  return [name, state === "stalled" || ofTarget === "down" ? "bad" : "good", `${when}, with ${work}`];
}

/** A list of them, kept up to date by `draw`. */
export class Witnesses {
  constructor() {
    this.element = h("dl", { class: "witnesses" });
  }

  draw(data, engine, now) {
    keyed(this.element, data ? testimony(data, engine, now) : [], ([name]) => name, ([name]) => {
      const sign = h("span", { class: "witness-sign" });
      const words = h("span");
      return { element: h("div", {}, h("dt", {}, name), h("dd", {}, sign, words)), sign, words };
    }, ({ element, sign, words }, [, tone, text]) => {
      if (element.dataset.tone !== tone) sign.replaceChildren(icon(tone));
      setAttribute(element, "data-tone", tone);
      setText(words, text);
    });
  }
}
