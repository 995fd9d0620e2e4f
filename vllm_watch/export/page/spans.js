// How far back charts go, and the moment that a link points at.

import { h, keyed, setAttribute, setText } from "./dom.js";
import { age } from "./format.js";

const $ = (id) => document.getElementById(id);

export class Spans {
  constructor(page) {
    this.page = page;
    this.seconds = 600;
    this.offered = [this.seconds];
    this.pinned = null; // {name, t}: a target, Unix seconds
  }

  /** Let one be chosen of those that the watcher keeps. */
  offer(spans) {
    this.offered = spans;
    setText($("columns-span"), `last ${age(this.seconds)}`);
    keyed($("spans"), spans.length > 1 ? spans : [], (seconds) => seconds, (seconds) => {
      const button = h("button", { type: "button", class: "filter", "data-tone": "quiet" }, age(seconds));
      button.addEventListener("click", () => this.choose(seconds));
      return button;
    }, (button, seconds) => setAttribute(button, "aria-pressed", String(seconds === this.seconds)));
  }

  choose(seconds) {
    if (seconds === this.seconds) return;
    this.seconds = seconds;
    this.offer(this.offered);
    for (const row of this.page.targets.values()) row.respan();
    this.page.schedule();
  }

  /** The moment that is chosen in a target's charts, or null. */
  pinnedOf(name) {
    return this.pinned?.name === name ? this.pinned.t : null;
  }

  /** Choose a moment of a target, and put it into the address, to be copied; null lets go. */
  pin(name, t) {
    this.pinned = t === null ? null : { name, t: Math.round(t) };
    history.replaceState(null, "", this.place(name));
    this.page.redraw(name);
  }

  /** Show a moment that an address names, in charts that reach back so far. */
  point(name, t, now) {
    this.pinned = { name, t };
    this.choose(this.offered.find((seconds) => now - t < seconds) ?? this.offered.at(-1));
  }

  /** Where a target is found, and its chosen moment. */
  place(name) {
    const t = this.pinnedOf(name);
    return `#${encodeURIComponent(`target-${name}`)}${t === null ? "" : `@${t}`}`;
  }
}
