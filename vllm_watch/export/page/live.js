// The connection to the watcher: everything once, then what changes; it comes back by itself.

const SILENCE_MS = 10000; // the watcher sends something every 4 s at least
const RETRY_MS = 3000;
const POLL_MS = 10000; // where no stream can be had: too many pages are open, or a proxy holds it back
const STATUS_TIMEOUT_MS = 15000;

export class Live {
  /** `handlers`: status(whole, incidents), target(one), gone(name), incident(one), gpus(reading), watcher(itself), connection(state). */
  constructor(handlers) {
    this.handlers = handlers;
    this.waiting = null; // events that come while the whole is being read
    this.open();
    setInterval(() => this.watch(), 1000);
  }

  open() {
    this.source?.close();
    this.heard = performance.now();
    const source = new EventSource("api/v1/events");
    this.source = source;
    const on = (name, handle) => source.addEventListener(name, (event) => {
      if (source !== this.source) return;
      this.heard = performance.now();
      const apply = () => handle(JSON.parse(event.data));
      if (this.waiting && name !== "hello") this.waiting.push(apply);
      else apply();
    });
    on("hello", (watcher) => this.hello(watcher));
    on("beat", (watcher) => this.handlers.watcher(watcher));
    on("target", (target) => this.handlers.target(target));
    on("gone", ({ name }) => this.handlers.gone(name));
    on("incident", (incident) => this.handlers.incident(incident));
    on("gpus", (reading) => this.handlers.gpus(reading));
    source.addEventListener("error", () => {
      if (source === this.source) this.lost();
    });
  }

  /** Where there is no stream, all of it can still be asked for now and then. */
  async poll() {
    const { source } = this;
    try {
      const [whole, { incidents }] = await everything();
      if (source !== this.source) return false;
      this.handlers.watcher(whole);
      this.handlers.status(whole, incidents);
      this.say("polled");
      return true;
    } catch {
      return false;
    }
  }

  /** Read everything; then apply what changed meanwhile, which may be newer. */
  async hello(watcher) {
    const { source } = this;
    this.handlers.watcher(watcher);
    this.waiting = [];
    try {
      const [whole, { incidents }] = await everything();
      if (source !== this.source) return;
      this.handlers.status(whole, incidents);
      this.say("live");
      const waiting = this.waiting ?? [];
      this.waiting = null;
      for (const apply of waiting) apply();
    } catch {
      if (source === this.source) this.lost();
    }
  }

  lost() {
    this.waiting = null;
    this.source.close();
    clearTimeout(this.retry);
    if (this.state !== "polled") this.say("lost");
    this.again();
  }

  say(state) {
    this.state = state;
    this.handlers.connection(state);
  }

  async again() {
    const { source } = this;
    const polled = await this.poll();
    if (source !== this.source) return;
    if (!polled) this.say("lost");
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.open(), polled ? POLL_MS : RETRY_MS);
  }

  /** A connection can die without a word (a laptop slept, a cable was pulled). */
  watch() {
    if (this.source.readyState !== EventSource.CLOSED && performance.now() - this.heard > SILENCE_MS) this.lost();
  }
}

const everything = () => Promise.all(["api/v1/status", "api/v1/incidents"].map(read));

async function read(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(STATUS_TIMEOUT_MS) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** The charts of a target's engines, or of an incident as they stood when it ended; null where they cannot be had now. */
export async function history(asked) {
  try {
    const answer = await fetch(`api/v1/history?${new URLSearchParams(asked)}`, { signal: AbortSignal.timeout(STATUS_TIMEOUT_MS) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
