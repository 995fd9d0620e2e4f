// The list of targets: which are shown, in which order, and the buttons and the field that narrow it down.

import { arrange, h, icon, keyed, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";
import { needsAttention, rankOf, severityOf, toneOf } from "./words.js";

const SEARCH_FROM = 7; // fewer are seen at a glance
const ROWS_AT_FIRST = 60; // the worst ones; the others are for who asks
const ROWS_MORE = 500; // at each asking: what a browser draws in a moment
export const WELL = 100; // the place of a row that needs nobody

const $ = (id) => document.getElementById(id);
const collator = new Intl.Collator("en", { numeric: true });

export class List {
  constructor(page) {
    this.page = page;
    this.rows = new Map(); // by name
    this.byName = null; // the same, in order of name; null: not sorted yet
    this.filter = null;
    this.most = ROWS_AT_FIRST;
    $("search").addEventListener("input", () => this.arrange());
    $("more").addEventListener("click", () => {
      this.most += ROWS_MORE;
      this.arrange();
    });
  }

  add(row) {
    this.rows.set(row.name, row);
    this.byName = null;
  }

  remove(name) {
    this.rows.delete(name);
    this.byName = null;
  }

  /** All rows in order of name. */
  sorted() {
    this.byName ??= [...this.rows.values()].sort((a, b) => collator.compare(a.name, b.name));
    return this.byName;
  }

  /** Those that need someone first, the worst on top; the rest by name, so that rows do not jump about. */
  arrange() {
    const places = new Map(this.sorted().map((row) => [row, this.order(row)]));
    const rows = [...places.keys()].sort((a, b) => places.get(a) - places.get(b));
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => (this.filter === null || row.state === this.filter) && words.every((word) => row.words().includes(word)));
    const shown = found.filter((row, i) => i < this.most || row.isOpen);
    arrange($("list"), shown.map((row) => row.element));
    const left = found.length - shown.length;
    const unwell = found.slice(this.most).filter((row) => places.get(row) < WELL).length;
    $("more").hidden = left === 0;
    setText($("more"), `Show ${Math.min(left, ROWS_MORE)} more${left > ROWS_MORE ? ` of ${format.count(left)}` : ""}${unwell ? `; ${format.count(unwell)} of them need attention` : left === 1 ? " that is healthy" : " that are healthy"}`);
    $("empty").hidden = found.length > 0 || this.page.watcher === null;
    setText($("empty"), this.rows.size ? "No target matches." : this.page.watcher?.nothing_watched ?? "No target is watched. Start with --target HOST:8000, or name them in the configuration.");
    $("columns-head").hidden = shown.length === 0;
    $("search-label").hidden = this.rows.size < SEARCH_FROM;
    this.drawFilters(rows);
  }

  drawFilters(rows) {
    const counts = new Map();
    for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    if (this.filter !== null && !counts.has(this.filter)) counts.set(this.filter, 0);
    const states = [...counts].sort((a, b) => rankOf(a[0]) - rankOf(b[0]));
    const items = states.length > 1 || this.filter !== null ? [[null, rows.length], ...states] : [];
    keyed($("filters"), items, ([state]) => state ?? "all",
      ([state]) => {
        const number = h("span", { class: "filter-count" });
        const element = h("button", { type: "button", class: "filter", "data-tone": state === null ? "quiet" : toneOf(state) },
          ...(state === null ? [] : [icon(toneOf(state))]), state ?? "all", " ", number);
        element.addEventListener("click", () => {
          this.filter = this.filter === state ? null : state;
          this.arrange();
        });
        return { element, number };
      },
      ({ element, number }, [state, times]) => {
        setText(number, String(times));
        setAttribute(element, "aria-pressed", String(this.filter === state));
      });
  }

  /** List what matches some words. */
  find(words) {
    this.filter = null;
    $("search").value = words;
    this.arrange();
    $("targets").focus({ preventScroll: true });
    $("targets").scrollIntoView({ block: "start" });
  }

  /** Show all of them again. */
  widen() {
    this.filter = null;
    $("search").value = "";
  }

  /** The most urgent open incident of a row that someone should see to, or undefined. */
  urgent(row) {
    return this.page.incidents.urgentOf(row.name)[0];
  }

  /** The place of a row: what pages, then states that need someone, then tickets; then the others. */
  order(row) {
    const incident = this.urgent(row);
    const state = needsAttention(row.state) ? rankOf(row.state) : WELL;
    if (incident) return severityOf(incident).rank === 0 ? state - 2 * WELL : Math.min(state, WELL - 1);
    return state;
  }
}
