// Is the watcher itself healthy? What it can write, what it reaches, what it does not see.

import { h, icon, keyed, setAttribute, setText } from "./dom.js";
import { facts } from "./engine.js";
import * as format from "./format.js";
import { ask } from "./people.js";
import { OUTCOMES } from "./words.js";

const SKEW_SECONDS = 5; // a browser that is further off is worth a line: its other clocks mislead, too

/** What is wrong with it, in sentences. */
export function troubles(watcher) {
  const { store, restarts } = watcher ?? {};
  return [
    store && !store.ok && `The watcher cannot use its state folder${store.because ? `: ${store.because}` : ""}`,
    restarts?.journal_trouble && `Nothing is restarted: ${restarts.journal_trouble}`,
  ].filter(Boolean);
}

/** The facts of the section; `rows` are the targets' rows, `skew` is how far this browser's clock is ahead. */
function factsOf(watcher, rows, silence, skew, now) {
  const stale = rows.filter((row) => row.state === "stale").length;
  const waiting = rows.filter((row) => row.state === "waiting").length;
  const late = [stale && `${stale} stale`, waiting && `${waiting} not yet`].filter(Boolean).join(", ");
  const { store } = watcher;
  return [
    ["Last update", silence === null ? "none yet" : format.ago(silence)],
    ["Up", format.age(watcher.uptime_seconds + now - watcher.t)],
    ["Targets scraped", rows.length === 0 ? "no targets" : `${rows.length - stale - waiting} of ${rows.length} in time${late ? ` · ${late}` : ""}`],
    ["Blind spots", blindness(rows)],
    ...Object.entries(watcher.sources ?? {}).map(([name, source]) => [name === "nvml" ? "GPU driver" : name, sourceWords(source, now)]),
    ["State", store ? `${store.folder}${store.last_success_timestamp_seconds === null ? "" : ` · written ${format.ago(now - store.last_success_timestamp_seconds)}`}` : "not persisted (set --state-dir): vllm-watch forgets baselines when it restarts"],
    ["Restarts", watcher.restarts ? (watcher.restarts.journal_trouble ? "no: its journal cannot be used" : watcher.restarts.paused ? "paused" : modesOf(rows)) : "off: not configured"],
    ...(Math.abs(skew) >= SKEW_SECONDS ? [["This browser's clock", `is ${format.age(Math.abs(skew))} ${skew > 0 ? "ahead of" : "behind"} the watcher's, which counts here`]] : []),
  ];
}

/** How many targets are in which mode of restarts. */
function modesOf(rows) {
  const modes = rows.map(({ data }) => data.restart?.mode ?? "off");
  const told = [...new Set(modes)].sort();
  return told.length === 1 ? `mode ${told[0]}` : told.map((mode) => `${mode}: ${modes.filter((each) => each === mode).length}`).join(" · ");
}

/** On which target, or on how many, which detectors are blind. */
function blindness(rows) {
  const blind = new Map();
  for (const { name, data } of rows) {
    for (const [slug, { state }] of Object.entries(data.detectors ?? {})) if (state === "blind") blind.set(slug, [...(blind.get(slug) ?? []), name]);
  }
  const told = [...blind].map(([slug, names]) => `${slug.replaceAll("_", " ")} on ${names.length === 1 ? names[0] : `${names.length} targets`}`);
  return told.length ? told.join(", ") : "none known";
}

function sourceWords({ outcome, duration_seconds: took, last_success_timestamp_seconds: good, errors }, now) {
  if (outcome === "no_driver") return "none on this host";
  const failed = Object.values(errors).reduce((sum, times) => sum + times, 0);
  const last = outcome === "ok" ? `answers in ${format.seconds(took)}` : `${OUTCOMES[outcome] ?? outcome}; ${good === null ? "no success since the watcher started" : `last success ${format.ago(now - good)}`}`;
  return failed ? `${last} · failed ${format.count(failed)}×` : last;
}

/** "oncall (webhook): last sent 3 min ago, 2 waiting". */
function sinkWords(name, { kind, ok, because, queue, outcomes, last_success_timestamp_seconds: sent }, now) {
  const words = [
    ok === false && `fails${because ? `: ${because}` : ""}`,
    sent === null ? "nothing sent since the watcher started" : `last sent ${format.ago(now - sent)}`,
    queue > 0 && `${format.count(queue)} waiting`, outcomes.failed > 0 && `failed ${format.count(outcomes.failed)}×`, outcomes.dropped > 0 && `${format.count(outcomes.dropped)} dropped`,
  ];
  return `Notifier ${name} (${kind}): ${words.filter(Boolean).join(", ")}`;
}

export class Watcher {
  constructor(section, page) {
    this.section = section;
    this.page = page;
    this.text = h("p", { class: "watcher-text" });
    this.troubles = h("ul", { class: "watcher-troubles" });
    this.list = h("dl", { class: "facts" });
    this.sinks = h("ul", { class: "sinks" });
    this.card = h("div", { class: "watcher-card" }, this.text, this.troubles, this.list, this.sinks);
    section.append(this.card);
  }

  /** A notifier: how it does, and a button for who holds a token. */
  sink(name) {
    const [sign, text] = [h("span", { class: "attempt-sign" }), h("span")];
    const test = h("button", { type: "button", class: "act" }, "Send a test notification");
    test.setAttribute("aria-label", `Send a test notification through ${name}`);
    test.addEventListener("click", () => ask(this.page, {
      path: `api/v1/notifiers/${encodeURIComponent(name)}/test`, title: `Test ${name}`,
      text: "Sends one message, marked as a test, to this notifier's receivers.", act: "Send it",
    }));
    return { element: h("li", {}, sign, text, test), sign, text, test, shown: {} };
  }

  draw({ watcher, rows, lost, silence, skew, own, now }) {
    this.section.hidden = !watcher;
    if (!watcher) return;
    const wrong = lost ? [] : [...own, ...troubles(watcher)];
    setAttribute(this.card, "data-tone", wrong.length || lost ? "bad" : "good");
    setText(this.text, `vllm-watch ${watcher.version} ${lost ? "does not answer." : wrong.length ? "needs attention." : watcher.not_ready ? `is not ready: ${watcher.not_ready}.` : "is healthy."}`);
    keyed(this.troubles, wrong, (text) => text, (text) => h("li", {}, text), () => undefined);
    facts(this.list, factsOf(watcher, rows, silence, skew, now));
    keyed(this.sinks, Object.entries(watcher.notifiers ?? {}), ([name]) => name, ([name]) => this.sink(name), ({ sign, text, test, shown }, [name, sink]) => {
      const tone = sink.ok === null ? "quiet" : sink.ok ? "good" : "bad";
      if (shown.tone !== tone) sign.replaceChildren(icon(shown.tone = tone));
      setAttribute(sign, "data-tone", tone);
      setText(text, sinkWords(name, sink, now));
      test.hidden = !watcher.takes_tokens;
    });
  }
}
