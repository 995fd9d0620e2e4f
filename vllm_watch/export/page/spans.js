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
    this.zoomed = null; // {name, from, to}: a part of the span of a target's charts
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
    if (this.zoomed !== null) this.zoom(this.zoomed.name, null);
    if (seconds === this.seconds) return;
    this.seconds = seconds;
    this.offer(this.offered);
    for (const row of this.page.targets.values()) row.respan();
    this.page.schedule();
  }

  /** The part that a target's charts are zoomed into, or null. */
  zoomOf(name) {
    return this.zoomed?.name === name ? this.zoomed : null;
  }

  /** Show only from `from` to `to` (Unix seconds), and put that into the address, to be copied; null shows all again. */
  zoom(name, from, to) {
    const before = this.zoomed;
    this.zoomed = from === null ? null : { name, from: Math.floor(from), to: Math.ceil(to) };
    if (before !== null && before.name !== name) this.page.redraw(before.name);
    history.replaceState(null, "", this.place(name));
    setText(document.getElementById("zoom-out"), this.zoomed === null ? "" : `Zoom out of ${name}`);
    document.getElementById("zoom-out").hidden = this.zoomed === null;
    this.page.redraw(name);
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

  /** Show a span that an address names. */
  pointSpan(name, from, to, now) {
    this.choose(this.offered.find((seconds) => now - from < seconds) ?? this.offered.at(-1));
    this.zoom(name, from, to);
  }

  /** Where a target is found, and its chosen moment. */
  place(name) {
    const [t, zoom] = [this.pinnedOf(name), this.zoomOf(name)];
    const when = zoom === null ? t : `${zoom.from}-${zoom.to}`;
    return `#${encodeURIComponent(`target-${name}`)}${when === null ? "" : `@${when}`}`;
  }
}
